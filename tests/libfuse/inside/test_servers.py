# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers for the distribution's library: stock behaviour on ours, tuned on request."""

import os
import re
from pathlib import Path

import pytest

from tests.libfuse.inside.libfuse_servers import (
    LIBRARY,
    STOCK,
    STRACE,
    TUNED,
    command,
    scratch,
    serve,
    write_direct,
)

_SERVERS = ("passthrough", "passthrough_fh", "passthrough_ll", "passthrough_hp", "sshfs")
_EVERY = pytest.mark.parametrize("server", _SERVERS)
#: Whether it is libfuse 3.14, which has neither passthrough nor memfs_ll.
_OLD = LIBRARY.suffix == ".3"
#: Keeps files in memory, where they can only be seen through the mount.
_MEMORY = () if _OLD else ("memfs_ll",)
_PIECE = 4096
_HEADER = 80  # of a WRITE: fuse_in_header and fuse_write_in


def debug(server: str, source: Path, point: Path) -> list[str | Path]:
    """Return a command that prints each request."""
    words = command(server, source, point)
    if server == "sshfs":
        return [*STRACE, *words]
    return words if server == "passthrough_hp" else [*words, "-d"]


def unspliced(server: str, environment: str) -> str:
    """Return the options with which strace sees each request."""
    return f"{environment},splice=off" if server == "sshfs" else environment


def loaded(pid: int) -> set[Path]:
    """Return the directories of the libfuse3 mapped by a process, or by the child of strace."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    maps = Path(f"/proc/{children[0] if children else pid}/maps").read_text()
    return {Path(path).parent for path in re.findall(r"/.*/libfuse3\.so.*", maps)}


def work(point: Path) -> bytes:
    """Create, write, append, read, rename and remove; return what was read."""
    file = point / "file"
    # No buffers: some versions of memfs_ll leave st_blksize to chance.
    for mode, data in (("wb", b"x" * 100_000), ("ab", b"appended")):
        with file.open(mode, buffering=0) as stream:
            assert stream.write(data) == len(data)
    with file.open("rb", buffering=0) as stream:
        read = stream.read()
    os.rename(file, point / "other")
    (point / "directory").mkdir()
    assert sorted(os.listdir(point)) == ["directory", "other"]
    (point / "directory").rmdir()
    (point / "other").unlink()
    return read


@pytest.mark.parametrize("server", [*_SERVERS, *_MEMORY])
def test_without_options_it_is_as_stock(server: str) -> None:
    """The same reply to INIT (which strace does not show), requests and data."""
    first, second = _asked_by_both(server)
    assert first == second


def _asked_by_both(server: str) -> list[object]:
    """Return requests and replies of the distribution's library, and then of ours."""
    asked: list[object] = []
    for tuned in (False, True):
        with scratch() as (source, point):
            with serve(debug(server, source, point), point, tuned=tuned) as served:
                assert loaded(served.process.pid) == {TUNED if tuned else STOCK}
                assert work(point) == b"x" * 100_000 + b"appended"
                counts = {kind: len(served.asked(kind)) for kind in ("OPEN", "CREATE")}
                asked.append((served.answered_init(), served.asked("WRITE"), counts))
            assert os.listdir(source) == []
    return asked


@_EVERY
@pytest.mark.parametrize("pages", [32, 64])
def test_max_pages_sets_the_size_of_requests(server: str, pages: int) -> None:
    with scratch() as (source, point):
        words = debug(server, source, point)
        options = unspliced(server, f"max_pages={pages},direct_io")
        with serve(words, point, environment=options) as served:
            written = write_direct(point / "file", 1 << 20)
            size = pages * 4096
            assert served.asked("WRITE") == [_HEADER + size] * ((1 << 20) // size)
        assert (source / "file").read_bytes() == written


@_EVERY
def test_writeback_cache_gathers_small_writes(server: str) -> None:
    """The file is opened write-only and for appending; both work."""
    with scratch() as (source, point):
        words = debug(server, source, point)
        options = unspliced(server, "writeback_cache")
        with serve(words, point, environment=options) as served:
            for _ in range(2):
                with (point / "file").open("ab", buffering=0) as stream:
                    for _ in range(64):
                        stream.write(b"z" * 100)
            with (point / "file").open("ab", buffering=0) as stream:
                os.fsync(stream.fileno())
            assert 1 <= len(served.asked("WRITE")) <= 8
        assert (source / "file").read_bytes() == b"z" * 12_800


@_EVERY
def test_direct_io_bypasses_the_page_cache(server: str) -> None:
    counts = []
    for environment in ("", "direct_io"):
        with scratch() as (source, point):
            (source / "file").write_bytes(b"r" * _PIECE)
            options = unspliced(server, environment)
            with serve(debug(server, source, point), point, environment=options) as served:
                fd = os.open(point / "file", os.O_RDONLY)
                for _ in range(3):
                    assert os.pread(fd, _PIECE, 0) == b"r" * _PIECE
                os.close(fd)
                counts.append(len(served.asked("READ")))
    assert counts == [1, 3]


def test_hello_takes_options_on_its_command_line() -> None:
    """A server with no parser of its own passes on what it does not know."""
    with scratch() as (source, point):
        words = debug("hello", source, point)
        with serve(words, point, options="max_background=77,max_readahead=64K") as served:
            assert (point / "hello").read_text() == "Hello World!\n"
            answer = served.answered_init()
            assert (answer["max_background"], answer["congestion_threshold"]) == ("77", "57")
            assert answer["max_readahead"] == "0x00010000"


if not _OLD:

    def test_direct_io_does_not_end_passthrough() -> None:
        """A passthrough file stays a passthrough file."""
        with scratch() as (source, point):
            (source / "file").write_bytes(b"r" * _PIECE)
            words = [
                word for word in debug("passthrough_hp", source, point) if "nopass" not in str(word)
            ]
            with serve(words, point, environment="direct_io") as served:
                assert (point / "file").read_bytes() == b"r" * _PIECE
                assert (len(served.asked("OPEN")), served.asked("READ")) == (1, [])
