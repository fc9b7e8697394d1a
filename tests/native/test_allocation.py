# SPDX-License-Identifier: GPL-2.0-or-later
"""Where blocks lie, according to FIEMAP (Documentation/filesystems/fiemap.rst); serialize_alloc.

mirrorfs allocates the blocks of a large write in one call (fallocate(2)) and for one file at a
time, so that the blocks of files that are written in parallel do not interleave.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusetune.report.fiemap import extents, interleaved
from tests.native.mirror import Mirror, wait_for
from tests.native.program import Fusetune

MIB = 1 << 20
_MAKE = {"ext4": ("-q", "-F", "-b", "4096"), "xfs": ("-q", "-f"), "btrfs": ("-q", "-f")}


@contextmanager
def disk(fstype: str, directory: Path) -> Iterator[Path]:
    """Yield the root of a new file system of 400 MiB."""
    image, point = directory / "image", directory / "disk"
    with image.open("wb") as file:
        file.truncate(400 * MIB)
    subprocess.run([f"mkfs.{fstype}", *_MAKE[fstype], image], check=True, timeout=60)
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", image, point], check=True, timeout=60)
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True, timeout=60)
        image.unlink()


@pytest.fixture(params=_MAKE)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with disk(request.param, tmp_path) as point:
        (point / "source").mkdir()
        yield point / "source"


def placed(path: Path) -> list[tuple[int, int]]:
    """Return the allocated ranges of a file, as (start, end) in bytes."""
    return [
        (each.start_bytes, each.start_bytes + each.length_bytes)
        for each in extents(path, sync=False)
    ]


def test_extents_are_those_that_filefrag_tells(source: Path) -> None:
    path = source / "file"
    with path.open("wb", buffering=0) as file:
        for _ in range(3):
            for name in ("file", "other"):
                with (source / name).open("ab", buffering=0) as part:
                    part.write(os.urandom(MIB))
                    os.fsync(part.fileno())
        file.truncate(8 * MIB)
    found = list(extents(path))
    shown = subprocess.run(
        ["filefrag", "-v", "-b1", path], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    line = re.compile(r"^ *\d+: *(\d+)\.\. *\d+: *(\d+)\.\. *\d+: *(\d+):", re.M)
    told = [(int(m[1]), int(m[2]), int(m[3])) for m in line.finditer(shown)]
    assert sum(each.length_bytes for each in found) == sum(length for _, _, length in told)
    assert {(e.start_bytes, e.physical_bytes) for e in found} <= {(a, b) for a, b, _ in told}
    assert found[-1].start_bytes + found[-1].length_bytes >= 3 * MIB


@pytest.mark.parametrize("source", ["ext4", "xfs"], indirect=True)
def test_a_large_write_has_its_blocks_at_once(source: Path, tmp_path: Path) -> None:
    """Past the end and in a hole; no smaller write, and none without the option.

    btrfs does not report blocks of data that is still in memory.
    """
    for options, expected in (((), []), (("serialize_alloc=512K",), [(4 * MIB, 5 * MIB)])):
        with Mirror(source, tmp_path / "mnt", "direct_io", *options) as mirror:
            path = mirror.mountpoint / "file"
            for size in (0, 8 * MIB):
                with path.open("wb", buffering=0) as file:
                    if size:
                        file.truncate(size)
                    assert os.pwrite(file.fileno(), os.urandom(MIB), 4 * MIB) == MIB
                    assert os.pwrite(file.fileno(), os.urandom(8192), 6 * MIB) == 8192
                    assert path.stat().st_size == max(size, 6 * MIB + 8192)
                    assert placed(source / "file") == expected
                path.unlink()


def beginnings(directory: Path) -> set[int]:
    """Return where in a MiB the pieces of eight files begin."""
    files = [directory / f"file{number}" for number in range(8)]
    return {each.start_bytes % MIB for path in files for each in extents(path)}


def test_files_written_in_turn_lie_in_pieces(source: Path) -> None:
    """The control for the next test: small synced appends begin pieces anywhere."""
    for _ in range(8):
        for number in range(8):
            with (source / f"file{number}").open("ab", buffering=0) as file:
                file.write(os.urandom(192 << 10))
                os.fsync(file.fileno())
    assert beginnings(source) > {0}


def test_writers_side_by_side_have_each_write_in_one_piece(source: Path, tmp_path: Path) -> None:
    def write(number: int) -> bytes:
        data = os.urandom(16 * MIB)
        with (mirror.mountpoint / f"file{number}").open("wb", buffering=0) as file:
            for start in range(0, len(data), MIB):
                file.write(data[start : start + MIB])
        return data

    options = ("direct_io", "serialize_alloc=1M")
    with Mirror(source, tmp_path / "mnt", *options) as mirror, ThreadPoolExecutor(8) as pool:
        written = list(pool.map(write, range(8)))
    for number, data in enumerate(written):
        path = source / f"file{number}"
        assert path.read_bytes() == data
    assert beginnings(source) == {0}


def fill(path: Path) -> None:
    """Write until a write fails."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(MIB))


@pytest.mark.parametrize("source", ["ext4", "xfs"], indirect=True)
def test_a_full_disk_is_told_by_the_write(source: Path, tmp_path: Path) -> None:
    with Mirror(source, tmp_path / "mnt", "direct_io", "serialize_alloc=1M") as mirror:
        path = mirror.mountpoint / "file"
        with pytest.raises(OSError, match="No space left"):
            fill(path)
        path.unlink()
        # The server closes the file after its user.
        wait_for(lambda: shutil.disk_usage(source).free > 100 * MIB, "its room to be free")
        (mirror.mountpoint / "other").write_bytes(bytes(2 * MIB))


def test_doctor_tells_of_files_between_each_others_blocks(
    source: Path, fusetune: Fusetune, tmp_path: Path
) -> None:
    """Files written in turn with a sync each time, and one with contiguous blocks."""
    for name in ("one", "two"):
        (source / name).touch()
    for _ in range(8):
        for name in ("one", "two"):
            with (source / name).open("ab", buffering=0) as file:
                file.write(os.urandom(MIB))
                os.fsync(file.fileno())
    found = {each.path.name: each for each in interleaved(source)}
    torn = sum(each.torn for each in found.values())
    finding = [
        each["what"]
        for each in fusetune.json("doctor", "--backing", source)["findings"]
        if each["name"] == "interleaved-files"
    ]
    assert torn > 0
    assert len(finding) == 1
    whole = source / "whole"
    whole.mkdir()
    (whole / "file").write_bytes(os.urandom(8 * MIB))
    assert not interleaved(whole)
    assert not interleaved(source, least_bytes=9 * MIB)
    with Mirror(source, tmp_path / "mnt") as mirror:
        said = fusetune.fails("doctor", "--backing", mirror.mountpoint / "whole", code=2)
        assert f"is in the FUSE mount {mirror.mountpoint}" in said
    assert "No such file" in fusetune.fails("doctor", "--backing", source / "none")


def test_doctor_says_where_no_place_is_told(fusetune: Fusetune, tmpfs_dir: Path) -> None:
    (tmpfs_dir / "file").write_bytes(bytes(4 * MIB))
    assert "does not support FIEMAP" in fusetune.fails("doctor", "--backing", tmpfs_dir)
