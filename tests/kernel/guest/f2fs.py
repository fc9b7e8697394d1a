# SPDX-License-Identifier: GPL-2.0-or-later
"""Parallel large direct writes on f2fs: ours, and the kernel's own for comparison."""

import errno
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fusetune.report.fiemap import extents
from tests.kernel.guest.rig import expect_errno, run
from tests.native.mirror import CHECKOUT

DISK = Path("/dev/vdc")
POINT = Path("/mnt/f2fs")
SETTINGS = Path("/sys/fs/f2fs/vdc")
LOADED = Path("/sys/module/f2fs")
THRESHOLD = SETTINGS / "serialize_alloc_blocks"
#: Bytes in a segment, at whose end a run of blocks may end; the segment area is aligned to it.
SEGMENT = 2 << 20
WRITE = 2 << 20
#: F2FS_IOC_GARBAGE_COLLECT, include/uapi/linux/f2fs.h.
GARBAGE_COLLECT = 0x4004F506


def load(which: str) -> None:
    """Load ``tuned`` or ``stock`` f2fs, after unloading the other one."""
    unload()
    run("modprobe", "f2fs")  # with its dependencies
    if which == "stock":
        run("rmmod", "f2fs")
        run("insmod", *Path("/rig/stock").glob("f2fs.ko*"))
    assert (LOADED / "version").exists() == (which == "tuned")


def unload() -> None:
    """Unload f2fs, if it is loaded."""
    if LOADED.exists():
        run("rmmod", "f2fs")


@contextmanager
def f2fs(size: int = 0) -> Iterator[None]:
    """Mount a new file system of ``size`` bytes (0: the whole disk), and check it afterwards."""
    run("mkfs.f2fs", "-q", "-f", DISK, *([str(size // 512)] if size else []))
    POINT.mkdir(exist_ok=True)
    run("mount", "-t", "f2fs", DISK, POINT)
    try:
        yield
    finally:
        run("umount", POINT)
    run("fsck.f2fs", "--dry-run", DISK)


def fio(writers: int, size: int, *more: str) -> None:
    """Let each of ``writers`` write its own file of ``size`` bytes."""
    job = ["--name=w", f"--directory={POINT}", "--rw=write", "--bs=2m", f"--size={size}"]
    job += ["--direct=1", "--ioengine=sync", "--fallocate=none", f"--numjobs={writers}"]
    run("fio", *job, "--thread", "--group_reporting", *more)


def torn(path: Path) -> int:
    """Return how often the blocks of a write are not contiguous, except at ends of segments."""
    breaks = 0
    before = -1  # where the previous run ended on the disk
    for run_ in extents(path):
        if run_.start_bytes % WRITE and (before % SEGMENT or run_.physical_bytes % SEGMENT):
            breaks += 1
        before = run_.physical_bytes + run_.length_bytes
    return breaks


def torn_by(writers: int, size: int, *more: str, threshold: int | None = None) -> int:
    """Return the sum of that over the files of parallel writers on a new file system."""
    with f2fs():
        if threshold is not None:
            THRESHOLD.write_text(f"{threshold}\n")
        fio(writers, size, *more)
        files = sorted(POINT.glob("w.*"))
        assert len(files) == writers
        for path in files:
            assert sum(each.length_bytes for each in extents(path)) == size
        return sum(map(torn, files))


def torn_where_they_meet(writers: int, size: int, threshold: int | None = None) -> int:
    """Return `torn_by`; if 0, retry up to 5 times: writers may not have overlapped."""
    rounds = (torn_by(writers, size, threshold=threshold) for _ in range(6))
    return next(filter(None, rounds), 0)


def check_f2fs_keeps_a_writes_blocks_together() -> list[tuple[int, int, int]]:
    """For any number of writers; the kernel's own f2fs scatters the blocks.

    Returns writers, and at how many places stock and ours tore writes.
    """
    counted = []
    for writers, size in ((2, 16 << 20), (4, 16 << 20), (10, 16 << 20), (16, 64 << 20)):
        load("tuned")
        tuned = torn_by(writers, size, "--verify=crc32c")
        load("stock")
        stock = torn_where_they_meet(writers, size)
        assert tuned == 0
        assert stock > 0
        counted.append((writers, stock, tuned))
    return counted


def check_f2fs_threshold() -> None:
    """It applies from 64 blocks on; smaller writes, and all if it is 0, are as on stock."""
    load("tuned")
    with f2fs():
        assert THRESHOLD.read_text() == "64\n"
        for text in ("512", "0", "4294967295", "0x40"):
            THRESHOLD.write_text(text)
            assert int(THRESHOLD.read_text()) == int(text, 0)
        for text in ("-1", "x", "64 blocks", "4294967296", "9" * 40, " "):
            with_errno = errno.ERANGE if text.isdigit() else errno.EINVAL
            expect_errno(with_errno, partial(THRESHOLD.write_text, text))
            assert THRESHOLD.read_text() == "64\n"
    assert torn_by(4, 16 << 20, threshold=WRITE // 4096) == 0
    assert torn_where_they_meet(4, 16 << 20, threshold=WRITE // 4096 + 1) > 0
    assert torn_where_they_meet(4, 16 << 20, threshold=0) > 0


def check_f2fs_data() -> None:
    """Direct writes of any size anywhere in a file, and fsx in parallel, with our allocation."""
    load("tuned")
    with f2fs():
        THRESHOLD.write_text("1\n")
        program = CHECKOUT / "build" / "fsx"
        with ThreadPoolExecutor(1) as pool:
            fsx = pool.submit(run, program, "-q", "-N", "500", "-S", "7", POINT / "fsx")
            fio(4, 8 << 20, "--rw=randwrite", "--bsrange=4k-1m", "--verify=crc32c")
            fsx.result()


@contextmanager
def cleaning() -> Iterator[None]:
    """Clean segment after segment meanwhile."""
    done = threading.Event()

    def clean() -> None:
        fd = os.open(POINT, os.O_RDONLY)
        while not done.is_set():
            try:
                fcntl.ioctl(fd, GARBAGE_COLLECT, struct.pack("I", 1))
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENODATA):
                    raise
        os.close(fd)

    with ThreadPoolExecutor(1) as pool:
        cleaner = pool.submit(clean)
        try:
            yield
        finally:
            done.set()
        cleaner.result()


def check_f2fs_cleans_while_writers_wait() -> None:
    """Nearly full and with garbage collection, nothing is lost and nobody waits forever."""
    load("tuned")
    with f2fs(256 << 20):
        count = (os.statvfs(POINT).f_bavail * 4096 - (16 << 20)) // (2 << 20)
        for number in range(count):
            (POINT / f"fill{number}").write_bytes(os.urandom(1 << 20))
            (POINT / f"gone{number}").write_bytes(os.urandom(1 << 20))
        os.sync()
        for number in range(count):
            (POINT / f"gone{number}").unlink()
        os.sync()
        with cleaning():
            for _ in range(3):
                fio(4, 8 << 20, "--verify=crc32c", "--loops=2")
                for path in POINT.glob("w.*"):
                    path.unlink()
        moved = [SETTINGS / f"moved_blocks_{ground}" for ground in ("background", "foreground")]
        assert sum(int(path.read_text()) for path in moved) > 0
