# SPDX-License-Identifier: GPL-2.0-or-later
"""Which files of a mount are read: the named ones, or those found by a short walk.

Large files are opened here, and ranges of them are read. Small ones are only found: the benchmark
opens them itself.

Everything is opened beneath the mount's root, without following symbolic links or entering other
mounts. No file is opened for reading here, so FIFOs and devices are harmless.
"""

import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fusetune import syscalls
from fusetune.bench.ranges import MIB, SHORTEST
from fusetune.errors import FusetuneError, reason
from fusetune.text import printable

#: Seconds of a walk. A server that does not reply makes it longer.
WALK_SECONDS = 2.0
#: Files that one run reads: each is a descriptor, and a mount in fio's namespace.
MOST_FILES = 64
_LARGE = 16 * MIB  # files of this size come before smaller ones
#: Bytes that are read of a file after it was opened.
OPENED_BYTES = 4096
#: The number of small files of one workload.
FEWEST_SMALL, MOST_SMALL = 10, 500
_MOST_ENTRIES = 100_000  # to examine: a directory of a hostile server may be endless
_MOST_CHARACTERS = 8 << 20  # of all paths: those of a hostile server may have 4096 bytes each
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_XDEV


@dataclass(frozen=True)
class Wanted:
    """What a run reads.

    ``paths``: files and directories relative to the mount's root; none: the whole mount.
    ``ranges``: whether it reads ranges of large files; ``opens``: whether it opens many files;
    ``opened``: the paths of these files if they are known.
    """

    paths: Sequence[str] = ()
    ranges: bool = True
    opens: bool = False
    opened: Sequence[str] = ()


@dataclass(frozen=True)
class Found:
    """A file: ``path`` relative to the mount's root; ``size`` in bytes, ``fd``: opened O_PATH."""

    path: str
    size: int
    modified: float
    named: bool
    fd: int = -1


def open_beneath(top: int, path: str, flags: int = os.O_PATH) -> int:
    """Return a descriptor of ``path`` beneath the directory ``top``. Raises OSError."""
    return syscalls.openat2(top, path or ".", flags | os.O_NOFOLLOW, BENEATH)


def find_files(top: int, wanted: Wanted) -> tuple[list[Found], list[str]]:
    """Return the large files, opened, and the paths of those that the benchmark opens.

    ``top``: descriptor of the mount's root. Of the large files, those of `_LARGE` come first, and
    the newest of them first. Raises FusetuneError if a path cannot be used or no large file is
    found.
    """
    deadline = time.monotonic() + WALK_SECONDS
    searched = wanted.opens and not wanted.opened
    found: dict[str, Found] = {}
    if wanted.ranges or searched:
        for path in wanted.paths or ("",):
            for one in _named(top, path, OPENED_BYTES if searched else SHORTEST, deadline):
                found.setdefault(one.path, one)
    large = _large(top, found.values(), wanted) if wanted.ranges else []
    if not searched:
        return large, list(wanted.opened)
    return large, [one.path for one in found.values() if one.size >= OPENED_BYTES][:MOST_SMALL]


def _large(top: int, found: Iterable[Found], wanted: Wanted) -> list[Found]:
    """Return the files of which ranges are read, with descriptors."""
    order = sorted(found, key=lambda f: (not f.named, f.size < _LARGE, -f.modified))
    opened: list[Found] = []
    for one in order:
        if wanted.opens and one.size < SHORTEST:
            continue
        if len(opened) < MOST_FILES and (file := _opened(top, one)):
            opened.append(file)
    if not opened:
        raise FusetuneError(
            f"found no regular file of at least {SHORTEST // MIB} MiB within "
            f"{WALK_SECONDS:.0f} s; name files with --files"
        )
    return opened


def _named(top: int, path: str, least: int, deadline: float) -> Iterator[Found]:
    try:
        fd = open_beneath(top, path)
        status = os.fstat(fd)
        os.close(fd)
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(top, path, least, deadline)
        elif stat.S_ISREG(status.st_mode):
            yield Found(path, status.st_size, status.st_mtime, named=True)
        else:
            raise FusetuneError(f"{printable(path)} is neither a regular file nor a directory")
    except OSError as error:
        if path:
            raise FusetuneError(f"{printable(path)}: {reason(error)}") from error
        raise


def _walk(top: int, start: str, least: int, deadline: float) -> Iterator[Found]:
    """Yield regular files of at least ``least`` bytes at and below a directory.

    Raises OSError if the directory itself cannot be read; skips others.
    """
    queue, entries, characters = deque([start]), 0, 0
    while queue:
        directory = queue.popleft()
        try:
            for entry in _entries(top, directory):
                path = os.path.join(directory, entry.name)
                entries, characters = entries + 1, characters + len(path)
                if entries > _MOST_ENTRIES or characters > _MOST_CHARACTERS:
                    return
                if time.monotonic() > deadline:
                    return
                with suppress(OSError):  # it was removed or cannot be examined
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_size >= least:
                            yield Found(path, status.st_size, status.st_mtime, named=False)
        except OSError:
            if directory == start:
                raise


def _entries(top: int, directory: str) -> Iterator[os.DirEntry[str]]:
    fd = open_beneath(top, directory, _DIRECTORY)
    try:
        with os.scandir(fd) as entries:
            yield from entries
    finally:
        os.close(fd)


def _opened(top: int, one: Found) -> Found | None:
    """Return the file with a descriptor; None if it was found by a walk and has disappeared."""
    try:
        fd = open_beneath(top, one.path)
    except OSError as error:
        if one.named:
            raise FusetuneError(f"{printable(one.path)}: {reason(error)}") from error
        return None
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_size >= SHORTEST:
        return replace(one, size=status.st_size, fd=fd)
    os.close(fd)
    if one.named:
        raise FusetuneError(
            f"{printable(one.path)} has {status.st_size} bytes, but a sample reads "
            f"{SHORTEST // MIB} MiB; name larger files"
        )
    return None
