# SPDX-License-Identifier: GPL-2.0-or-later
"""How an option is spelled: in a list of mount options, or as a separate word."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fusetune.recipes.recipe import Bad, Option, ServerFacts

_VALUE = "{value}"
_TEMPLATE = re.compile(r"(-o )?([^\s=,{}]+?)([= ]?)(\{value\}([A-Za-z]*))?")
_TRUE, _FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


@dataclass(frozen=True)
class Spelling:
    """``name`` with its dashes; ``item``: whether it belongs in a list of mount options.

    ``joint``: the text between name and value: "=", " " or empty; None if there is no value.
    ``suffix``: the text after the value, such as the unit "s".
    """

    name: str
    item: bool
    joint: str | None
    suffix: str = ""

    @staticmethod
    def parse(text: str) -> "Spelling | None":
        """Return the spelling of a template such as ``-o a={value}``, None if invalid."""
        match = _TEMPLATE.fullmatch(text)
        if not match or (bool(match[3]) and not match[4]):
            return None
        item, name = bool(match[1]), match[2]
        if (not item and not name.startswith("-")) or (item and match[3] == " "):
            return None
        return Spelling(name, item, match[3] if match[4] else None, match[5] or "")

    def words(self, value: str) -> tuple[str, ...]:
        """Return the words that give the option this value; list items without ``-o``."""
        if self.joint is None:
            return (self.name,)
        if self.joint == " ":
            return self.name, f"{value}{self.suffix}"
        return (f"{self.name}{self.joint}{value}{self.suffix}",)

    def value(self, text: str) -> str:
        """Return the value of ``text``, without the suffix."""
        return text.removesuffix(self.suffix)


@dataclass(frozen=True)
class Spellings:
    """All spellings of one option; ``main`` is written, None if the command line cannot express it.

    ``boolean``: its values are true and false, so its name alone means true, and the next word is
    not its value.
    """

    name: str
    main: Spelling | None
    also: tuple[Spelling, ...]
    fstab: Spelling | None
    boolean: bool

    def every(self) -> Iterator[Spelling]:
        """Yield each spelling."""
        yield from (one for one in (self.main, *self.also, self.fstab) if one)


def spellings_of(server: ServerFacts, option: Option) -> Spellings:
    """Return the spellings of an option of a server."""
    valued = not option.flag
    main = _main(server, option.name, valued, option.command)
    fstab = option.fstab
    if fstab is None:
        fstab = _fstab_of(main, option.name, valued)
    also = tuple(one for text in option.also if (one := Spelling.parse(text)))
    boolean = option.flag or "true" in option.values
    return Spellings(
        option.name, main, also, Spelling.parse(f"-o {fstab}") if fstab else None, boolean
    )


def spellings_of_bad(server: ServerFacts, bad: Bad) -> Spellings:
    """Return the spellings of an option that a recipe only lists as bad."""
    valued = (bad.value, bad.below, bad.above) != (None, None, None)
    main = _main(server, bad.option, valued, bad.command)
    fstab = Spelling.parse(f"-o {_fstab_of(main, bad.option, valued)}") if main else None
    return Spellings(bad.option, main, (), fstab, not valued)


def _main(server: ServerFacts, name: str, valued: bool, command: str | None) -> Spelling | None:
    if command is None:
        dashes = {"mount": "-o ", "long": "--", "single": "-"}[server.options]
        command = f"{dashes}{name}" + f"={_VALUE}" * valued
    return Spelling.parse(command) if command else None


def _fstab_of(main: Spelling | None, name: str, valued: bool) -> str:
    """Return the spelling in fstab: the one for lists of mount options, if there is one."""
    written = main.name if main and main.item else name
    return written + f"={_VALUE}{main.suffix if main else ''}" * valued


def truth(value: str) -> str:
    """Return "true" or "false" for all spellings of these, other values unchanged."""
    low = value.lower()
    return "true" if low in _TRUE else "false" if low in _FALSE else value
