# SPDX-License-Identifier: GPL-2.0-or-later
"""The live screen of ``top``, drawn by rich on the terminal's alternate screen."""

import io
import os
import termios
import textwrap
import time
import tty
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.control import Control
from rich.style import Style
from rich.text import Text

from fusetune.report.documents.top import Top
from fusetune.report.top_rows import (
    HEADINGS,
    ORDERS,
    Row,
    limit_line,
    lost_lines,
    source_lines,
    table_rows,
)
from fusetune.text import printable
from fusetune.top.output import Output

_KEYS = "q quit  s sort: {order}  o operations"
#: Widths of the cells after the mount's, and the minimum width of the mount's.
_WIDTHS = (3, 4, 4, 4, 5, 5, 5, 4, 4, 5, 5)
_LEAST = 12
#: The size of a terminal that does not tell its own.
_COLUMNS, _ROWS = 80, 24
#: Shares of the time at the background limit, of the dirty limit, and of unread data, above which
#: cells are coloured.
_HIGH = 0.5
_BACKGROUND, _DIRTY, _WASTE = (HEADINGS.index(name) for name in ("bg", "dirty", "waste"))
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
#: Rich has nothing for "erase the rest of the line" and "of the page" (ECMA-48, EL and ED).
_REST_OF_LINE, _REST_OF_PAGE = "\x1b[K", "\x1b[J"
_CONTROL_D = b"\x04"


class Screen:
    """Frames on a terminal; while entered, keys are read one by one and not shown."""

    def __init__(
        self, output: Output, interval: float, *, operations: bool, descriptor: int = 0
    ) -> None:
        """``interval``: seconds between frames; ``operations``: whether to start with them.

        ``descriptor``: where keys come from, if that is a terminal.
        """
        self._output, self._interval = output, interval
        self._keyboard = descriptor if os.isatty(descriptor) else None
        self._frame: Top | None = None
        self._order, self._operations = next(iter(ORDERS)), operations

    def __enter__(self) -> "Screen":
        if self._keyboard is not None:
            self._before = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
            # Ctrl-Z would leave the terminal in this state.
            now: list[Any] = termios.tcgetattr(self._keyboard)
            now[6][termios.VSUSP] = b"\0"
            termios.tcsetattr(self._keyboard, termios.TCSANOW, now)
        self._output.write(str(Control.alt_screen(enable=True)) + _HIDE)
        self._draw()
        return self

    def __exit__(self, *exception: object) -> None:
        self._output.finish(_SHOW + str(Control.alt_screen(enable=False)))
        if self._keyboard is not None:
            termios.tcsetattr(self._keyboard, termios.TCSANOW, self._before)

    def show(self, frame: Top) -> None:
        """Draw a new frame."""
        self._frame = frame
        self._draw()

    def resized(self) -> None:
        """Draw the last frame for the terminal's new size."""
        self._draw()

    def streams(self) -> list[IO[bytes] | int]:
        """Return the keyboard."""
        return [] if self._keyboard is None else [self._keyboard]

    def key(self) -> bool:
        """Read typed keys; return whether they end the view."""
        typed = os.read(self._keyboard, 64) if self._keyboard is not None else b""
        if not typed:  # the terminal is gone
            return True
        for byte in typed.lower():
            if byte in (*b"q", *_CONTROL_D):
                return True
            if byte in b"s":
                orders = [*ORDERS]
                self._order = orders[(orders.index(self._order) + 1) % len(orders)]
            elif byte in b"o":
                self._operations = not self._operations
        self._draw()
        return False

    def _draw(self) -> None:
        size = os.get_terminal_size(1)
        # Serial consoles, and the first moments of a container's terminal, have the size 0.
        width, height = size.columns or _COLUMNS, size.lines or _ROWS
        text = rendered(self._frame, width, height, self._interval, self._order, self._operations)
        self._output.write(text)


