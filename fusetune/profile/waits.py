# SPDX-License-Identifier: GPL-2.0-or-later
"""How long programs wait in reads, writes and page faults on a mount, ten times a second.

The module fusetuned counts the bytes and the time of requests, but no request shows whether a
program waits for it: unused readahead raises both. So its mounts are also observed with bpftrace.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.control import still_mounted
from fusetune.mounts.mount import Mount
from fusetune.profile.abilities import traces_faults
from fusetune.profile.bpftrace import Bpftrace, bpftrace_path, device_of
from fusetune.profile.program import bucket_middle
from fusetune.profile.waits_program import KIND_BITS, MARK, TICK, Kind, waits_program
from fusetune.text import printable
from fusetune.untrusted import parse

#: Seconds without a mark after which bpftrace is considered hung.
_PATIENCE = 30.0


@dataclass
class Waited:
    """Completed calls: their total seconds, their bytes, and how many failed.

    ``latency``: number of calls by nanoseconds.
    """

    seconds: float = 0.0
    calls: int = 0
    nbytes: int = 0
    failed: int = 0
    latency: Counter[float] = field(default_factory=Counter)

    def add(self, other: "Waited") -> None:
        """Add calls of another interval."""
        self.seconds += other.seconds
        self.calls += other.calls
        self.nbytes += other.nbytes
        self.failed += other.failed
        self.latency.update(other.latency)


#: A kind of call, and the second since which its file is known to be open, 0.0 if unknown.
Of = tuple[Kind, float]


@dataclass(frozen=True)
class Mark:
    """Calls completed since the previous mark, and waiting calls with the second they started.

    ``at``: seconds of the monotonic clock, like all times here.
    """

    at: float
    ended: Mapping[Of, Waited]
    waiting: Sequence[tuple[Of, float]]


class Marks:
    """What bpftrace prints, line by line, as marks."""

    def __init__(self) -> None:
        self.taken: list[Mark] = []
        self._maps: dict[str, dict[str, int]] = {}

    def take(self, line: bytes) -> None:
        """Take one line. Raises FusetuneError if it is not what bpftrace prints."""
        if not line.strip():
            return
        try:
            one = parse(line)
            kind, content = one["type"], one["data"]
            if kind == "map":
                ((name, entries),) = content.items()
                if isinstance(entries, dict):  # the one without keys is empty
                    self._maps[name] = {key: int(number) for key, number in entries.items()}
            elif kind == "printf":
                word, number = content.split()
                if word != MARK:
                    raise ValueError(word)
                self.taken.append(self._mark(int(number) / 1e9))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FusetuneError(f"bpftrace printed unexpected output: {line[:80]!r}") from error

    def _mark(self, at: float) -> Mark:
        ended: dict[Of, Waited] = {}
        for name in ("@waited", "@calls", "@bytes", "@failed"):
            for key, number in self._entries(name):
                one = ended.setdefault(_of(int(key)), Waited())
                one.seconds += number / 1e9 if name == "@waited" else 0.0
                one.calls += number if name == "@calls" else 0
                one.nbytes += number if name == "@bytes" else 0
                one.failed += number if name == "@failed" else 0
        for key, number in self._entries("@latency"):
            what, bucket = key.split(",")
            nanoseconds = 1000 * bucket_middle(int(bucket))
            ended.setdefault(_of(int(what)), Waited()).latency[nanoseconds] += number
        keys = self._maps.get("@waiting_for", {})
        waiting = [
            (_of(keys[slot]), since / 1e9)
            for slot, since in self._entries("@waiting")
            if slot in keys
        ]
        waiting += [((Kind.FAULT, 0.0), since / 1e9) for _, since in self._entries("@sleeping")]
        self._maps = {}
        return Mark(at, ended, waiting)

    def _entries(self, name: str) -> Iterator[tuple[str, int]]:
        return ((key, number) for key, number in self._maps.get(name, {}).items() if number)


def _of(what: int) -> Of:
    """Return the meaning of a key of the program. Raises ValueError for an unknown kind."""
    return Kind(what & ((1 << KIND_BITS) - 1)), (what >> KIND_BITS) * TICK / 1e9


class Waits:
    """While entered, observes a mount; raises FusetuneError with the remedy if it cannot.

    ``check``: raises if the run was interrupted before the first mark.
    """

    def __init__(self, host: Host, mount: Mount, check: Callable[[], None] = lambda: None) -> None:
        path = bpftrace_path()
        text = waits_program(device_of(mount), faults=traces_faults(host))
        self._host, self._mount, self._marks = host, mount, Marks()
        self._command, self._check = (path, text), check

    def __enter__(self) -> Self:
        self._running = Bpftrace(*self._command, self._marks.take)
        with_exit = self._running.__enter__()
        try:
            with_exit.until_ready(self._has_mark)
        except FusetuneError:
            self._running.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._running.__exit__()

    def _has_mark(self) -> bool:
        self._check()
        return bool(self._marks.taken)

    def now(self) -> float:
        """Return the current second of the marks' clock."""
        return time.monotonic()

    def next(self) -> Mark:
        """Return the next mark. Raises FusetuneError if bpftrace ends or the mount is gone."""
        end = time.monotonic() + _PATIENCE
        while not self._marks.taken:
            self._running.wait(end - time.monotonic())
            if time.monotonic() > end:
                raise FusetuneError(f"bpftrace printed nothing for {_PATIENCE:.0f} s")
        if not still_mounted(self._host, self._mount):
            raise FusetuneError(f"{printable(self._mount.path)} was unmounted meanwhile")
        return self._marks.taken.pop(0)
