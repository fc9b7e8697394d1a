# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a file's blocks lie on its disk, by the ioctl FIEMAP."""

import fcntl
import os
import stat
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

#: Linux, include/uapi/linux/fs.h and fiemap.h.
_FS_IOC_FIEMAP = 0xC020660B
_SYNC = 1
_LAST = 1
#: Nothing is at the place that is told: not allocated yet, or within a block of metadata.
_NOWHERE = 0x2 | 0x4 | 0x200
_HEADER = struct.Struct("=QQLLLL")
_EXTENT = struct.Struct("=QQQQQLLLL")
#: Extents a call.
_ROOM = 512


@dataclass(frozen=True)
class Extent:
    """A run of a file's bytes that lie one behind the other on the disk."""

    start_bytes: int
    physical_bytes: int
    length_bytes: int


def extents(path: Path, *, sync: bool = True) -> Iterator[Extent]:
    """Yield the extents of a file, in order; what is still to be written is written first.

    Not so without ``sync``: what has no place yet is left out then. A run that the file system
    tells in parts is one. Holes, and data that has no place of its own, are left out. Raises
    OSError: EOPNOTSUPP where the file system does not tell (tmpfs).
    """
    last: Extent | None = None
    with path.open("rb") as file:
        for found in _parts(file.fileno(), _SYNC if sync else 0):
            if (
                last
                and last.start_bytes + last.length_bytes == found.start_bytes
                and last.physical_bytes + last.length_bytes == found.physical_bytes
            ):
                length = last.length_bytes + found.length_bytes
                last = Extent(last.start_bytes, last.physical_bytes, length)
                continue
            if last:
                yield last
            last = found
    if last:
        yield last


def _parts(fd: int, flags: int) -> Iterator[Extent]:
    """Yield what the file system tells of an open file."""
    start = 0
    while True:
        head = _HEADER.pack(start, 2**64 - 1 - start, flags, 0, _ROOM, 0)
        answer = bytearray(head + bytes(_EXTENT.size * _ROOM))
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, answer)
        mapped = _HEADER.unpack_from(answer)[3]
        for number in range(mapped):
            entry = _EXTENT.unpack_from(answer, _HEADER.size + number * _EXTENT.size)
            logical, physical, length, state = entry[0], entry[1], entry[2], entry[5]
            start = logical + length
            if not state & _NOWHERE:
                yield Extent(logical, physical, length)
            if state & _LAST:
                return
        if not mapped:
            return


@dataclass(frozen=True)
class Interleaved:
    """A file whose blocks alternate with other files'.

    ``pieces``: its extents; ``torn``: between how many of them blocks of other files lie.
    """

    path: Path
    size_bytes: int
    pieces: int
    torn: int


def interleaved(folder: Path, least_bytes: int = 4 << 20, most: int = 10_000) -> list[Interleaved]:
    """Return the files below ``folder`` whose neighbouring extents have other files' between them.

    So writers leave them that were given blocks in turn. Looks at ``most`` files of at least
    ``least_bytes``, on that file system alone; follows no link. The most torn come first. Raises
    OSError where the folder cannot be read, or its file system does not tell.
    """
    found = {path: list(extents(path)) for path in _large_files(folder, least_bytes, most)}
    places = sorted(
        (each.physical_bytes, each.physical_bytes + each.length_bytes, number)
        for number, parts in enumerate(found.values())
        for each in parts
    )
    starts = [start for start, _, _ in places]
    results = []
    for number, (path, parts) in enumerate(found.items()):
        torn = 0
        for before, after in pairwise(parts):
            low, high = sorted((before.physical_bytes, after.physical_bytes))
            inside = places[bisect_right(starts, low) : bisect_left(starts, high)]
            torn += any(owner != number for _, _, owner in inside)
        if torn:
            results.append(Interleaved(path, path.stat().st_size, len(parts), torn))
    return sorted(results, key=lambda each: -each.torn)


def _large_files(folder: Path, least_bytes: int, most: int) -> Iterator[Path]:
    device = folder.stat().st_dev
    left = most
    waiting = [folder]
    while waiting and left:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                state = entry.stat(follow_symlinks=False)
                if state.st_dev != device:
                    continue
                if stat.S_ISDIR(state.st_mode):
                    waiting.append(Path(entry.path))
                elif stat.S_ISREG(state.st_mode) and state.st_size >= least_bytes and left:
                    left -= 1
                    yield Path(entry.path)
