# SPDX-License-Identifier: GPL-2.0-or-later
"""The loop of ``top``: waits for the next interval, a key or a signal, whichever comes first.

Nothing here touches a path in a mount, so a hung server delays nothing.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import closing

from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.signals import ENDING, Signals
from fusetune.top.output import Lines, Output, View
from fusetune.top.watching import Watching

#: Minimum seconds between frames.
LEAST_INTERVAL = 0.1


def run(
    host: Host,
    named: Mount | None,
    interval: float,
    count: int | None,
    *,
    trace: bool = False,
    as_json: bool = False,
) -> bool:
    """Show the mounts every ``interval`` seconds, ``count`` times or until a key or signal.

    ``named``: the mount to show with its layers, None for all. ``trace``: let bpftrace observe all.
    Return whether it ended because the named mount is gone. Raises FusetuneError.
    """
    with (
        Signals(signal.SIGWINCH) as signals,
        closing(Watching(host, named, interval, trace=trace)) as watching,
        _view(Output(signals), interval, operations=named is not None, as_json=as_json) as view,
    ):
        return _Loop(signals, watching, view).run(interval, count)


def _view(output: Output, interval: float, *, operations: bool, as_json: bool) -> View:
    if as_json or not os.isatty(1) or os.environ.get("TERM", "dumb") == "dumb":
        return Lines(output, operations=operations, as_json=as_json)
    from fusetune.top.screen import Screen  # noqa: PLC0415 - lines need no rich

    return Screen(output, interval, operations=operations)


class _Loop:
    def __init__(self, signals: Signals, watching: Watching, view: View) -> None:
        self._signals, self._watching, self._view = signals, watching, view

    def run(self, interval: float, count: int | None) -> bool:
        """Return whether the named mount is gone."""
        if self._wait(lambda: self._watching.attaching, None):
            return False
        self._watching.begin()
        due = time.monotonic()
        while count is None or count > 0:
            # After a pause, such as a suspend of the machine, missed intervals are skipped.
            due = max(due + interval, time.monotonic())
            if self._wait(lambda end=due: time.monotonic() < end, due):  # type: ignore[misc]
                return False
            frame = self._watching.frame()
            if self._watching.gone:
                return True
            self._view.show(frame)
            count = count - 1 if count is not None else None
        return False

    def _wait(self, until: Callable[[], bool], due: float | None) -> bool:
        """Wait as long as ``until`` holds; return whether a key or a signal ended it."""
        look = time.monotonic()
        while until():
            now = time.monotonic()
            if now >= look:
                self._watching.look()
                look = now + self._watching.look_every
            if self._ended(max(0.0, min(look, due or look) - now)):
                return True
        return False

    def _ended(self, seconds: float) -> bool:
        """Handle input for up to ``seconds``; return whether it ends the loop."""
        readers = self._watching.streams()
        keys = self._view.streams()
        ready = select.select([self._signals, *keys, *readers], [], [], seconds)[0]
        if self._signals in ready:
            taken = self._signals.take()
            if taken & set(ENDING):
                return True
            self._view.resized()
        for stream, read in readers.items():
            if stream in ready:
                read()
        return any(one in ready for one in keys) and self._view.key()
