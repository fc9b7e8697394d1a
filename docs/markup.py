# SPDX-License-Identifier: GPL-2.0-or-later
"""A table, and its text in Markdown and in the manual's mdoc(7)."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from fusetune.cli import commands

#: They stay as they are at the beginning of a sentence, as do words with odd characters.
_NAMES = {"fio", *commands()}
_TOKEN = re.compile(r"\.\.\.|[A-Za-z]+|\S")


@dataclass(frozen=True)
class Row:
    """One entry: its name, mdoc(7)'s words for that, its sentences in the manual, its cells."""

    name: str
    tag: str
    text: str
    cells: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """Rows, and the headings of their cells, the name's included."""

    headings: Sequence[str]
    rows: Sequence[Row]

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [self.headings, ["---"] * len(self.headings)]
        for row in self.rows:
            cells = [f"`{row.name}`", *(row.cells or [row.text])]
            lines.append([cell.replace("|", "\\|") for cell in cells])
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def mdoc(self) -> str:
        """Return the table as a list of the manual."""
        rows = "".join(f".It {row.tag}\n{wrapped(row.text)}" for row in self.rows)
        return f".Bl -tag -width Ds\n{rows}.El\n"


def sentence(text: str) -> str:
    """Return ``text`` with a full stop, and a capital unless it begins with a name."""
    first = re.split(r"[ ,:;]", text)[0]
    if first.isalpha() and first not in _NAMES:
        text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


def wrapped(text: str) -> str:
    """Return text for the manual: lines of 78 characters at most, a new one for each sentence."""
    lines: list[str] = []
    for sentence in re.split(r"(?<=[.)])(?<=\.) (?=[A-Z0-9'])", text):
        escaped = sentence.replace("\\", "\\e")
        lines += textwrap.wrap(escaped, 78, break_long_words=False, break_on_hyphens=False)
    return "".join(f"\\&{line}\n" if line[0] in ".'" else f"{line}\n" for line in lines)


def mdoc_words(value: str) -> str:
    """Return mdoc(7)'s macros for a value: what is in capitals stands for something else."""
    words: list[str] = []
    for word in _TOKEN.findall(value):
        if word == "...":
            words.append(word)
        elif word.isalpha():
            words.append(f"{'Ar' if word.isupper() else 'Cm'} {word}")
        else:  # mdoc(7) puts no space before a closing delimiter anyway
            words.append(f"{word} Ns" if word in ".,:;" else f"Ns {word} Ns")
    text = re.sub(r"\bNs Ns\b", "Ns", " ".join(words))
    # mdoc(7) puts no space inside of brackets anyway, and nothing follows the last word.
    return text.removesuffix(" Ns").replace("[ Ns", "[").replace("Ns ]", "]")
