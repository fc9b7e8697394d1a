# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON Schemas of dataclasses, made from their annotations.

A field is annotated with its JSON Schema: a text is its description, a `Rule` has keywords such as
``minimum``, and a function returns a schema that is made from a table. Each dataclass, and each
schema that a function returns, is in ``$defs`` once. No other fields are allowed.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

Schema = dict[str, Any]
_SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}


class Rule(dict[str, Any]):
    """Keywords of JSON Schema, such as ``minimum``; hashable, as required for annotations."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def key_of(field: Field[Any]) -> str:
    """Return the name of a field outside Python: ``class_`` stands for ``class``."""
    return field.name.removesuffix("_")


def may_lack(field: Field[Any]) -> bool:
    """Whether a field has a default."""
    return field.default is not MISSING or field.default_factory is not MISSING


def object_schema(one: type, shapes: dict[str, Schema], *, lenient: bool = False) -> Schema:
    """Return the schema of a dataclass; schemas that it refers to are added to ``shapes``.

    ``lenient``: fields with a default may be left out, and are never null.
    """
    hints = get_type_hints(one, include_extras=True)
    properties = {
        key_of(field): _field(hints[field.name], shapes, lenient) for field in fields(one)
    }
    required = [key_of(one) for one in fields(one) if not (lenient and may_lack(one))]
    return {
        "description": inspect.cleandoc(one.__doc__ or ""),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _field(hint: Any, shapes: dict[str, Schema], lenient: bool) -> Schema:
    """Return the schema of an annotated type; later annotations take precedence."""
    extras: Sequence[Any] = ()
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
    found: Schema = {}
    if functions := [extra for extra in extras if callable(extra)]:
        (shape,) = functions
        name = shape.__name__.title().replace("_", "")
        shapes[name] = shape()
        found = {"$ref": f"#/$defs/{name}"}
    else:
        found = _type(hint, shapes, lenient)
    for extra in extras:
        if isinstance(extra, str):
            found |= {"description": extra}
        elif isinstance(extra, dict):
            found |= extra
    if None in _members(hint) and "enum" in found and not lenient:
        found |= {"enum": [*found["enum"], None]}
    return dict(sorted(found.items(), key=lambda item: item[0] != "description"))


def _members(hint: Any) -> list[Any]:
    """Return the types of a union, None for the type of None."""
    union = get_origin(hint) in (Union, UnionType)
    return [None if one is NoneType else one for one in get_args(hint)] if union else []


def _type(hint: Any, shapes: dict[str, Schema], lenient: bool) -> Schema:
    if members := _members(hint):
        (one,) = (member for member in members if member is not None)
        found = _field(one, shapes, lenient)
        return found if lenient else _nullable(found)
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in shapes:
            shapes[hint.__name__] = {}  # before nested ones
            shapes[hint.__name__] = object_schema(hint, shapes, lenient=lenient)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    args = get_args(hint)
    if get_origin(hint) is Mapping:
        return {"type": "object", "additionalProperties": _field(args[1], shapes, lenient)}
    if get_origin(hint) is Sequence:
        return {"type": "array", "items": _field(args[0], shapes, lenient)}
    raise TypeError(f"no JSON Schema for {hint!r}")


def _nullable(schema: Schema) -> Schema:
    if "$ref" in schema:
        other = {key: value for key, value in schema.items() if key != "$ref"}
        return {"anyOf": [{"$ref": schema["$ref"]}, {"type": "null"}], **other}
    return schema | {"type": [schema["type"], "null"]}
