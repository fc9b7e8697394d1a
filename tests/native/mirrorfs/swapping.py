# SPDX-License-Identifier: GPL-2.0-or-later
"""Create files on a mount, and swap each for a bait in the source while the server creates it.

Run as ``swapping.py KIND MOUNTPOINT SOURCE SECONDS``. Makes MOUNTPOINT/new again and again, and
exchanges SOURCE/new with SOURCE/bait as soon as it exists (renameat2(2)). Prints how often both
files were there to be exchanged before the request ended.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_MODE = 0o4777

_LIBC = ctypes.CDLL(None, use_errno=True)


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))


_MAKE: dict[str, Callable[[Path], None]] = {
    "create": _create,
    "mknod": lambda path: os.mknod(path, stat.S_IFREG | _MODE),
    "fifo": lambda path: os.mkfifo(path, _MODE),
    "mkdir": lambda path: path.mkdir(_MODE),
    "symlink": lambda path: path.symlink_to("target"),
}


def _make(kind: str, path: Path) -> None:
    with suppress(OSError):  # the server or the kernel may notice the other file
        _MAKE[kind](path)


def _remove(path: Path) -> None:
    try:
        path.rmdir()
    except NotADirectoryError:
        path.unlink()


def main() -> None:
    kind, root, source = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    end = time.monotonic() + float(sys.argv[4])
    swap = partial(
        _LIBC.renameat2,
        *(_AT_FDCWD, bytes(source / "new"), _AT_FDCWD, bytes(source / "bait")),
        _RENAME_EXCHANGE,
    )
    swaps = 0
    os.umask(0)
    while time.monotonic() < end:
        maker = Thread(target=_make, args=(kind, root / "new"))
        maker.start()
        while (failed := swap()) and maker.is_alive():
            pass
        maker.join()
        if not failed:
            swaps += 1
            swap()
        _remove(root / "new")
    print(swaps)


if __name__ == "__main__":
    main()
