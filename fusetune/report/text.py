# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables, figures and values as people read them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from fusetune.bench.figures import P99_UNIT
from fusetune.text import printable

_SCALES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True)
class Table:
    """Rows under headings.

    ``right``: columns whose heading is among its words are aligned to the right.
    """

    headings: Sequence[str]
    rows: Iterable[Sequence[str]]
    right: str = ""

    def text(self) -> str:
        """Return the table; no control character of a cell reaches the terminal."""
        from rich.cells import cell_len  # noqa: PLC0415 - JSON needs no rich

        lines = [[printable(cell) for cell in line] for line in (self.headings, *self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        numeric = [heading in self.right.split() for heading in self.headings]
        shown = []
        for line in lines:
            cells = []
            for cell, width, to_right in zip(line, widths, numeric, strict=True):
                space = " " * (width - cell_len(cell))
                cells.append(space + cell if to_right else cell + space)
            shown.append("  ".join(cells).rstrip())
        shown[0] = click.style(shown[0], bold=True)
        return "".join(f"{line}\n" for line in shown)


def value_text(value: object) -> str:
    """Return a value, or a dash where there is none."""
    return "-" if value is None else str(value)


def figure_text(figure: float, unit: str) -> str:
    """Return a figure: bytes/s in MiB/s and the like, operations/s as they are, shares in %."""
    if unit == "bytes_per_second":
        return f"{size_text(figure)}/s"
    if unit == P99_UNIT:
        return f"p99 {seconds_text(1 / figure)}"
    return f"{figure:.1%}" if unit == "share" else f"{figure:.0f} /s"


def latency_text(p50_seconds: float, p99_seconds: float) -> str:
    """Return how long half of the operations and 99 in 100 took."""
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
