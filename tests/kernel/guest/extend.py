# SPDX-License-Identifier: GPL-2.0-or-later
"""Parallel direct writes that extend one file, and its size meanwhile."""

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain, pairwise
from itertools import count as counting
from pathlib import Path
from typing import Any

from tests.kernel.guest.concurrent_data import WRITERS, written_at_once
from tests.kernel.guest.rig import (
    PAGE,
    SOURCE,
    count,
    expect_errno,
    fresh_source,
    load,
    reached,
    stock,
    tuned,
    write_delay,
)
from tests.native.mirror import Mirror, wait_for

RECORD = 1000


def _staged(mirror: Mirror, *writes: Callable[[], int]) -> list[Future[int]]:
    """Begin each write when the server has a WRITE of each earlier one; return their results."""
    mirror.reset_counters()
    with ThreadPoolExecutor(len(writes)) as pool:
        futures = []
        for number, write in enumerate(writes, 1):
            futures.append(pool.submit(write))
            wait_for(partial(_arrived, mirror, number), "a WRITE")
    return futures


def _arrived(mirror: Mirror, number: int) -> bool:
    return count(mirror, "WRITE") >= number


def _append_by(fd: int, fill: bytes, size: int) -> int:
    """Append ``size`` bytes in one call; return where they begin."""
    assert os.write(fd, fill * size) == size
    return os.lseek(fd, 0, os.SEEK_CUR) - size


def _append(path: Path, fill: bytes, size: int = RECORD) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        return _append_by(fd, fill, size)
    finally:
        os.close(fd)


def _pwrite(path: Path, fill: bytes, at: int, size: int = RECORD) -> int:
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.pwrite(fd, fill * size, at)
    finally:
        os.close(fd)


def _most_at_once(mirror: Mirror, writers: int, append: bool) -> int:
    """Let each of ``writers`` extend an empty file twice by a page; return the most in flight."""
    path = mirror.mountpoint / f"{writers}-{append}"
    path.write_bytes(b"")
    mirror.reset_counters()
    start = threading.Barrier(writers)

    def extend(number: int) -> list[int]:
        fd = os.open(path, os.O_WRONLY | (os.O_APPEND if append else 0))
        fill, places = bytes([number]), []
        start.wait()
        for half in range(2):
            if append:
                places.append(_append_by(fd, fill, PAGE))
            else:
                places.append((half * writers + number) * PAGE)
                assert os.pwrite(fd, fill * PAGE, places[-1]) == PAGE
        os.close(fd)
        return places

    with ThreadPoolExecutor(writers) as pool:
        places = list(pool.map(extend, range(writers)))
    data = (SOURCE / path.name).read_bytes()
    assert len(data) == path.stat().st_size == 2 * writers * PAGE
    for number, both in enumerate(places):
        assert all(data[at : at + PAGE] == bytes([number]) * PAGE for at in both)
    assert sorted(chain(*places)) == list(range(0, len(data), PAGE))
    return count(mirror, "WRITE", "most_in_flight")


def check_parallel_extend() -> None:
    """All writers extend one file in parallel, by appends and at an offset."""
    load()
    fresh_source()
    for mounting in (stock, tuned):
        with mounting("direct_io", "write_delay=20ms") as mirror:
            assert [_most_at_once(mirror, 4, append) for append in (False, True)] == [1, 1]
        fresh_source()
    with tuned("direct_io", write_delay(500), mount="parallel_extend") as mirror:
        said = Path("/proc/self/mountinfo").read_text()
        assert ",parallel_direct_writes,parallel_extend" in said
        for append in (False, True):
            for writers in (1, 2, 4, 8, 16, 32):
                assert reached(writers, partial(_most_at_once, mirror, writers, append))


#: Mounts, and how many writers each allows at a time.
_STOCK = (stock, range(1, 2))
_OFF = (tuned, range(1, 2))
_OVERWRITES = (partial(tuned, mount="parallel_direct_writes"), range(1, WRITERS + 1))
_EXTEND = (partial(tuned, mount="parallel_extend"), range(WRITERS - 2, WRITERS + 1))


def _many_writers(*options: str, mounts: Sequence[tuple[Callable[..., Any], range]]) -> None:
    """The same writers on each mount."""
    load()
    for mounting, at_once in mounts:
        fresh_source()
        # Long enough for writers that need not wait for each other to overlap.
        delay = write_delay(20 if at_once.start > 1 else 2)
        with mounting("direct_io", "max_write=4K", delay, *options) as mirror:
            written_at_once(mirror).verify(mirror, at_once)


def check_extending_writers() -> None:
    """Nothing is lost, torn or in the wrong place, and the size is always right."""
    _many_writers(mounts=(_STOCK, _OFF, _OVERWRITES, _EXTEND))


def check_extending_writers_with_faults() -> None:
    """The same if the server fails some writes and shortens others."""
    _many_writers("fail_every=5", "short_every=7", mounts=(_STOCK, _EXTEND))


def check_extending_writers_with_writeback() -> None:
    """The same if the kernel owns the size (writeback cache), with files opened with O_DIRECT."""
    load()
    for mount, least in (("", 1), ("parallel_extend", WRITERS - 2)):
        fresh_source()
        options = ("writeback", "parallel_direct_writes", write_delay(20), "max_write=4K")
        with tuned(*options, mount=mount) as mirror:
            written = written_at_once(mirror, os.O_DIRECT)
            written.verify(mirror, range(least, WRITERS + 1))


