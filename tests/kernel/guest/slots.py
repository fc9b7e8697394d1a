# SPDX-License-Identifier: GPL-2.0-or-later
"""Writers of slots of one file, each in its own process, and what the file may then contain.

A slot is a part of a page. Only its owner writes it, each time another version. So the file shows
for each slot which write it is from, and whether it is whole.
"""

import mmap
import os
import random
import signal
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.guest import raw
from tests.kernel.guest.rig import PAGE, SLOWNESS

SLOT = 512
SLOTS = 32 * PAGE // SLOT
_WORD = struct.Struct("=QQ")
#: Nanoseconds of a clock that all processes share.
now = time.monotonic_ns
#: Where writers note what they did, outside the tested mount.
_NOTES = Path("/tmp/slots")  # noqa: S108


def record(slot: int, version: int) -> bytes:
    """Return the bytes of a version of a slot."""
    return _WORD.pack(slot + 1, version) * (SLOT // _WORD.size)


def version_of(data: bytes, slot: int) -> int:
    """Return the version of a slot of the file, which must be whole; 0 if it has none."""
    piece = data[slot * SLOT : (slot + 1) * SLOT]
    if not piece.strip(b"\0"):
        return 0
    version: int = _WORD.unpack_from(piece)[1]
    assert piece == record(slot, version), (slot, version, piece)
    return version


@dataclass(frozen=True)
class Note:
    """A process wrote a slot, or (version 0) truncated the file before it, at this time."""

    began: int
    ended: int
    slot: int
    version: int


class Notes:
    """The notes of one process, which outlive it."""

    def __init__(self, name: str) -> None:
        _NOTES.mkdir(exist_ok=True)
        self._path = _NOTES / name
        self._path.write_text("")
        self._file = self._path.open("a", buffering=1)

    def take(self, slot: int, version: int, began: int) -> None:
        """Note what has just been done."""
        self._file.write(f"{began} {now()} {slot} {version}\n")

    def read(self) -> list[Note]:
        """Return all notes so far, in order."""
        whole = self._path.read_text().rpartition("\n")[0]
        return [Note(*map(int, line.split())) for line in whole.splitlines()]


@contextmanager
def processes(
    actions: Sequence[Callable[[], object]], statuses: Collection[int] = (0,)
) -> Iterator[None]:
    """Run each action in a process; all must end with one of these statuses after the block."""
    pids = [raw.start(action) for action in actions]
    yield
    got = {pid: raw.ended(pid, 60 * SLOWNESS) for pid in pids}
    for pid in (pid for pid, status in got.items() if status is None):
        os.kill(pid, signal.SIGKILL)  # it ends with the mount
    assert set(got.values()) <= {*statuses}, got


def put(fd: int, slot: int, version: int) -> None:
    """Write a slot. Raises OSError."""
    assert os.pwrite(fd, record(slot, version), slot * SLOT) == SLOT


def by_calls(path: Path, flags: int, slots: Sequence[int], rounds: int) -> Callable[[], None]:
    """Return an action that writes all slots this many times by pwrite(2), then fsyncs."""

    def act() -> None:
        choose = random.Random(slots[0])
        fd = os.open(path, flags)
        for version in range(1, rounds + 1):
            for slot in choose.sample(slots, len(slots)):
                put(fd, slot, version)
        os.fsync(fd)
        os.close(fd)

    return act


def by_map(path: Path, slots: Sequence[int], rounds: int) -> Callable[[], None]:
    """Return an action that writes all slots this many times by mmap, then msyncs."""

    def act() -> None:
        choose = random.Random(slots[0])
        fd = os.open(path, os.O_RDWR)
        with mmap.mmap(fd, SLOTS * SLOT) as file:
            os.close(fd)
            for version in range(1, rounds + 1):
                for slot in choose.sample(slots, len(slots)):
                    file[slot * SLOT : (slot + 1) * SLOT] = record(slot, version)
            file.flush()

    return act


def until(
    done: Callable[[], bool], path: Path, flags: int, slots: Sequence[int], notes: Notes
) -> Callable[[], None]:
    """Return an action that writes random slots, and continues for a while after ``done``."""

    def act() -> None:
        choose = random.Random(slots[0])
        fd = os.open(path, flags)
        version, left = 0, 8
        while left:
            left -= done()
            slot, version = choose.choice(slots), version + 1
            began = now()
            put(fd, slot, version)
            notes.take(slot, version, began)
        os.close(fd)

    return act


def cut(path: Path, times: int, notes: Notes) -> None:
    """Truncate this many times to any size, in all possible ways."""
    choose = random.Random(1)
    fd = os.open(path, os.O_RDWR)
    for number in range(times):
        slot = choose.randrange(SLOTS) if number % 5 else 0
        began = now()
        if not slot:
            os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
        elif number % 2:
            os.ftruncate(fd, slot * SLOT)
        else:
            os.truncate(path, slot * SLOT)
        notes.take(slot, 0, began)
        time.sleep(0.01)
    os.close(fd)


def expect_after_cuts(data: bytes, writes: Sequence[Note], cuts: Sequence[Note]) -> int:
    """Each slot must have its owner's last write, unless a truncate came after it or meanwhile.

    Returns the number of slots that must have that write.
    """
    last = {write.slot: write for write in writes}
    kept = 0
    for slot in range(SLOTS):
        write = last.get(slot, Note(0, 0, slot, 0))
        may = [one for one in cuts if one.slot <= slot and one.ended > write.began]
        if any(one.began > write.ended for one in may):
            expected = {0}
        else:
            expected = {0, write.version} if may else {write.version}
        kept += expected == {write.version} and write.version > 0
        assert version_of(data, slot) in expected, (slot, version_of(data, slot), write, may)
    return kept
