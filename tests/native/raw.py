# SPDX-License-Identifier: GPL-2.0-or-later
"""Many real FUSE mounts whose server never replies, not even to INIT.

As a program, it mounts, prints a line, and unmounts when its stdin ends, so that the mounts go away
with the process that started it, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.native.servers import mounts_at

FSTYPE = "fuse.raw"
_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID, _MS_NODEV, _MNT_DETACH = 2, 4, 2
_INIT = 26
_CHECKOUT = Path(__file__).resolve().parents[2]
#: Time limit in seconds for mounting and unmounting; a mount takes some milliseconds.
_PATIENCE = 60.0


class RawMounts:
    """``count`` mounts of type fuse.raw at ``directory``/0, /1 and so on, while the context lasts.

    ``points`` are the mount points, in the order of mounting. Any access to them hangs.
    ``before`` precedes the program that mounts, whose process is ``pid``.
    """

    def __init__(self, count: int, directory: Path, before: Sequence[str] = ()) -> None:
        self._before = before
        self.points = [directory.resolve() / str(number) for number in range(count)]
        self._directory = directory.resolve()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RawMounts:
        self._process = subprocess.Popen(
            [
                *self._before,
                sys.executable,
                "-m",
                __spec__.name,
                str(len(self.points)),
                self._directory,
            ],
            cwd=_CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert self._process.stdout
            ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
            if not ready or self._process.stdout.readline() != b"mounted\n":
                raise RuntimeError("the child could not mount; its stderr says why")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """The pid of the server."""
        assert self._process
        return self._process.pid

    def _end(self) -> None:
        assert self._process
        try:
            self._process.communicate(timeout=_PATIENCE)  # its stdin ends
        except subprocess.TimeoutExpired:
            # This closes its file descriptors and thus ends the connections.
            self._process.kill()
            self._process.communicate()
            _unmount(self.points)


def mount(
    fd: int,
    point: Path,
    owner: int = 0,
    fstype: bytes = FSTYPE.encode(),
    flags: int = _MS_NOSUID | _MS_NODEV,
) -> None:
    """Mount a FUSE file system served through ``fd`` (/dev/fuse) on ``point``. Raises OSError."""
    options = f"fd={fd},rootmode=40000,user_id={owner},group_id={owner}"
    if _LIBC.mount(b"raw", os.fsencode(point), fstype, flags, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(point))


def _unmount(points: list[Path]) -> None:
    for point in reversed(points):
        _LIBC.umount2(os.fsencode(point), _MNT_DETACH)


class RawServer:
    """A mount that replies to INIT when the test wants it, and to nothing else.

    ``fstype`` begins with "fuse". Unmounted at the end of the context, or by `unmount`.
    """

    def __init__(self, point: Path, fstype: str = FSTYPE) -> None:
        self.point = point.parent.resolve() / point.name
        with suppress(FileExistsError):
            os.mkdir(self.point)  # it may be a mount point, whose server does not reply
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        mount(self._fd, self.point, fstype=fstype.encode())
        self.device = mounts_at(self.point)[-1]

    def answer(self, max_readahead: int = 1 << 30, max_background: int = 0) -> None:
        """Reply to INIT and request these values (bytes; 0: the kernel's default)."""
        request = os.read(self._fd, 1 << 16)
        _, opcode, unique = struct.unpack_from("=IIQ", request)
        assert opcode == _INIT
        # struct fuse_init_out of include/uapi/linux/fuse.h, version 7.31
        congestion = max_background * 3 // 4
        body = struct.pack(
            "=IIIIHHIIHHI28x", 7, 31, max_readahead, 0, max_background, congestion, 4096, 1, 0, 0, 0
        )
        os.write(self._fd, struct.pack("=IiQ", 16 + len(body), 0, unique) + body)

    def unmount(self) -> None:
        """Unmount and end the server."""
        if self._fd >= 0:
            _LIBC.umount2(os.fsencode(self.point), _MNT_DETACH)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> RawServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.unmount()


def _serve(count: int, directory: Path) -> None:
    hard = max(resource.getrlimit(resource.RLIMIT_NOFILE)[1], count + 64)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    points = []
    try:
        for number in range(count):
            point = directory / str(number)
            point.mkdir()
            mount(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC), point)
            points.append(point)
        print("mounted", flush=True)
        sys.stdin.read()
    finally:
        _unmount(points)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
