# SPDX-License-Identifier: GPL-2.0-or-later
"""The line number of each key of a TOML document."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

Where = tuple[str | int, ...]

# What ends every value that occupies several lines (TOML 1.0).
_END = re.compile(r"""[]}]|\"{3}|'{3}""")
#: Characters parsed in addition to some times those of a document.
_MOST_PARSED = 16 << 20


def toml_problem(message: str, text: str) -> tuple[str, int]:
    """Return tomllib's error, and its line."""
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", message)
    if not match:
        return message, 1
    return match[1], int(match[2]) if match[2] else max(1, len(text.splitlines()))


def statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield line, text and meaning of each expression of a valid TOML document.

    Each occupies whole lines and is a valid document by itself (TOML 1.0, toml.abnf). Raises
    TOMLDecodeError if a value occupies so many lines that this takes too long.
    """
    begin, chunk, left = 1, "", 4 * len(text) + _MOST_PARSED
    for number, line in enumerate(text.split("\n"), 1):
        chunk += line + "\n"
        if number > begin and not _END.search(line):
            continue
        left -= len(chunk)
        if left < 0:
            raise tomllib.TOMLDecodeError(f"the value at line {begin} occupies too many lines")
        try:
            parsed = tomllib.loads(chunk)
        except tomllib.TOMLDecodeError:
            continue  # a value that continues on the next line
        if parsed:
            yield begin, chunk, parsed
        begin, chunk = number + 1, ""


def _leaves(value: object, where: Where = ()) -> Iterator[Where]:
    """Yield the place of ``value`` and of everything in it."""
    if where:
        yield where
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*where, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*where, number))


def lines_of(text: str) -> dict[Where, int]:
    """Return the line of every key and table of a valid document."""
    found: dict[Where, int] = {}
    counts: dict[Where, int] = {}
    table: Where = ()
    for line, chunk, parsed in statements(text):
        header = chunk.lstrip().startswith("[")
        places = list(_leaves(parsed))
        if header:
            table = places[-1]
            if isinstance(table[-1], int):  # [[name]]: the next of its list
                name = table[:-1]
                counts[name] = counts.get(name, -1) + 1
                table = (*name, counts[name])
                found.setdefault(name, line)
            found.setdefault(table, line)
        else:
            for place in places:
                found.setdefault((*table, *place), line)
    return found
