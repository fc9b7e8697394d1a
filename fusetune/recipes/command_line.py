# SPDX-License-Identifier: GPL-2.0-or-later
"""A server's command line: which options it sets, and the line with changed options.

Nothing is lost or reordered: words that the recipe does not know stay unchanged.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusetune.recipes.spelling import Spelling, Spellings, truth

_COMMA = re.compile(r"(?<!\\),")
#: Options to set, by name; None to leave an option out.
Changes = Mapping[str, str | None]


@dataclass(frozen=True)
class Part:
    """One option with its value, or other words; ``words`` are the original ones.

    ``option``: the name of the option, None for other words.
    """

    words: tuple[str, ...]
    option: str | None = None
    value: str = ""


@dataclass(frozen=True)
class OptionList:
    """The list after ``-o``; ``prefix``: ``-o`` as a separate word, or attached to the list."""

    prefix: tuple[str, ...]
    items: tuple[Part, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command line."""
        text = ",".join(word for item in self.items for word in item.words)
        return (*self.prefix, text) if self.prefix else (f"-o{text}",)


class CommandLine:
    """A parsed command line.

    ``known``: the options to look for. ``options``: the option syntax of the server, as in a
    recipe. ``subcommands``: words after which options may come.
    """

    def __init__(
        self,
        words: Sequence[str],
        known: Iterable[Spellings],
        options: str,
        subcommands: Sequence[str] = (),
    ) -> None:
        self._known = list(known)
        self._options = options
        self._subcommands = subcommands
        self._parts = list(self._parse(words))

    def settings(self) -> dict[str, str]:
        """Return the value of each known option that is given; the last one wins."""
        return {part.option: part.value for part in self._given() if part.option}

    def words(self) -> list[str]:
        """Return the command line."""
        return [word for part in self._parts for word in part.words]

    def changed(self, changes: Changes) -> list[str]:
        """Return the command line with options set, or left out if None.

        Options that the command line cannot express are not changed.
        """
        todo = dict(changes)
        parts = [one for part in self._parts for one in self._rewritten(part, todo, changes)]
        self._add(parts, {name: value for name, value in todo.items() if value is not None})
        return [word for part in parts for word in part.words]

    def _given(self) -> Iterator[Part]:
        for part in self._parts:
            yield from part.items if isinstance(part, OptionList) else (part,)

    def _parse(self, words: Sequence[str]) -> Iterator[Part | OptionList]:
        todo = list(words)[::-1]
        if todo:
            yield Part((todo.pop(),))
        while todo:
            word = todo.pop()
            if word == "--":  # no options follow
                yield Part((word, *todo[::-1]))
                return
            if word == "-o" and todo:
                yield OptionList((word,), self._items(todo.pop()))
            elif re.match("-o[^=]", word) and self._options != "single":
                yield OptionList((), self._items(word[2:]))
            else:
                yield self._word(word, todo)

    def _word(self, word: str, todo: list[str]) -> Part:
        """Return a word outside lists, with the next word if that is its value."""
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            return Part((word,))
        for option in self._known:
            for one in option.every():
                if one.item:
                    continue
                if self._same(one.name, name):
                    if equals or option.boolean or one.joint is None or not todo:
                        value = _value(option, equals, one.value(value))
                        return Part((word,), option.name, value)
                    value = todo.pop()
                    return Part((word, value), option.name, one.value(value))
                if one.joint == "" and word.startswith(one.name):
                    value = one.value(word.removeprefix(one.name))
                    return Part((word,), option.name, value)
        return Part((word,))

    def _same(self, known: str, name: str) -> bool:
        if self._options == "single":  # Go's flag package accepts both
            known, name = (re.sub("^--", "-", one) for one in (known, name))
        return known == name

    def _items(self, text: str) -> tuple[Part, ...]:
        return tuple(item_part(item, self._known) for item in _COMMA.split(text))

    def _rewritten(
        self,
        part: Part | OptionList,
        todo: dict[str, str | None],
        changes: Changes,
    ) -> list[Part | OptionList]:
        """Return a part with its options changed, and remove those from ``todo``."""
        if isinstance(part, OptionList):
            items = changed_items(part.items, self._known, todo, changes)
            return [OptionList(part.prefix, items)] if items else []
        if part.option is None or part.option not in changes:
            return [part]
        value = todo.pop(part.option, None)
        if value is None:
            return []
        spelling = _spelling_as(part, self._known, item=False)
        return [Part(spelling.words(value))] if spelling and _says(spelling, value) else []

    def _add(self, parts: list[Part | OptionList], new: Mapping[str, str]) -> None:
        """Add options to the last list of mount options, or where options may start."""
        items: list[Part] = []
        words: list[Part] = []
        for known in self._known:
            if known.name in new and known.main and _says(known.main, new[known.name]):
                part = Part(known.main.words(new[known.name]))
                (items if known.main.item else words).append(part)
        lists = [number for number, part in enumerate(parts) if isinstance(part, OptionList)]
        start = self._start(parts)
        if items and lists:
            last = parts[lists[-1]]
            assert isinstance(last, OptionList)  # noqa: S101 - as `lists` says
            parts[lists[-1]] = OptionList(last.prefix, (*last.items, *items))
        elif items:
            parts.insert(start, OptionList(("-o",), tuple(items)))
        parts[start:start] = words

    def _start(self, parts: Sequence[Part | OptionList]) -> int:
        """Return where options may start: after the program or its subcommand."""
        for number, part in enumerate(parts):
            if number and part.words and part.words[0] in self._subcommands:
                return number + 1
        return min(1, len(parts))


def item_part(text: str, known: Iterable[Spellings]) -> Part:
    """Return an item of a list of mount options."""
    name, equals, value = text.partition("=")
    for option in known:
        for one in option.every():
            if _same_item(one, name):
                return Part((text,), option.name, _value(option, equals, one.value(value)))
    return Part((text,))


def _same_item(one: Spelling, name: str) -> bool:
    if one.item:
        return one.name == name
    # Mount helpers of servers with long options accept either character.
    return one.name.lstrip("-").replace("_", "-") == name.replace("_", "-")


def changed_items(
    items: Iterable[Part],
    known: Sequence[Spellings],
    todo: dict[str, str | None],
    changes: Changes,
) -> tuple[Part, ...]:
    """Return items with the options of ``changes`` set or left out; remove those from ``todo``."""
    found = []
    for item in items:
        if item.option is None or item.option not in changes:
            found.append(item)
        elif (value := todo.pop(item.option, None)) is not None:
            spelling = _spelling_as(item, known, item=True)
            if spelling and _says(spelling, value):
                found.append(Part(spelling.words(value)))
    return tuple(found)


def _value(option: Spellings, equals: str, value: str) -> str:
    if not equals:
        return "true" if option.boolean else ""
    return truth(value) if option.boolean else value


def _says(spelling: Spelling, value: str) -> bool:
    """Whether a spelling can express this value: one without a value can only be "true"."""
    return spelling.joint is not None or value != "false"


def _spelling_as(part: Part, known: Iterable[Spellings], *, item: bool) -> Spelling | None:
    """Return how a part spells its option, so that the changed one has the same spelling."""
    option = next(one for one in known if one.name == part.option)
    written = part.words[0].partition("=")[0]
    fitting = [one for one in option.every() if one.item == item]
    alike = [one for one in fitting if one.name == written]
    if alike or fitting:
        return (alike or fitting)[0]
    # An item of a server with long options.
    valued = next((one for one in option.every() if one.joint is not None), None)
    return Spelling(written, item, "=", valued.suffix) if valued else Spelling(written, item, None)
