# SPDX-License-Identifier: GPL-2.0-or-later
"""Asynchronous writes that extend a file, and writes that wait for writeback."""

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.kernel.guest.rig import (
    KERNEL,
    PAGE,
    SOURCE,
    count,
    fresh_source,
    load,
    stock,
    tuned,
    write_delay,
)
from tests.native.mirror import wait_for

RECORD = 1000


class _Aio:
    """One asynchronous write by io_submit(2), which returns when an extending one has ended."""

    def __init__(self, path: Path, size: int, at: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
        self._buffer = mmap.mmap(-1, size)
        self._buffer.write(b"z" * size)
        # struct iocb of linux/aio_abi.h: IOCB_CMD_PWRITE is 1, in the low half of the third word.
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        words = (0, 0, 1 | self._fd << 32, address, size, at, 0, 0)
        self._iocb = (ctypes.c_uint64 * 8)(*words)

    def write(self) -> int:
        """Return the number of bytes written, or the negative error."""
        context, event = ctypes.c_ulong(), (ctypes.c_int64 * 4)()
        assert self._libc.syscall(206, 1, ctypes.byref(context)) == 0  # io_setup
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))
        assert self._libc.syscall(209, context, 1, pointers) == 1  # io_submit
        assert self._libc.syscall(208, context, 1, 1, event, None) == 1  # io_getevents
        self._libc.syscall(207, context)  # io_destroy
        os.close(self._fd)
        return event[2]


def check_failed_asynchronous_write() -> None:
    """A failed write's remains are truncated, but never what another write has written."""
    load()
    options = ("direct_io", "max_write=4K", "fail_every=2", "no_xattr")
    for mounting in (stock, tuned, partial(tuned, mount="parallel_extend")):
        fresh_source()
        with mounting(*options, "write_delay=200ms") as mirror:
            (mirror.mountpoint / "file").touch()
            assert _Aio(mirror.mountpoint / "file", 4 * PAGE, 0).write() == -errno.EIO
            assert (SOURCE / "file").stat().st_size == 0
            assert (mirror.mountpoint / "file").stat().st_size == 0
            assert count(mirror, "SETATTR") == 1
    fresh_source()
    # Slow overall: an early truncate would remove what is appended meanwhile.
    with tuned(*options, "delay=200ms", write_delay(2000), mount="parallel_extend") as mirror:
        path = mirror.mountpoint / "file"
        path.touch()
        mirror.reset_counters()
        write = _Aio(path, 4 * PAGE, 0).write
        with path.open("ab", buffering=0) as file, ThreadPoolExecutor(1) as pool:
            failed = pool.submit(write)
            wait_for(lambda: count(mirror, "WRITE") == 4, "four WRITEs")
            # Within a page, because a request has at most one page here.
            page = mmap.mmap(-1, PAGE)
            page.write(b"a" * PAGE)
            assert file.write(memoryview(page)[:RECORD]) == RECORD
            assert file.tell() == 4 * PAGE + RECORD
            assert failed.result() == -errno.EIO
        assert path.stat().st_size == 4 * PAGE + RECORD
        assert count(mirror, "SETATTR") == 1
        assert (SOURCE / "file").read_bytes()[4 * PAGE :] == b"a" * RECORD


def check_asynchronous_writes_extend() -> None:
    """Also writes of several requests, all in parallel."""
    load()
    fresh_source()
    with tuned(
        *("direct_io", write_delay(2000), "max_write=4K", "max_background=64"),
        mount="parallel_extend",
    ) as mirror:
        path = mirror.mountpoint / "file"
        path.touch()
        writes = [_Aio(path, 2 * PAGE, number * 2 * PAGE).write for number in range(4)]
        start = threading.Barrier(4)

        def write(one: Callable[[], int]) -> int:
            start.wait()
            return one()

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(write, writes)) == [2 * PAGE] * 4
        assert count(mirror, "WRITE", "most_in_flight") == 8
        assert path.stat().st_size == 8 * PAGE
    assert (SOURCE / "file").read_bytes() == b"z" * 8 * PAGE


def check_direct_writes_wait_for_writeback() -> None:
    """Several may arrive while their page is being written back."""
    load()
    fresh_source()
    options = ("parallel_direct_writes", write_delay(1000))
    with tuned(*options, mount="parallel_extend") as mirror:
        path = mirror.mountpoint / "file"
        path.write_bytes(bytes(PAGE))
        mirror.reset_counters()
        # One page, which is one WRITE even if the kernel starts writeback earlier by itself.
        with path.open("r+b") as file, mmap.mmap(file.fileno(), PAGE) as memory:
            memory[:] = b"m" * PAGE
            # Starts writeback; unlike fsync, does not lock the inode until it ends.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            wait_for(lambda: count(mirror, "WRITE") >= 1, "writeback")
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(partial(_direct_record, path), range(3)))
        # Only the oldest kernel allows both kinds of open files at once.
        assert count(mirror, "WRITE", "most_in_flight") == (3 if KERNEL < (6, 12) else 1)
    expected = b"".join(bytes([number]) * RECORD for number in range(3))
    assert (SOURCE / "file").read_bytes() == expected + b"m" * (PAGE - len(expected))


def _direct_record(path: Path, number: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    assert os.pwrite(fd, bytes([number]) * RECORD, number * RECORD) == RECORD
    os.close(fd)
