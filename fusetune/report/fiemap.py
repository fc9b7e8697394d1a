# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a file's blocks are on its disk, from the ioctl FIEMAP."""

import fcntl
import os
import stat
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ELOOP, ENOENT, ENXIO
from itertools import islice, pairwise
from pathlib import Path

#: Linux, include/uapi/linux/fs.h and fiemap.h.
_FS_IOC_FIEMAP = 0xC020660B
_SYNC = 1
_LAST = 1
#: Flags of extents without data blocks: not allocated yet, or within a block of metadata.
_NOWHERE = 0x2 | 0x4 | 0x200
_HEADER = struct.Struct("=QQLLLL")
_EXTENT = struct.Struct("=QQQQQLLLL")
#: Extents for each call.
_ROOM = 512
#: Maximum nesting of directories; each level needs a descriptor.
_DEEPEST = 100


@dataclass(frozen=True)
class Extent:
    """A range of a file that is contiguous on the disk."""

    start_bytes: int
    physical_bytes: int
    length_bytes: int


def extents(path: Path, *, sync: bool = True) -> Iterator[Extent]:
    """Yield the extents of a file, in order.

    With ``sync``, dirty pages are written first; otherwise, data not yet allocated is left out.
    Contiguous extents are joined. Holes, and data without its own blocks, are left out.
    Raises OSError: EOPNOTSUPP if the file system has no FIEMAP (tmpfs).
    """
    with path.open("rb") as file:
        yield from _joined(_parts(file.fileno(), _SYNC if sync else 0))


def _joined(parts: Iterator[Extent]) -> Iterator[Extent]:
    last: Extent | None = None
    for found in parts:
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
    """Yield the extents of an open file as reported by the file system."""
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

    ``pieces``: how many extents it has; ``torn``: how many adjacent pairs of extents have blocks
    of other files between them.
    """

    path: Path
    size_bytes: int
    pieces: int
    torn: int


def interleaved(
    directory: Path,
    least_bytes: int = 4 << 20,
    most: int = 10_000,
    besides: Collection[str] = (),
) -> list[Interleaved]:
    """Return the files below ``directory`` with other files' blocks between their extents.

    Concurrent writers leave this pattern. Examines up to ``most`` files of at least
    ``least_bytes`` on the directory's file system. Follows no links, even if a file is replaced
    by one meanwhile, and does not enter the paths ``besides``. The files with most interruptions
    come first. Raises OSError if the directory cannot be read or its file system has no FIEMAP.
    """
    sizes, found = {}, {}
    for path, fd in _large_files(directory, least_bytes, most, besides):
        sizes[path] = os.fstat(fd).st_size
        found[path] = list(_joined(_parts(fd, _SYNC)))
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
            results.append(Interleaved(path, sizes[path], len(parts), torn))
    return sorted(results, key=lambda each: -each.torn)


def _large_files(
    directory: Path, least_bytes: int, most: int, besides: Collection[str]
) -> Iterator[tuple[Path, int]]:
    """Yield each file with a descriptor that is open until the next file."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        device = os.fstat(fd).st_dev
        yield from islice(_below(fd, directory, (device, least_bytes), besides), most)
    finally:
        os.close(fd)


def _below(
    directory: int,
    here: Path,
    wanted: tuple[int, int],
    besides: Collection[str],
    depth: int = _DEEPEST,
) -> Iterator[tuple[Path, int]]:
    """Like `_large_files`, below an open directory; ``wanted``: device, minimum size."""
    device, least_bytes = wanted
    with os.scandir(directory) as entries:
        for entry in entries:
            path = here / entry.name
            if str(path) in besides:
                continue
            try:
                state = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            is_directory = stat.S_ISDIR(state.st_mode) and depth > 0
            large = stat.S_ISREG(state.st_mode) and state.st_size >= least_bytes
            if state.st_dev == device and (is_directory or large):
                with _opened(directory, entry.name, state) as fd:
                    if fd is not None and is_directory:
                        yield from _below(fd, path, wanted, besides, depth - 1)
                    elif fd is not None:
                        yield path, fd


@contextmanager
def _opened(directory: int, name: str, state: os.stat_result) -> Iterator[int | None]:
    """Open the file with this ``state`` without blocking; None if the name now differs."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno not in (ENOENT, ELOOP, ENXIO):
            raise
        yield None
        return
    try:
        yield fd if os.path.samestat(os.fstat(fd), state) else None
    finally:
        os.close(fd)
