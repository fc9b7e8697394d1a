# SPDX-License-Identifier: GPL-2.0-or-later
"""mount(2) with arguments of any kind, and the resulting mounts."""

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.native.mirror import MOUNTINFO

LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
#: MS_RDONLY, NOSUID, NODEV, NOEXEC, SYNCHRONOUS, DIRSYNC, NOATIME, NODIRATIME, then STRICTATIME
#: and LAZYTIME.
FLAGS = (1, 2, 4, 8, 16, 128, 1024, 2048, 1 << 24, 1 << 25)
MGC = 0xC0ED0000  # uapi linux/mount.h, MS_MGC_VAL
FSOPEN, FSCONFIG, FSMOUNT = 430, 431, 432
SET_STRING, SET_FD, CREATE = 1, 5, 6
_MNT_DETACH, _PROT_NONE = 2, 0


class Pages:
    """Two pages of memory; the second is inaccessible if ``closed``."""

    def __init__(self, *, closed: bool) -> None:
        self._map = mmap.mmap(-1, 2 * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if closed:
            LIBC.mprotect(ctypes.c_void_p(self.start + PAGE), PAGE, _PROT_NONE)

    def put(self, text: bytes, offset: int) -> int:
        """Write ``text`` at ``offset`` and return its address."""
        self._map[offset : offset + len(text)] = text
        return self.start + offset


def lines_at(point: Path) -> list[str]:
    """Return for each mount at ``point`` what mountinfo says about the mount itself."""
    rows = (line.split(" ") for line in MOUNTINFO.read_text().splitlines())
    return [" ".join(row[5:]) for row in rows if row[4] == str(point)]


def call_mount(*arguments: int | bytes) -> str:
    """Call mount(2) with strings or addresses; return the error's name, "0" for success."""
    words = [
        ctypes.c_char_p(one) if isinstance(one, bytes) else ctypes.c_ulong(one) for one in arguments
    ]
    return errno.errorcode[ctypes.get_errno()] if LIBC.mount(*words) else "0"


@contextmanager
def device() -> Iterator[int]:
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def options_for(fd: int) -> bytes:
    return f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()


def detach(point: Path) -> None:
    LIBC.umount2(os.fsencode(point), _MNT_DETACH)
