# SPDX-License-Identifier: GPL-2.0-or-later
"""Data that READ fetched and nothing read, by profile and top, beside the server's own bytes."""

import json
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests import schemas
from tests.native.conftest import write_sysfs
from tests.native.mirror import PATIENCE, Mirror, wait_for
from tests.native.program import Fusetune, Started
from tests.native.requirements import requires
from tests.native.traced import BLOCK, ops

pytestmark = [
    requires("bpftrace"),
    pytest.mark.usefixtures("tracefs"),
    pytest.mark.xdist_group("probes"),
]
_MIB = 1 << 20


def _profile(fusetune: Fusetune, mirror: Mirror, work: Callable[[], None]) -> dict[str, Any]:
    """Return what profile says of ``work``."""
    process = fusetune.start("profile", mirror.mountpoint, "--for", "10m", "--json")
    assert process.stderr
    assert "watching" in process.stderr.readline()
    mirror.reset_counters()
    work()
    wait_for(lambda: not any(one["in_flight"] for one in ops(mirror).values()), "rest")
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return schemas.validate(json.loads(said))


def _share(document: dict[str, Any]) -> float | None:
    found: float | None = document["pattern"]["readahead_unused_share"]
    return found


def _fetched(mirror: Mirror) -> int:
    """Return the bytes that the server sent as replies to READ."""
    sent: int = ops(mirror)["READ"]["bytes"]
    return sent


def _files(mirror: Mirror, count: int, size: int) -> list[Path]:
    for number in range(count):
        (mirror.source / str(number)).write_bytes(os.urandom(size))
    return [mirror.mountpoint / str(number) for number in range(count)]


def _read(file: Path, places: Iterable[int], length: int = BLOCK) -> None:
    """Open a file, read so many bytes at each place, and close it."""
    fd = os.open(file, os.O_RDONLY)
    for place in places:
        os.pread(fd, length, place)
    os.close(fd)


@pytest.mark.parametrize("length", [BLOCK, 1000])
def test_a_file_that_is_read_whole_wastes_nothing(
    fusetune: Fusetune, mirror: Mirror, length: int
) -> None:
    size = 512 * length + 123
    (file,) = _files(mirror, 1, size)
    document = _profile(fusetune, mirror, lambda: _read(file, range(0, size, length), length))
    assert size <= _fetched(mirror) < size + BLOCK  # the server counts what it is asked for
    assert _share(document) == 0


def test_the_heads_of_files_leave_the_rest_unread(fusetune: Fusetune, mirror: Mirror) -> None:
    """Beside them others are read whole, with buffers that are larger than the file."""
    files = _files(mirror, 100, 1 << 18)
    small = mirror.source / "small"
    small.write_bytes(os.urandom(2 * BLOCK))

    def heads() -> None:
        for file in files:
            _read(file, [0])
            _read(mirror.mountpoint / "small", [0], _MIB)

    share = _share(_profile(fusetune, mirror, heads))
    fetched = _fetched(mirror)
    assert fetched >= 4 * len(files) * BLOCK
    assert share == pytest.approx(1 - 3 * len(files) * BLOCK / fetched)


def test_readers_that_go_on_elsewhere_leave_windows_unread(
    fusetune: Fusetune, mirror: Mirror
) -> None:
    """16 blocks in sequence out of each MiB, for which the kernel reads ahead more and more."""
    write_sysfs(mirror.bdi, read_ahead_kb=1024)
    (file,) = _files(mirror, 1, 32 * _MIB)
    places = [number * _MIB + block * BLOCK for number in range(32) for block in range(16)]
    share = _share(_profile(fusetune, mirror, lambda: _read(file, places)))
    assert share is not None
    assert share > 0.5
    assert share == pytest.approx(1 - len(places) * BLOCK / _fetched(mirror))


def test_the_rest_of_a_page_is_no_readahead(fusetune: Fusetune, mirror: Mirror) -> None:
    (file,) = _files(mirror, 1, 64 * _MIB)
    places = [number * 37 % 64 * _MIB + 5000 for number in range(1, 64)]
    document = _profile(fusetune, mirror, lambda: _read(file, places, 100))
    assert _fetched(mirror) == len(places) * BLOCK
    assert _share(document) == 0


