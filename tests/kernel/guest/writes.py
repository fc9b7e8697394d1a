# SPDX-License-Identifier: GPL-2.0-or-later
"""Writers of one file at once."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.kernel.guest.rig import (
    PAGE,
    SOURCE,
    count,
    fresh_source,
    load,
    reached,
    stock,
    tuned,
    write_delay,
)
from tests.native.mirror import Mirror


def _writes_at_once(mirror: Mirror, writers: int, name: str = "shared") -> int:
    """Let each of ``writers`` overwrite a page of one file twice; return the most in flight."""
    path = mirror.mountpoint / name
    path.write_bytes(bytes(writers * PAGE))
    mirror.reset_counters()
    start = threading.Barrier(writers)

    def write(number: int) -> None:
        fd = os.open(path, os.O_WRONLY)
        start.wait()
        for _ in range(2):
            assert os.pwrite(fd, bytes([number]) * PAGE, number * PAGE) == PAGE
        os.close(fd)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    expected = b"".join(bytes([number]) * PAGE for number in range(writers))
    assert (SOURCE / name).read_bytes() == expected
    assert count(mirror, "WRITE") == 2 * writers
    return count(mirror, "WRITE", "most_in_flight")


def check_parallel_direct_writes() -> None:
    """All writers overwrite one file in parallel, whatever the server replies."""
    load()
    fresh_source()
    options = ("direct_io", write_delay(400))
    for mounting in (stock, tuned):
        with mounting(*options) as mirror:
            assert _writes_at_once(mirror, 8) == 1
    with tuned(*options, mount="parallel_direct_writes") as mirror:
        assert ",parallel_direct_writes" in Path("/proc/self/mountinfo").read_text()
        for writers in (1, 2, 4, 8, 16, 32):
            at_once = partial(_writes_at_once, mirror, writers, f"by{writers}")
            assert reached(writers, at_once)


def check_parallel_direct_writes_do_not_extend() -> None:
    """Appends and writes past the end of the file run one by one, and none is lost."""
    load()
    fresh_source()
    options = ("direct_io", "write_delay=20ms")
    with tuned(*options, mount="parallel_direct_writes") as mirror:
        path = mirror.mountpoint / "file"
        path.touch()

        def append(number: int) -> None:
            with path.open("ab", buffering=0) as file:
                file.write(bytes([number]) * 1000)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(append, range(8)))
        assert count(mirror, "WRITE", "most_in_flight") == 1
        assert path.stat().st_size == 8000
        data = path.read_bytes()
        assert {data[at : at + 1000] for at in range(0, 8000, 1000)} == {
            bytes([number]) * 1000 for number in range(8)
        }
