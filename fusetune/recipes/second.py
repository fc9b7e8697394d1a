# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of a second instance of a server, which runs beside the live one."""

from collections.abc import Iterable, Sequence

from fusetune.recipes.command_line import CommandLine
from fusetune.recipes.recipe import ServerFacts
from fusetune.recipes.spelling import Spelling, Spellings


def option_of(text: str) -> tuple[Spelling, str] | None:
    """Return spelling and value of an option such as ``-o a=b`` or ``--a``, None if invalid."""
    name, equals, value = text.partition("=")
    spelling = Spelling.parse(f"{name}={{value}}" if equals else name)
    return (spelling, value or "true") if spelling else None


def second_words(server: ServerFacts, words: Sequence[str]) -> list[str]:
    """Return the command line of a second instance, with the options from `ServerFacts`."""
    own = set(_given(server, words, server.second_own))
    texts = [*server.second_with, *(text for text in server.second_own if text in own)]
    changes = {text: option[1] for text in texts if (option := option_of(text))}
    return _line(server, words, texts).changed(changes)


def not_safe_with(server: ServerFacts, words: Sequence[str]) -> list[str]:
    """Return the options of a command line with which a second instance is not safe."""
    return _given(server, words, server.second_not_with)


def _given(server: ServerFacts, words: Sequence[str], texts: Sequence[str]) -> list[str]:
    settings = _line(server, words, texts).settings()
    return [text for text in texts if settings.get(text, "false") != "false"]


def _line(server: ServerFacts, words: Sequence[str], texts: Iterable[str]) -> CommandLine:
    known = []
    for text in texts:
        if option := option_of(text):
            spelling, value = option
            known.append(Spellings(text, spelling, (), None, value in ("true", "false")))
    return CommandLine(words, known, server.options, server.subcommands)
