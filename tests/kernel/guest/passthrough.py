# SPDX-License-Identifier: GPL-2.0-or-later
"""Writers of one file at once where the kernel writes to a backing file itself.

The backing file is on a second mirrorfs, which lets direct writers at once and counts how many
there are: what holds them back is the lock of the file above.
"""

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.kernel.guest.rig import (
    KERNEL,
    PAGE,
    SLOWNESS,
    SOURCE,
    count,
    fresh_source,
    load,
    reached,
    stock,
)
from tests.kernel.guest.rig import write_delay as delay
from tests.native.mirror import Mirror, wait_for

_BELOW, _ABOVE = Path("/mnt/below"), Path("/mnt/above")
_WRITERS = 8
#: What the lock is shared with.
_SHARED = "parallel_direct_writes+no_file_caps"


@dataclass(frozen=True)
class _Stack:
    """The mounts that a file of ``below`` is seen through."""

    above: Mirror
    below: Mirror

    def file(self, name: str, pages: int, mode: int = 0o644) -> Path:
        """Make a file of zeros, and return its path above."""
        path = SOURCE / name
        path.write_bytes(bytes(pages * PAGE))
        path.chmod(mode)
        return self.above.mountpoint / name


@contextmanager
def _stacked(*above: str, milliseconds: int = 20) -> Iterator[_Stack]:
    """Mount by these options of mirrorfs over one whose writes last so long."""
    fresh_source()
    options = ("direct_io", "parallel_direct_writes", "timeout=0", delay(milliseconds))
    with (
        stock(*options, point=str(_BELOW)) as below,
        Mirror(_BELOW, _ABOVE, "passthrough", *above) as mirror,
    ):
        yield _Stack(mirror, below)


def _put(fd: int, number: int, page: int) -> None:
    """Write a page by a buffer that a direct write can have."""
    with mmap.mmap(-1, PAGE) as buffer:
        buffer[:] = bytes([number + 1]) * PAGE
        assert os.pwrite(fd, buffer, page * PAGE) == PAGE


def _at_once(stack: _Stack, path: Path, flags: int = os.O_DIRECT, first: int = 0) -> int:
    """Let each writer write a page twice, from page ``first`` on; return the most in flight."""
    stack.below.reset_counters()
    stack.above.reset_counters()
    start = threading.Barrier(_WRITERS)

    def write(number: int) -> None:
        fd = os.open(path, os.O_WRONLY | flags)
        start.wait()
        for _ in range(2):
            _put(fd, number, first + number)
        os.close(fd)

    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(write, range(_WRITERS)))
    data = (SOURCE / path.name).read_bytes()
    pages = sorted(data[at] for at in range(0, len(data), PAGE) if data[at])
    assert pages == sorted([*range(1, _WRITERS + 1)] * (2 if flags & os.O_APPEND else 1))
    assert path.stat().st_size == len(data)
    assert count(stack.above, "WRITE") == 0, "the kernel did not write by itself"
    assert count(stack.below, "WRITE") == 2 * _WRITERS
    return count(stack.below, "WRITE", "most_in_flight")


def check_parallel_passthrough_writes() -> None:
    """Direct overwrites of a backing file: one by one, and with the options all at once."""
    if KERNEL < (6, 12):
        return
    load()
    options = ("", "parallel_direct_writes", "no_file_caps")
    others = [("tuned", *([f"tuned_options={one}"] if one else [])) for one in options]
    # On stock as well; but a debug kernel takes one stock mount's lock under another's for a
    # deadlock.
    for above in others if SLOWNESS > 1 else [(), *others]:
        with _stacked(*above) as stack:
            assert _at_once(stack, stack.file("file", _WRITERS)) == 1, above
    with _stacked("tuned", f"tuned_options={_SHARED}", milliseconds=500) as stack:
        names = iter(range(6))

        def anew() -> int:
            return _at_once(stack, stack.file(f"file{next(names)}", _WRITERS))

        assert reached(_WRITERS, anew)
    with _stacked("tuned", "no_xattr", "tuned_options=parallel_direct_writes+no_xattr") as stack:
        assert _at_once(stack, stack.file("file", _WRITERS)) > 1


def check_passthrough_writes_that_stay_alone() -> None:
    """What extends a file, goes through a cache, or takes away its privileges, even with both."""
    if KERNEL < (6, 12):
        return
    load()
    with _stacked("tuned", f"tuned_options={_SHARED}", milliseconds=100) as stack:
        cases: dict[str, Callable[[], int]] = {
            "cached": partial(_at_once, stack, stack.file("cached", _WRITERS), 0),
            "append": partial(_at_once, stack, stack.file("append", 0), os.O_DIRECT | os.O_APPEND),
            "set-user-ID": partial(_at_once, stack, stack.file("setuid", _WRITERS, 0o4755)),
        }
        assert {name: case() for name, case in cases.items()} == dict.fromkeys(cases, 1)
        path = stack.file("past", 1)
        fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
        stack.below.reset_counters()
        # Once one has ended, the other may be within the file, but not at once with it.
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(partial(_put, fd, page=5), range(2)))
        os.close(fd)
        assert count(stack.below, "WRITE", "most_in_flight") == 1
        assert path.stat().st_size == 6 * PAGE


def check_truncate_waits_for_passthrough_writes() -> None:
    """The server is not asked to truncate before the writers have ended."""
    if KERNEL < (6, 12):
        return
    load()
    with (
        _stacked("tuned", f"tuned_options={_SHARED}", milliseconds=2000) as stack,
        ThreadPoolExecutor(_WRITERS + 1) as pool,
    ):
        path = stack.file("file", _WRITERS)
        fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
        writes = [pool.submit(_put, fd, number, number) for number in range(_WRITERS)]
        wait_for(lambda: count(stack.below, "WRITE", "in_flight") == _WRITERS, "the writers")
        truncated = pool.submit(os.truncate, path, PAGE)
        wait_for(lambda: count(stack.above, "SETATTR") == 1, "the truncate")
        assert count(stack.below, "WRITE", "in_flight") == 0
        for write in writes:
            write.result()
        truncated.result()
        os.close(fd)
        assert path.stat().st_size == PAGE
