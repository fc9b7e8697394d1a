# SPDX-License-Identifier: GPL-2.0-or-later
"""Each option, counted at a server or refused with its reason."""

import os
import re
from pathlib import Path

import pytest

from tests.libfuse.inside.libfuse_servers import (
    LIBRARY,
    OUT,
    command,
    read_direct,
    refused,
    scratch,
    serve,
    write_direct,
)
from tests.libfuse.inside.served_with_options import NOBODY, hello, in_flight
from tests.native.mirror import wait_for

_LIMIT = Path("/proc/sys/fs/fuse/max_pages_limit")


#: This kernel's limit of pages per request.
_MOST = int(_LIMIT.read_text()) if _LIMIT.exists() else 256


def said_when_refused(environment: str) -> str:
    with scratch() as (source, point):
        return refused(command("hello", source, point), point, environment)


# What each does


def test_one_write_of_4_mib() -> None:
    before = _LIMIT.read_text()
    with scratch() as (source, point):
        _LIMIT.write_text("1024\n")
        try:
            words = [*command("passthrough_fh", source, point), "-d"]
            with serve(words, point, environment="max_pages=1024,direct_io") as served:
                written = write_direct(point / "file", 4 << 20)
                assert served.asked("WRITE") == [80 + (4 << 20)]
        finally:
            _LIMIT.write_text(before)
        assert (source / "file").read_bytes() == written


def test_max_write_may_be_less_than_max_pages() -> None:
    """Reads are as large as max_pages, writes as max_write."""
    with scratch() as (source, point):
        words = [*command("passthrough_fh", source, point), "-d"]
        with serve(words, point, environment="max_pages=64,max_write=8K,direct_io") as served:
            written = write_direct(point / "file", 65536)
            assert served.asked("WRITE") == [80 + 8192] * 8
            assert read_direct(point / "file", 256 << 10) == written
            assert re.findall(r" read\[\d+\] (\d+) bytes from 0", served.log) == ["262144"]


def test_parallel_direct_writes() -> None:
    """Parallel writers of one file; without the option, one at a time."""
    delay = "write_delay=1s"
    assert in_flight("direct_io", delay) == 1
    assert in_flight("direct_io,parallel_direct_writes", delay) > 1


def test_max_threads() -> None:
    delay = "read_delay=1s"
    assert in_flight("direct_io", delay, read=True) > 1
    assert in_flight("direct_io,max_threads=1", delay, read=True) == 1


@pytest.mark.parametrize(("environment", "devices"), [("", 1), ("clone_fd", 2)])
def test_clone_fd_gives_threads_devices_of_their_own(environment: str, devices: int) -> None:
    with hello(environment) as served:
        directory = Path(f"/proc/{served.process.pid}/fd")
        found = [fd for fd in directory.iterdir() if os.readlink(fd) == "/dev/fuse"]
        assert min(len(found), 2) == devices


@pytest.mark.parametrize(
    ("environment", "spliced"),
    [
        ("max_pages=64,splice=off", set()),
        ("max_pages=64,splice=read", {"in"}),
        ("max_pages=64,splice=read+write+move", {"in", "out"}),
    ],
)
def test_splice(environment: str, spliced: set[str]) -> None:
    """How data moves between device and pipe, from the arguments in strace's output."""
    with scratch() as (source, point):
        trace = source.with_name("trace")
        prefix = ["strace", "-f", "-y", "-e", "trace=splice,vmsplice", "-o", str(trace)]
        (source / "file").write_bytes(b"s" * 65536)
        words = command("passthrough_ll", source, point)
        with serve(words, point, environment=environment, prefix=prefix):
            (point / "new").write_bytes(b"t" * 65536)
            assert (point / "file").read_bytes() == b"s" * 65536
        found = set()
        for line in trace.read_text().splitlines():
            if "splice(" in line:
                first = line.partition("splice(")[2].partition(",")[0]
                found.add("in" if "/dev/fuse" in first else "out" if "/dev/fuse" in line else "")
        assert found - {""} == spliced


