# SPDX-License-Identifier: GPL-2.0-or-later
"""Many real FUSE mounts whose server never answers, not even INIT.

Run as a program, it mounts, says so, and unmounts when its stdin ends: so the mounts go away with
whoever started it, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import subprocess
import sys
from pathlib import Path

FSTYPE = "fuse.raw"
_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID, _MS_NODEV, _MNT_DETACH = 2, 4, 2
_CHECKOUT = Path(__file__).resolve().parents[2]
#: Seconds that mounting, and unmounting, may take; some milliseconds a mount on a busy host.
_PATIENCE = 60.0


class RawMounts:
    """``count`` mounts of type fuse.raw at ``folder``/0, /1 and so on, while the context lasts.

    ``points`` are the mount points, in the order of mounting. Any access to them hangs.
    """

    def __init__(self, count: int, folder: Path) -> None:
        self.points = [folder.resolve() / str(number) for number in range(count)]
        self._folder = folder.resolve()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RawMounts:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(len(self.points)), self._folder],
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

    def _end(self) -> None:
        assert self._process
        try:
            self._process.communicate(timeout=_PATIENCE)  # its stdin ends
        except subprocess.TimeoutExpired:
            # Its file descriptors go with it, and the connections with them.
            self._process.kill()
            self._process.communicate()
            _unmount(self.points)


def mount(fd: int, point: Path, owner: int = 0, fstype: bytes = FSTYPE.encode()) -> None:
    """Mount on ``point`` a FUSE file system served through ``fd`` (/dev/fuse). Raises OSError."""
    options = f"fd={fd},rootmode=40000,user_id={owner},group_id={owner}"
    if _LIBC.mount(b"raw", os.fsencode(point), fstype, _MS_NOSUID | _MS_NODEV, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(point))


def _unmount(points: list[Path]) -> None:
    for point in reversed(points):
        _LIBC.umount2(os.fsencode(point), _MNT_DETACH)


def _serve(count: int, folder: Path) -> None:
    hard = max(resource.getrlimit(resource.RLIMIT_NOFILE)[1], count + 64)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    points = []
    try:
        for number in range(count):
            point = folder / str(number)
            point.mkdir()
            mount(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC), point)
            points.append(point)
        print("mounted", flush=True)
        sys.stdin.read()
    finally:
        _unmount(points)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