def check_failed_append() -> None:
    """A failed append leaves a hole before later ones, and nothing if it was the last."""
    load()
    fresh_source()
    mounting = partial(tuned, "direct_io", write_delay(2000), "fail_every=3")
    with mounting(mount="parallel_extend") as mirror:
        path = mirror.mountpoint / "file"
        path.touch()
        appends = [partial(_append, path, bytes([65 + number])) for number in range(5)]
        done = _staged(mirror, *appends)
        expect_errno(errno.EIO, done.pop(2).result)
        assert [one.result() for one in done] == [0, 1000, 3000, 4000]
        # The sixth also fails, but nothing follows it, so the next one gets its position.
        expect_errno(errno.EIO, partial(_append, path, b"F"))
        assert path.stat().st_size == 5000
        assert _append(path, b"G") == 5000
    expected = b"".join(fill * RECORD for fill in (b"A", b"B", b"\0", b"D", b"E", b"G"))
    assert (SOURCE / "file").read_bytes() == expected


def check_short_append() -> None:
    """The part of an append that the server did not write is a hole before later ones."""
    load()
    fresh_source()
    with tuned(
        *("direct_io", write_delay(2000), "short_every=2"), mount="parallel_extend"
    ) as mirror:
        path = mirror.mountpoint / "file"
        path.touch()
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("ab", buffering=0)) for _ in range(4)]
            writes = [partial(os.write, file.fileno(), b"x" * RECORD) for file in files]
            done = _staged(mirror, *writes)
            assert [one.result() for one in done] == [1000, 500, 1000, 500]
            assert [file.tell() for file in files] == [1000, 1500, 3000, 3500]
        assert path.stat().st_size == 3500
        assert _append(path, b"x") == 3500
    data = (SOURCE / "file").read_bytes()
    assert data == b"x" * 1500 + bytes(500) + b"x" * 2500


def check_append_behind_write() -> None:
    """An append goes behind a write past the end of the file that is still in flight."""
    load()
    fresh_source()
    with tuned("direct_io", write_delay(2000), mount="parallel_extend") as mirror:
        path = mirror.mountpoint / "file"
        path.write_bytes(b"a" * 10)
        done = _staged(mirror, partial(_pwrite, path, b"b", 500), partial(_append, path, b"c"))
        assert [one.result() for one in done] == [RECORD, 500 + RECORD]
        assert count(mirror, "WRITE", "most_in_flight") == 2
    data = (SOURCE / "file").read_bytes()
    assert data == b"a" * 10 + bytes(490) + b"b" * RECORD + b"c" * RECORD


def check_truncate_waits_for_extending_writes() -> None:
    """Truncate and fallocate exclude these writes, and the next append uses the new size."""
    load()
    fresh_source()
    options = ("direct_io", "write_delay=300ms")
    with tuned(*options, mount="parallel_extend") as mirror, ThreadPoolExecutor(1) as pool:
        path = mirror.mountpoint / "file"
        for resize, size in ((partial(os.truncate, path, 100), 100), (_allocate(path, 9000), 9000)):
            path.write_bytes(b"")
            mirror.reset_counters()
            appends = [partial(_append, path, b"x") for _ in range(4)]
            appended = pool.submit(_staged, mirror, *appends)
            wait_for(lambda: count(mirror, "WRITE") == 4, "four appends")
            resize()
            assert count(mirror, "WRITE", "in_flight") == 0
            assert path.stat().st_size == size
            assert _append(path, b"y") == size
            assert sorted(one.result() for one in appended.result()) == [0, 1000, 2000, 3000]
            kept = (b"x" * 4 * RECORD)[:size].ljust(size, b"\0")
            assert (SOURCE / "file").read_bytes() == kept + b"y" * RECORD


def _allocate(path: Path, size: int) -> Callable[[], None]:
    def allocate() -> None:
        fd = os.open(path, os.O_WRONLY)
        os.posix_fallocate(fd, 0, size)
        os.close(fd)

    return allocate


def appends_among_truncates(mirror: Mirror) -> None:
    """All appends that begin after the last truncate exist, behind what it left."""
    path = mirror.mountpoint / "appended"
    path.touch()
    order, lock = counting(), threading.Lock()

    def stamp() -> int:
        with lock:
            return next(order)

    last = _appended_among_truncates(path, stamp)
    data = (SOURCE / path.name).read_bytes()
    assert len(data) == path.stat().st_size
    assert len(last) >= 8
    for at, record in last:
        assert data[at : at + len(record)] == record
    places = sorted((at, at + len(record)) for at, record in last)
    assert all(one[1] <= other[0] for one, other in pairwise(places))


def check_truncates_among_appends() -> None:
    """They exclude each other, as on stock."""
    load()
    for mounting in (stock, partial(tuned, mount="parallel_extend")):
        fresh_source()
        with mounting("direct_io", "write_delay=1ms", "max_write=4K") as mirror:
            appends_among_truncates(mirror)


def _appended_among_truncates(path: Path, stamp: Callable[[], int]) -> Sequence[tuple[int, bytes]]:
    """Return the appends that began after the last truncate: where each is, and what."""
    ended: list[int] = []

    def append(number: int) -> list[tuple[int, int, bytes]]:
        choose, done = random.Random(number), []
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        rounds = 0
        while len(ended) < 10 or rounds < 3:
            rounds += len(ended) == 10
            record = choose.randbytes(choose.randrange(1, 9000))
            began = stamp()
            assert os.write(fd, record) == len(record)
            done.append((began, os.lseek(fd, 0, os.SEEK_CUR) - len(record), record))
        os.close(fd)
        return done

    def truncate() -> None:
        choose = random.Random(1)
        for _ in range(10):
            os.truncate(path, choose.randrange(20000))
            ended.append(stamp())

    with ThreadPoolExecutor(9) as pool:
        appended = [pool.submit(append, number) for number in range(8)]
        pool.submit(truncate).result()
        done = list(chain(*(one.result() for one in appended)))
    return [(at, record) for began, at, record in done if began > ended[-1]]
