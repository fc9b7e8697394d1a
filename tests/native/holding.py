# SPDX-License-Identifier: GPL-2.0-or-later
"""A process whose /proc/PID/cmdline blocks every reader, as a hostile user can make one.

A page fault takes the mmap_lock for reading and, from its second try on, keeps it (mm/filemap.c,
filemap_fault()). So the file's server fails the first two READs and never replies to the third.
Another thread requests the lock for writing, and later readers wait behind it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.native.mirror import CHECKOUT, PATIENCE, unmount, wait_for
from tests.native.raw import mount

_LOOKUP, _GETATTR, _OPEN, _READ, _INIT = 1, 3, 14, 15, 26
_NO_REPLY = (2, 36, 42)  # FORGET, INTERRUPT, BATCH_FORGET
_FAILED_READS = 2
_EIO, _ENOSYS = 5, 38
_SIZE = 1 << 16


def _attributes(node: int) -> bytes:
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("=6Q10I", node, _SIZE, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _serve(point: Path, owner: int) -> None:
    fd = os.open("/dev/fuse", os.O_RDWR)
    mount(fd, point, owner)
    print("mounted", flush=True)
    reads = 0
    while True:
        _, opcode, unique, node = struct.unpack_from("=IIQQ", os.read(fd, 1 << 17))
        bodies = {
            _INIT: struct.pack("=IIIIHHIIHHI28x", 7, 31, 4096, 0, 0, 0, 4096, 1, 0, 0, 0),
            _LOOKUP: struct.pack("=4Q2I", 2, 0, 3600, 3600, 0, 0) + _attributes(2),
            _GETATTR: struct.pack("=Q2I", 3600, 0, 0) + _attributes(node),
            _OPEN: struct.pack("=Q2I", 1, 0, 0),
        }
        reads += opcode == _READ
        if opcode in _NO_REPLY or reads > _FAILED_READS:
            continue
        body = bodies.get(opcode, b"")
        error = 0 if body else -_EIO if opcode == _READ else -_ENOSYS
        os.write(fd, struct.pack("=IiQ", 16 + len(body), error, unique) + body)


def _hold(file: Path, *words: str) -> None:
    """Keep /dev/fuse open and the mmap_lock held. SIGBUS ends it when the server ends.

    ``words`` only serve to be among the arguments.
    """
    os.open("/dev/fuse", os.O_RDWR)
    fd = os.open(file, os.O_RDONLY)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    page = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE, fd, 0)
    # ctypes lets other threads run meanwhile.
    threading.Thread(target=libc.memcmp, args=(page, page + 1, 1), daemon=True).start()
    while True:
        mmap.mmap(-1, mmap.PAGESIZE).close()
        time.sleep(0.01)


def waits(file: Path) -> bool:
    """Whether reading ``file`` takes longer than half a second."""
    tried = subprocess.run(["timeout", "0.5", "cat", file], capture_output=True, check=False)
    return tried.returncode == 124


@contextmanager
def holding(point: Path, owner: int, *words: str | Path) -> Iterator[int]:
    """Yield the pid of such a process of the user ``owner``; ``words``: more arguments.

    ``point``: where to mount the file system that it needs; removed afterwards.
    """
    ours = [sys.executable, "-m", __spec__.name]
    point.mkdir()
    server = subprocess.Popen(
        [*ours, "serve", point, str(owner)], cwd=CHECKOUT, stdout=subprocess.PIPE
    )
    user = ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups", "--"]
    holder = None
    try:
        assert server.stdout
        assert server.stdout.readline() == b"mounted\n"
        holder = subprocess.Popen([*user, *ours, "hold", point / "file", *words], cwd=CHECKOUT)
        file = Path(f"/proc/{holder.pid}/cmdline")
        wait_for(lambda: waits(file), "a process that makes its readers wait")
        yield holder.pid
    finally:
        server.kill()
        server.communicate(timeout=PATIENCE)
        if holder:
            holder.kill()
            holder.wait(PATIENCE)
        unmount(point)
        point.rmdir()


if __name__ == "__main__":
    role, place, *rest = sys.argv[1:]
    if role == "serve":
        _serve(Path(place), int(rest[0]))
    else:
        _hold(Path(place), *rest)
