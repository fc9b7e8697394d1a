# SPDX-License-Identifier: GPL-2.0-or-later
"""hello, served with options; and mirrorfs's parallel direct requests with options."""

import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.libfuse.inside.libfuse_servers import (
    Served,
    command,
    scratch,
    serve,
)
from tests.native.mirror import PATIENCE, unmount

NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")


@contextmanager
def hello(environment: str = "", options: str = "", tuned: bool = True) -> Iterator[Served]:
    with (
        scratch() as (source, point),
        serve(
            [*command("hello", source, point), "-d"],
            point,
            environment=environment,
            options=options,
            tuned=tuned,
        ) as served,
    ):
        assert (point / "hello").read_text() == "Hello World!\n"
        yield served


def in_flight(environment: str, *options: str, read: bool = False) -> int:
    """Return how many of four direct requests mirrorfs had at the same time."""
    with scratch() as (source, point):
        (source / "file").write_bytes(b"0" * (64 << 10))
        counters = source.with_name("counters.json")
        words = command("mirrorfs", source, point)
        for option in (*options, f"counters={counters}"):
            words += ["-o", option]

        start = threading.Barrier(4)

        def one(number: int) -> None:
            fd = os.open(point / "file", os.O_RDWR)
            start.wait()
            if read:
                os.pread(fd, 4096, number * 4096)
            else:
                os.pwrite(fd, b"1" * 4096, number * 4096)
            os.close(fd)

        with serve(words, point, environment=environment) as served:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(one, range(4)))
            unmount(point)
            served.process.wait(PATIENCE)
        found = re.search(
            rf'"{"READ" if read else "WRITE"}": {{"count": 4,.*"most_in_flight": (\d+)',
            counters.read_text(),
        )
        assert found, counters.read_text()
        return int(found[1])