if LIBRARY.suffix != ".3":  # 3.14 has no such requests

    def test_writeback_cache_reads_unnamed_files_that_are_opened_to_write() -> None:
        """The kernel reads the page of which it writes a part."""
        with scratch() as (source, point):
            words = command("passthrough_ll", source, point)
            with serve(words, point, environment="writeback_cache"):
                fd = os.open(point, os.O_WRONLY | os.O_TMPFILE)
                try:
                    os.write(fd, b"u" * 4096)
                    os.fsync(fd)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    assert os.pwrite(fd, b"v", 7) == 1
                finally:
                    os.close(fd)


# What is refused


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        (f"max_pages={_MOST + 1}", f"fuse: max_pages is refused: the limit is {_MOST} pages"),
        ("max_pages=16,max_write=128K", "fuse: max_write is refused: 131072 bytes are more than"),
        ("max_readahead=1G", "fuse: max_readahead is refused: the kernel offers 131072 bytes"),
        ("no_file_caps", "fuse: no_file_caps is refused: it needs a mount with fusetuned"),
        ("atomic_open", "fuse: atomic_open is refused: it needs a mount with fusetuned"),
        ("io_uring", "fuse: io_uring is refused: "),
    ],
)
def test_what_cannot_be_had_is_refused_or_left_out(environment: str, why: str) -> None:
    assert why in said_when_refused(environment)
    with hello(f"{environment},tuned_if_possible") as served:
        assert why.replace("refused", "left out") in served.log


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ("max_page=3", "fuse: FUSETUNE_OPTIONS: max_page=3 is not an option of the tuned libfuse3"),
        ("max_pages=0", "max_pages=0 takes a number from 1 to 65535"),
        ("max_pages", "max_pages takes a number from 1 to 65535"),
        ("max_write=4095", "max_write=4095 takes a size from 4K to 262140K"),
        ("max_write=99999999999999999999", "takes a size"),
        ("direct_io=1", "direct_io=1 takes no value"),
        ("splice=read+", "splice=read+ takes off, or read, write, move"),
        ("tuned_if_possible,direct_io,other", "other is not an option"),
    ],
)
def test_what_is_wrong_is_refused(environment: str, why: str) -> None:
    assert why in said_when_refused(environment)


if "version: '3.18" in (OUT / "source" / "meson.build").read_text():  # which added io_uring

    def test_atomic_open_does_not_go_with_io_uring() -> None:
        why = "fuse: atomic_open is refused: it does not go with io_uring"
        with (
            pytest.raises(RuntimeError, match=why),
            scratch() as (source, point),
            serve(
                command("hello", source, point),
                point,
                options="io_uring",
                environment="atomic_open",
            ),
        ):
            pass


def test_a_wrong_argument_is_refused() -> None:
    with (
        pytest.raises(RuntimeError, match="max_pages=x takes"),
        scratch() as (source, point),
        serve(command("hello", source, point), point, options="max_pages=x"),
    ):
        pass


def test_without_the_module_tuned_is_stock_with_one_line() -> None:
    with hello("tuned") as served:
        assert served.ours() == [
            "fuse: mounted with the kernel's own FUSE: there is no /dev/fusetuned"
        ]
        assert served.answered_init()["max_write"] == "0x00100000"


def test_a_pipe_too_small_is_told() -> None:
    """An unprivileged server, whose pipes are limited to fs.pipe-max-size."""
    most = int(Path("/proc/sys/fs/pipe-max-size").read_text())
    with scratch() as (source, point):
        words = [*NOBODY, *command("hello", source, point)]
        os.chown(point, 65534, 65534)
        said = refused(words, point, "splice=read") if most < (1 << 20) + 4096 else None
        assert said is None or "may not hold a request of 1052672 bytes" in said
        with serve([*words, "-d"], point, environment="splice=read,max_pages=64") as served:
            wait_for(lambda: "max_write" in served.answered_init(), "INIT")
            assert served.answered_init()["max_write"] == "0x00040000"
