# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs get a promise that their writes have reached the server; check that it holds."""

import errno
import mmap
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.kernel.guest.rig import SOURCE
from tests.kernel.guest.slots import SLOT, SLOTS, Notes, now, put, record, version_of

#: Writes a version of some slots, and returns when the kernel has promised that they are stored.
_Write = Callable[[Sequence[int], int], None]
#: The slot number in notes about what was not promised.
_NONE = -1


def _by_calls(path: Path, flags: int, promise: Callable[[int], object]) -> _Write:
    fd = os.open(path, flags)

    def write(slots: Sequence[int], version: int) -> None:
        for slot in slots:
            put(fd, slot, version)
        promise(fd)

    return write


def _by_close(path: Path) -> _Write:
    def write(slots: Sequence[int], version: int) -> None:
        fd = os.open(path, os.O_WRONLY)
        try:
            for slot in slots:
                put(fd, slot, version)
        finally:
            os.close(fd)

    return write


def _by_map(path: Path) -> _Write:
    fd = os.open(path, os.O_RDWR)
    file = mmap.mmap(fd, SLOTS * SLOT)
    os.close(fd)

    def write(slots: Sequence[int], version: int) -> None:
        for slot in slots:
            file[slot * SLOT : (slot + 1) * SLOT] = record(slot, version)
        file.flush()

    return write


#: What gives the promise, and how a program gets it; each on a file of that name.
_WAYS: dict[str, Callable[[Path], _Write]] = {
    "fsync": partial(_by_calls, flags=os.O_WRONLY, promise=os.fsync),
    "fdatasync": partial(_by_calls, flags=os.O_RDWR, promise=os.fdatasync),
    "O_DSYNC": partial(_by_calls, flags=os.O_WRONLY | os.O_DSYNC, promise=lambda _: None),
    "close": _by_close,
    "msync": _by_map,
}


class Promised:
    """What all programs wrote to a mount of the source, and what was promised to them."""

    def __init__(self, mount: Path) -> None:
        self._mount = mount
        self._notes = {name: Notes(name) for name in _WAYS}
        for name in _WAYS:
            (SOURCE / name).write_bytes(bytes(SLOTS * SLOT))

    def programs(self, batches: int) -> list[Callable[[], None]]:
        """Return the programs; each writes until so many batches are promised, also after EIO."""
        return [partial(self._program, name, batches) for name in _WAYS]

    def _program(self, name: str, batches: int) -> None:
        choose, notes = random.Random(name), self._notes[name]
        write = _WAYS[name](self._mount / name)
        version = promised = 0
        while promised < batches:
            version += 1
            slots, began = choose.sample(range(SLOTS), choose.randrange(1, 12)), now()
            try:
                write(slots, version)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                slots = [_NONE]
            else:
                promised += 1
            for slot in slots:
                notes.take(slot, version, began)

    def batches(self) -> int:
        """Return the number of batches promised so far to the slowest program."""
        return min(
            len({note.version for note in notes.read() if note.slot != _NONE})
            for notes in self._notes.values()
        )

    def unpromised(self) -> int:
        """Return how many batches failed."""
        return sum(note.slot == _NONE for notes in self._notes.values() for note in notes.read())

    def expect_kept(self) -> None:
        """The source must have what was promised, or what later overwrote it."""
        for name, notes in self._notes.items():
            data = (SOURCE / name).read_bytes()
            promised = {note.slot: note.version for note in notes.read() if note.slot != _NONE}
            for slot, version in promised.items():
                assert version_of(data, slot) >= version, (name, slot, version)