def test_reads_that_are_too_many_are_estimated(fusetune: Fusetune, mirror: Mirror) -> None:
    size = 128 * _MIB
    (file,) = _files(mirror, 1, size)
    document = _profile(fusetune, mirror, lambda: _read(file, range(0, size, BLOCK)))
    assert document["pattern"]["reads"] < size // BLOCK / 2
    assert _fetched(mirror) == size
    share = _share(document)
    assert share is not None
    assert share < 0.2  # without an estimate it would be 0.5 at least


def _map(file: Path) -> None:
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[4 * BLOCK]


def test_faults_on_cached_pages_are_no_reads(fusetune: Fusetune, mirror: Mirror) -> None:
    """A thread reads the heads of files, and writes to a mapped one that is cached."""
    shared, *files = _files(mirror, 51, 1 << 18)
    with shared.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        stream.read()

        def work() -> None:
            for number, file in enumerate(files):
                mapped[number * BLOCK] = 1
                _read(file, [0])

        document = _profile(fusetune, mirror, work)
    assert document["pattern"]["page_faults"] == 0
    assert "mmap-read" not in document["workloads"]
    assert _share(document) == pytest.approx(1 - len(files) * BLOCK / _fetched(mirror))


def test_each_fault_that_reads_counts_once(fusetune: Fusetune, mirror: Mirror) -> None:
    """However many requests it sends."""
    write_sysfs(mirror.bdi, read_ahead_kb=2048)
    (file,) = _files(mirror, 1, 64 * _MIB)

    def work() -> None:
        with (
            file.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped,
        ):
            for place in range(2 * _MIB, len(mapped), 4 * _MIB):
                assert mapped[place] is not None

    document = _profile(fusetune, mirror, work)
    assert ops(mirror)["READ"]["count"] > 16
    assert document["pattern"]["page_faults"] == 16
    assert max(document["workloads"], key=document["workloads"].get) == "mmap-read"


def _send(file: Path) -> None:
    with file.open("rb") as stream, Path("/dev/null").open("wb") as null:
        os.sendfile(null.fileno(), stream.fileno(), 0, BLOCK)


def _scatter(file: Path) -> None:
    with file.open("rb") as stream:
        os.preadv(stream.fileno(), [bytearray(512), bytearray(512)], 0)


@pytest.mark.parametrize("way", [_map, _send, _scatter])
def test_it_is_unknown_where_not_every_read_is_seen(
    fusetune: Fusetune, mirror: Mirror, way: Callable[[Path], None]
) -> None:
    file, other = _files(mirror, 2, _MIB)

    def work() -> None:
        _read(other, [0])
        way(file)

    document = _profile(fusetune, mirror, work)
    assert _fetched(mirror) > 2 * BLOCK
    assert _share(document) is None


_HEADS = """
import os, sys
while True:
    for number in range(400):
        fd = os.open(str(number), os.O_RDONLY)
        os.read(fd, 4096)
        os.close(fd)
"""


def test_top_names_readahead_in_vain(fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path) -> None:
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", "read_delay=5ms") as mirror:
        _files(mirror, 400, 1 << 17)
        process = fusetune.start("top", mirror.mountpoint, "-i", "1s", "--json")
        reader = subprocess.Popen(["python3", "-c", _HEADS], cwd=mirror.mountpoint)
        try:
            shown = _wasting(process)
        finally:
            reader.kill()
            reader.wait(PATIENCE)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)
    assert shown["limit"]["command"] == f"fusetune set {mirror.mountpoint} read_ahead_kb=8"
    assert "of what READ fetched" in shown["limit"]["reason"]


def _wasting(process: Started) -> dict[str, Any]:
    """Return the mount of the first frame that names readahead."""
    assert process.stdout
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        (shown,) = schemas.validate(json.loads(process.stdout.readline()))["mounts"]
        if shown["limit"] and (shown["readahead_unused_share"] or 0) > 0.5:
            return dict(shown)
    raise TimeoutError(f"no frame has such a limit: {shown}")