def rendered(
    frame: Top | None,
    width: int,
    height: int,
    interval: float,
    order: str = "tree",
    operations: bool = False,
) -> str:
    """Return a frame's text for a terminal of this size, with colours by the environment.

    ``interval``: seconds between frames; ``order``: one of `ORDERS`. The frame is None before the
    first interval is over.
    """
    console = Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, highlight=False
    )
    lines = list(_lines(frame, width, height, interval, order, operations))[:height]
    with console.capture() as capture:
        for number, line in enumerate(lines):
            line.truncate(width)
            last = number == len(lines) - 1
            console.print(line, end="" if last else "\n", soft_wrap=True)
    drawn = capture.get().replace("\n", _REST_OF_LINE + "\r\n")
    return str(Control.home()) + drawn + _REST_OF_LINE + _REST_OF_PAGE


def _lines(
    frame: Top | None, width: int, height: int, interval: float, order: str, operations: bool
) -> Iterator[Text]:
    title = f"fusetune top, every {interval:g} s"
    keys = _KEYS.format(order=order)
    if frame is None:
        yield Text(title, style="bold")
        yield Text("waiting for the end of the first interval")
        yield Text(keys, style="dim")
        return
    count = f"{len(frame.mounts)} mount{'s' * (len(frame.mounts) != 1)}"
    clock = time.strftime("%H:%M:%S", time.localtime(frame.time))
    yield Text(f"{title}: {clock}, {count}", style="bold")
    yield Text(keys, style="dim")
    told = (*lost_lines(frame.mounts), *source_lines(frame.mounts))
    wrapped = (part for line in told for part in textwrap.wrap(line, width))
    notes = [Text(line, style="dim") for line in islice(wrapped, height // 4)]
    yield from _table(frame, width, height - 2 - len(notes), order, operations)
    yield from notes


def _table(frame: Top, width: int, height: int, order: str, operations: bool) -> Iterator[Text]:
    """Yield the headings and as many rows as fit, each mount's limit below it."""
    body: list[Text] = []
    rows = list(table_rows(frame.mounts, operations=operations, order=order))
    longest = max((cell_len(row.text_cells[0]) for row in rows), default=0)
    first = max(_LEAST, min(longest, width - sum(_WIDTHS) - len(_WIDTHS)))
    yield _line(HEADINGS, "", first, Style(reverse=True))
    for number, row in enumerate(rows):
        if len(body) >= height - 1:
            body[height - 2 :] = [Text(f"... {len(rows) - number + 1} more lines")]
            break
        body.append(_row(row, first))
        ends = number + 1 == len(rows) or not rows[number + 1].operation
        if ends and row.mount.limit:
            body.append(Text(f"  {printable(limit_line(row.mount))}", style="yellow"))
    yield from body[: max(0, height - 1)]


def _row(row: Row, first: int) -> Text:
    mount = row.mount
    line = _line(row.cells, row.mark, first, Style.null())
    if row.operation:
        line.stylize("dim", 0, len(line))
        return line
    if mount.stuck:
        line.stylize("bold red", 0, len(line))
        return line
    for column, share in (
        (_BACKGROUND, mount.background_limit_share),
        (_DIRTY, _share(mount.dirty_bytes, mount.dirty_limit_bytes)),
        (_WASTE, mount.readahead_unused_share),
    ):
        if share is not None and share >= _HIGH:
            begin = len(line) - sum(width + 1 for width in _WIDTHS[column - 1 :])
            line.stylize("yellow", begin, begin + 1 + _WIDTHS[column - 1])
    return line


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def _line(cells: Sequence[str], mark: str, first: int, style: Style) -> Text:
    """Return cells side by side; the first is truncated at its start if too long after the mark."""
    name, by, *numbers = cells
    text = mark + _fitted(name, first - cell_len(mark)) + " " + by.ljust(_WIDTHS[0])
    for cell, width in zip(numbers, _WIDTHS[1:], strict=True):
        text += " " + cell[:width].rjust(width)
    return Text(text, style=style)


def _fitted(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    while name and cell_len(name) > width - 1:
        name = name[1:]
    return set_cell_size(f"…{name}", max(0, width))
