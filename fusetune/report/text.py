# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables, figures and values as text for people."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import click

from fusetune.bench.figures import P99_UNIT
from fusetune.text import printable

_SCALES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
#: Separator of columns.
_GAP = 2


@dataclass(frozen=True)
class Table:
    """Rows below headings.

    ``right``: the words in it are the headings of right-aligned columns.
    """

    headings: Sequence[str]
    rows: Iterable[Sequence[str]]
    right: str = ""

    def text(self, columns: int | None = None) -> str:
        """Return the table; no control character of a cell reaches the terminal.

        A row is one line. If it would exceed ``columns``, cells that are not right-aligned wrap; if
        even their words do not fit, each row becomes a paragraph that starts with its first cell.
        """
        from rich.cells import cell_len  # noqa: PLC0415 - JSON needs no rich

        lines = [[printable(cell) for cell in line] for line in (self.headings, *self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        numeric = [heading in self.right.split() for heading in self.headings]
        heads = 1
        if columns and sum(widths) + _GAP * (len(widths) - 1) > columns:
            narrow = _narrowed(lines, widths, numeric, columns)
            if not narrow:
                return _paragraphs(lines, columns)
            widths, wrapped = narrow, [_wrapped(line, narrow) for line in lines]
            heads, lines = len(wrapped[0]), [part for parts in wrapped for part in parts]
        shown = []
        for line in lines:
            cells = []
            for cell, width, to_right in zip(line, widths, numeric, strict=True):
                space = " " * (width - cell_len(cell))
                cells.append(space + cell if to_right else cell + space)
            shown.append((" " * _GAP).join(cells).rstrip())
        shown[:heads] = [click.style(line, bold=True) for line in shown[:heads]]
        return "".join(f"{line}\n" for line in shown)


def _narrowed(
    lines: Sequence[Sequence[str]],
    widths: Sequence[int],
    numeric: Sequence[bool],
    columns: int,
) -> list[int] | None:
    """Return widths of columns with which the words of lines fit, None if there are none.

    The longest words may be broken, but not into less than a quarter of the line.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - as above

    room = columns - _GAP * (len(widths) - 1)
    words = [
        max((cell_len(word) for cell in column for word in cell.split()), default=0)
        for column in zip(*lines, strict=True)
    ]
    for most in range(columns, columns // 4, -1):
        found = [
            width if fixed else min(width, word, most)
            for width, fixed, word in zip(widths, numeric, words, strict=True)
        ]
        if sum(found) <= room:
            break
    else:
        return None
    room -= sum(found)
    # Columns share the room; those that need least come first.
    for left, i in enumerate(sorted(range(len(found)), key=lambda i: widths[i] - found[i])):
        more = min(widths[i] - found[i], room // (len(found) - left))
        found[i] += more
        room -= more
    return found


def _wrapped(line: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Return the lines into which a line wraps with these widths of cells."""
    from rich.console import Console  # noqa: PLC0415 - only needed for text that does not fit
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    cells = [
        [part.plain for part in Text(cell).wrap(console, max(1, width), overflow="fold")]
        for cell, width in zip(line, widths, strict=True)
    ]
    return [list(parts) for parts in zip_longest(*cells, fillvalue="")]


def _paragraphs(lines: Sequence[Sequence[str]], columns: int) -> str:
    """Return each line but the first as a paragraph: its first cell, then headings with cells."""
    headings, *rows = lines
    shown = []
    for first, *cells in rows:
        pairs = zip(headings[1:], cells, strict=True)
        text = ", ".join(f"{heading} {cell}".strip() for heading, cell in pairs if cell)
        indent = " " * (len(first) - len(first.lstrip()) + _GAP)
        shown += [
            first,
            *textwrap.wrap(
                text,
                columns,
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            ),
        ]
    return "".join(f"{line}\n" for line in shown)


def value_text(value: object) -> str:
    """Return a value, or a dash if there is none."""
    return "-" if value is None else str(value)


def figure_text(figure: float, unit: str) -> str:
    """Return a figure: bytes/s in MiB/s and the like, operations/s as numbers, shares in %."""
    if unit == "bytes_per_second":
        return f"{size_text(figure)}/s"
    if unit == P99_UNIT:
        return f"p99 {seconds_text(1 / figure)}"
    return f"{figure:.1%}" if unit == "share" else f"{figure:.0f} /s"


def latency_text(p50_seconds: float, p99_seconds: float) -> str:
    """Return the 50th and 99th percentile as text."""
    return f"p50 {seconds_text(p50_seconds)}, p99 {seconds_text(p99_seconds)}"


def seconds_text(seconds: float) -> str:
    """Return a time in s, ms or us."""
    for scale, name in ((1, "s"), (1e3, "ms")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {name}"
    return f"{seconds * 1e6:.3g} us"


def size_text(size: float) -> str:
    """Return a number of bytes in GiB, MiB or KiB."""
    scale, name = next(((s, n) for s, n in _SCALES if size >= s), (1, "B"))
    return f"{size / scale:.3g} {name}" if size < 1000 * scale else f"{size / scale:.0f} {name}"


def ratio_text(ratio: float, ci95: Sequence[float]) -> str:
    """Return a ratio with its 95 % interval."""
    low, high = ci95
    return f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
