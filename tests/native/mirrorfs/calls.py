# SPDX-License-Identifier: GPL-2.0-or-later
"""Run mirrorfs, and make single system calls on its mounts."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.native.mirror import BINARY, Mirror, mounted_at, unmount, wait_for

ASAN = BINARY.with_name("mirrorfs-asan")
KIB = 1024
MIB = 1024 * KIB
NOBODY = 65534

Mount = Callable[..., Mirror]


def run(*arguments: str | Path, binary: Path = BINARY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(binary), *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )


@contextmanager
def serving(mountpoint: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server with exactly these arguments; SIGTERM must end it cleanly."""
    server = subprocess.Popen([str(BINARY), "-f", *map(str, arguments), str(mountpoint)])
    try:
        wait_for(lambda: mounted_at(mountpoint) is not None, "mount")
        yield server
        server.terminate()
        assert server.wait(20) == 0
        assert mounted_at(mountpoint) is None
    finally:
        server.kill()
        server.wait(20)


def libfuse_version() -> tuple[int, ...]:
    found = re.search(r"libfuse (\d+)\.(\d+)", run("--version").stdout)
    assert found
    return tuple(map(int, found.groups()))


def write_all(path: Path, *chunks: bytes, flags: int = 0) -> None:
    """Write each chunk with one write(2)."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        for chunk in chunks:
            assert os.write(fd, chunk) == len(chunk)
    finally:
        os.close(fd)


def direct_io(path: Path, size: int, offset: int, write: bool = False) -> None:
    """One O_DIRECT read or write of whole pages."""
    fd = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_DIRECT)
    try:
        with mmap.mmap(-1, size) as memory:
            call = os.pwritev if write else os.preadv
            assert call(fd, [memory], offset) == size
    finally:
        os.close(fd)


def in_parallel(count: int, work: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(work, index) for index in range(count)]:
            future.result(timeout=60)


def refused(status: int, reason: str, *arguments: str | Path) -> None:
    mountpoint = Path(arguments[-1])
    try:
        result = run("-f", *arguments)  # if it is wrongly not refused, the time limit ends it
        assert result.returncode == status, result.stderr
        assert reason in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""
        assert mounted_at(mountpoint) is None
    finally:
        unmount(mountpoint)
