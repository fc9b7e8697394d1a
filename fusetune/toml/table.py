# SPDX-License-Identifier: GPL-2.0-or-later
"""A dataclass from a table of a TOML file, validated by the annotations of its fields."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fusetune.schema import Rule, key_of, may_lack
from fusetune.toml.file import TomlFile
from fusetune.toml.lines import Where

T = TypeVar("T")
_WORDS = {str: "a string", int: "a whole number", bool: "true or false"}
#: By keyword of a `Rule`: the check of a value, and the message if it fails.
_RULES: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "enum": (lambda value, known: value in known, "must be one of {}"),
    "pattern": (lambda value, text: re.search(text, value) is not None, "must match {}"),
    "minLength": (lambda value, least: len(value) >= least, "must not be empty"),
    "minItems": (lambda value, least: len(value) >= least, "must have {} or more entries"),
    "maxItems": (lambda value, most: len(value) <= most, "must have {} or fewer entries"),
}


@cache
def _hints(one: type[object]) -> Mapping[str, Any]:
    """Return the annotations of a dataclass, which take most of the time to read a table."""
    return get_type_hints(one, include_extras=True)


def table_as(one: type[T], file: TomlFile, where: Where, content: Any) -> T:
    """Return the dataclass ``one`` made of a table.

    Raises `ConfigError` with file and line for an unknown key (naming the nearest), a
    missing one, and a value that its annotation does not allow.
    """
    if not isinstance(content, dict):
        raise file.wrong(
            where, f"{where[0]} must be a table: write it as a heading with keys below it"
        )
    known = {key_of(field): field for field in fields(one)}  # type: ignore[arg-type]
    for key in content:
        file.check_known((*where, key), key, known)
    hints = _hints(one)  # type: ignore[arg-type]  # mypy does not know that a class is hashable
    found = {}
    for key, field in known.items():
        if key in content:
            found[field.name] = _value(hints[field.name], file, (*where, key), content[key])
        elif not may_lack(field):
            raise file.wrong(where, f"{key} is missing")
    return one(**found)


def _value(hint: Any, file: TomlFile, where: Where, value: Any) -> Any:
    rules: list[Rule] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
            rules += [extra for extra in extras if isinstance(extra, Rule)]
        elif get_origin(hint) in (Union, UnionType):  # TOML has no null
            (hint,) = (one for one in get_args(hint) if one is not NoneType)
        else:
            break
    if get_origin(hint) is Sequence:
        found: Any = _list(hint, file, where, value)
    elif is_dataclass(hint):
        return table_as(hint, file, where, value)  # type: ignore[arg-type]
    elif type(value) is not hint:  # True is an int to isinstance()
        raise file.wrong(where, f"{where[-1]} must be {_WORDS[hint]}")
    else:
        found = value
    for rule in rules:
        for keyword, wanted in rule.items():
            right, words = _RULES[keyword]
            if not right(found, wanted):
                shown = ", ".join(wanted) if isinstance(wanted, list) else wanted
                raise file.wrong(where, f"{_name(where)} {words.format(shown)}")
    return found


def _list(hint: Any, file: TomlFile, where: Where, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise file.wrong(where, f"{where[-1]} must be a list")
    (inner,) = get_args(hint)
    return tuple(_value(inner, file, (*where, number), one) for number, one in enumerate(value))


def _name(where: Where) -> str:
    """Return the key that a place in the file belongs to."""
    return next(str(part) for part in reversed(where) if isinstance(part, str))
