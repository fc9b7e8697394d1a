# SPDX-License-Identifier: GPL-2.0-or-later
"""Writing to standard output without blocking the exit if the reader has stopped reading."""

import os
import select
from typing import IO, Protocol

import click

from fusetune.report.documents.top import Top
from fusetune.report.top_rows import source_lines
from fusetune.signals import Signals

#: Bytes that a writable pipe accepts without blocking (pipe(7), PIPE_BUF).
_PART = 4096


class View(Protocol):
    """Shows the frames."""

    def __enter__(self) -> "View": ...
    def __exit__(self, *exception: object) -> None: ...
    def show(self, frame: Top) -> None:
        """Show what is new."""
        ...

    def resized(self) -> None:
        """Redraw after a change of the terminal's size."""
        ...

    def streams(self) -> list[IO[bytes] | int]:
        """Return the sources of keys, for select(2)."""
        ...

    def key(self) -> bool:
        """Read typed keys; return whether they end the view."""
        ...


class Output:
    """Standard output; a write is abandoned when a signal arrives."""

    def __init__(self, signals: Signals, descriptor: int = 1) -> None:
        self._signals, self._descriptor = signals, descriptor

    def write(self, text: str) -> None:
        """Write ``text``. Raises OSError, BrokenPipeError if nobody reads any more."""
        rest = text.encode(errors="backslashreplace")
        while rest:
            ready = select.select([self._signals], [self._descriptor], [])
            if ready[0]:
                return
            rest = rest[os.write(self._descriptor, rest[:_PART]) :]

    def finish(self, text: str) -> None:
        """Write a few last bytes, if that does not block."""
        if select.select([], [self._descriptor], [], 0)[1]:
            os.write(self._descriptor, text.encode())


class Lines:
    """Frames as plain text, or each as one line of JSON."""

    def __init__(self, output: Output, *, operations: bool, as_json: bool) -> None:
        """``operations``: whether the text has a line for each operation."""
        self._output, self._operations, self._as_json = output, operations, as_json
        self._told: list[str] = []

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def show(self, frame: Top) -> None:
        """Write the frame; reasons why requests are not counted are only written when new."""
        if self._as_json:
            self._output.write(frame.as_line())
            return
        told, self._told = self._told, list(source_lines(frame.mounts))
        new = [f"{line}\n" for line in self._told if line not in told]
        self._output.write("".join(new) + click.unstyle(frame.plain(operations=self._operations)))

    def resized(self) -> None:
        """Do nothing: lines have no size."""

    def streams(self) -> list[IO[bytes] | int]:
        """Return nothing: no keys are read."""
        return []

    def key(self) -> bool:
        """Never called."""
        return False
