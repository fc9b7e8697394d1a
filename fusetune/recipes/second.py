# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of a second instance of a server, which runs beside the live one."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence

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


def second_variables(server: ServerFacts, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a second instance: that of the live one without its own state."""
    return {
        name: value
        for name, value in environment.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in server.second_unset)
    }


def not_safe_with(server: ServerFacts, words: Sequence[str]) -> list[str]:
    """Return the options of a command line with which a second instance is not safe.

    For servers with long options, those that it might have are included.
    """
    given = _given(server, words, server.second_not_with)
    if server.options != "long":
        return given
    options = words[1 : words.index("--") if "--" in words else None]
    return [
        text
        for text in server.second_not_with
        if text in given or any(_may_mean(word, text) for word in options)
    ]


def _may_mean(word: str, text: str) -> bool:
    """Whether a word can be another spelling of the option ``text``.

    Libraries accept beginnings of long options, one dash instead of two, and short options in one
    word, with a value at its end. Which of these a server accepts is not known.
    """
    name, option = (one.partition("=")[0] for one in (word, text))
    if name.startswith("--"):
        return len(name) > 2 and name != option and option.startswith(name)
    if not name.startswith("-") or name.startswith("-o"):  # a list of mount options
        return False
    return option == f"-{name}" or (len(option) == 2 and option[1] in name[1:])


def _given(server: ServerFacts, words: Sequence[str], texts: Sequence[str]) -> list[str]:
    settings = _line(server, words, texts).settings()
    return [text for text in texts if settings.get(text, "false") != "false"]


def _line(server: ServerFacts, words: Sequence[str], texts: Iterable[str]) -> CommandLine:
    known = []
    for text in texts:
        if option := option_of(text):
            spelling, value = option
            # Go's libraries also accept one dash.
            single = option_of(text[1:]) if text.startswith("--") else None
            also = (single[0],) if single and server.options == "long" else ()
            known.append(Spellings(text, spelling, also, None, value in ("true", "false")))
    return CommandLine(words, known, server.options, server.subcommands)
