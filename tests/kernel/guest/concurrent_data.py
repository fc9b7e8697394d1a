# SPDX-License-Identifier: GPL-2.0-or-later
"""Many writers of one file at once, and what it must contain afterwards."""

import errno
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.kernel.guest.rig import PAGE, SOURCE, count
from tests.native.mirror import Mirror

WRITERS = 8
ROUNDS = 12


@dataclass(frozen=True)
class _Write:
    """Bytes that reached the file, and when, in the order of all begins and ends."""

    start: int
    data: bytes = field(repr=False)
    began: int
    ended: int

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclass
class Written:
    """What was written to a file, and which sizes it may have meanwhile."""

    path: Path
    writes: list[_Write] = field(default_factory=list)
    #: Highest end of the writes that succeeded, and of those at an offset that have begun.
    reached: int = 0
    placed: int = 0
    #: Bytes of the appends that began.
    appended: int = 0
    failed: int = 0
    short: int = 0
    looks: int = 0
    _moment: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, size: int, at: int | None) -> int:
        """Note that a write, or an append if ``at`` is None, begins; return when."""
        with self._lock:
            if at is None:
                self.appended += size
            else:
                self.placed = max(self.placed, at + size)
            self._moment += 1
            return self._moment

    def end(self, began: int, start: int, data: bytes, done: int) -> None:
        """Note that the first ``done`` bytes of ``data`` were written from ``start`` on."""
        with self._lock:
            self._moment += 1
            self.short += done < len(data)
            self.writes.append(_Write(start, data[:done], began, self._moment))
            self.reached = max(self.reached, start + done)

    def fail(self) -> None:
        """Note that a write failed; it has written nothing."""
        with self._lock:
            self.failed += 1

    def look(self, seen: int) -> int:
        """Return the size, which must not be below ``seen``."""
        with self._lock:
            least = max(seen, self.reached)
        size = self.path.stat().st_size
        with self._lock:
            self.looks += 1
            assert least <= size <= self.placed + self.appended
        return size

    def verify(self, mirror: Mirror, at_once: range) -> None:
        """The file has exactly what was written, by at most ``at_once`` writes at a time."""
        data = (SOURCE / self.path.name).read_bytes()
        assert len(data) == self.path.stat().st_size == self.reached
        assert self.path.read_bytes() == data
        edges = {edge for write in self.writes for edge in (write.start, write.end)}
        for low, high in pairwise(sorted(edges | {0})):
            over = [one for one in self.writes if one.start < high and low < one.end]
            last = [one for one in over if not any(one.ended < other.began for other in over)]
            may = [one.data[low - one.start : high - one.start] for one in last]
            # If several were in flight at once, their requests may have arrived in any order.
            right = zip(data[low:high], *(may or [bytes(high - low)]), strict=True)
            assert all(byte in bytes_ for byte, *bytes_ in right), (low, high, last)
        assert self.looks >= 5
        faults = "fail_every" in str(mirror.process.args)
        assert (self.failed > 0, self.short > 0) == (faults, faults)
        assert len(self.writes) + self.failed == WRITERS * ROUNDS + 1
        most = count(mirror, "WRITE", "most_in_flight")
        assert most in at_once, most


def written_at_once(mirror: Mirror, flags: int = 0) -> Written:
    """Let writers append to, extend and overwrite one file, each with its own descriptors."""
    path = mirror.mountpoint / "written"
    first = random.Random(0).randbytes(WRITERS * PAGE + 13)
    (SOURCE / path.name).write_bytes(first)
    written = Written(path)
    written.end(written.begin(len(first), 0), 0, first, len(first))
    start, stop = threading.Barrier(WRITERS), threading.Event()
    mirror.reset_counters()
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        watched = pool.submit(_watch, written, stop)
        try:
            list(pool.map(lambda number: _work(written, number, flags, start), range(WRITERS)))
        finally:
            stop.set()
        watched.result()
    return written


def _watch(written: Written, stop: threading.Event) -> None:
    seen = 0
    while not stop.is_set():
        seen = written.look(seen)


def _work(written: Written, number: int, flags: int, start: threading.Barrier) -> None:
    choose = random.Random(number)
    fds = [os.open(written.path, os.O_WRONLY | flags | extra) for extra in (0, os.O_APPEND)]
    start.wait()
    for _ in range(ROUNDS):
        data = choose.randbytes(choose.randrange(1, 3 * PAGE))
        kind = choose.randrange(3)
        at: int | None = None
        if kind == 0:  # its own page
            at, data = number * PAGE, data[:PAGE]
        elif kind == 1:
            at = written.reached + choose.randrange(5 * PAGE)
        began = written.begin(len(data), at)
        try:
            done = os.write(fds[1], data) if at is None else os.pwrite(fds[0], data, at)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            written.fail()
            continue
        if at is None:
            at = os.lseek(fds[1], 0, os.SEEK_CUR) - done
        written.end(began, at, data, done)
    for fd in fds:
        os.close(fd)
