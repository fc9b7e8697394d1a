# SPDX-License-Identifier: GPL-2.0-or-later
"""Which ranges of files a run reads: none twice, all cold or all warm; how files are found.

The walk is on a real directory tree.
"""

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.bench import finding
from fusetune.bench.finding import MOST_FILES, MOST_SMALL, Wanted, find_files
from fusetune.bench.ranges import MIB, Range, Ranges
from fusetune.bench.workloads import WORKLOADS
from fusetune.errors import FusetuneError


def drain(ranges: Ranges, most: int) -> list[Range]:
    return [one for _ in range(most) for one in ranges.take()]


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 1 << 36), max_size=6).map(lambda sizes: [MIB, *sizes]),
    st.integers(1, 3),
    st.integers(0, 1 << 31),
)
def test_ranges_are_in_their_files_and_apart(sizes: list[int], workloads: int, wanted: int) -> None:
    ranges = Ranges(sizes, workloads, wanted)
    assert ranges.length <= max(wanted, MIB)
    found = sorted(ranges.every, key=lambda one: (one.file, one.offset))
    assert ranges.cold == (ranges.count >= 60 * workloads)
    for one, other in pairwise(found):
        assert one.file != other.file or one.offset + one.length <= other.offset
    assert all(one.offset + one.length <= sizes[one.file] for one in found)


def test_a_cold_run_reads_nothing_twice_and_ends() -> None:
    ranges = Ranges([61 * MIB], 1, MIB)
    assert ranges.cold
    assert ranges.affordable() == 61
    taken = drain(ranges, 100)
    assert len(taken) == len(set(taken)) == 61
    assert taken != sorted(taken, key=lambda one: one.offset)
    assert ranges.take() == []


def test_a_warm_run_reads_all_before_any_again() -> None:
    ranges = Ranges([10 * MIB], 1, MIB)
    assert not ranges.cold
    assert ranges.affordable() == float("inf")
    ranges.keep(ranges.every[:8])
    taken = drain(ranges, 24)
    for start in (0, 8, 16):
        assert set(taken[start : start + 8]) == set(ranges.every)


def test_ranges_taken_together_are_of_different_files() -> None:
    cold = Ranges([64 * MIB] * 3, 3, MIB)
    assert cold.cold
    for _ in range(64):
        assert {one.file for one in cold.take(3)} == {0, 1, 2}
    assert cold.take(3) == []
    warm = Ranges([4 * MIB, 4 * MIB, MIB], 3, MIB)
    assert not warm.cold
    assert warm.files == 3
    taken = [warm.take(3) for _ in range(6)]
    assert all(len(set(together)) == 3 for together in taken)
    flat = [one for together in taken for one in together]
    assert set(flat[:9]) == set(flat[9:]) == set(warm.every)


def test_a_cold_run_ends_before_ranges_taken_together_are_fewer() -> None:
    ranges = Ranges([121 * MIB], 2, MIB)
    assert ranges.cold
    assert all(len(set(ranges.take(2))) == 2 for _ in range(60))
    assert ranges.take(2) == []
    assert len(ranges.take()) == 1


def test_a_quarter_is_long_enough_to_be_cold() -> None:
    assert Ranges([64 * 16 * MIB], 1, 64 * MIB).length == 16 * MIB
    assert not Ranges([64 * 8 * MIB], 1, 64 * MIB).cold


@pytest.mark.parametrize(("size", "is_cold"), [(24 * 17 - 1, False), (24 * 17, True)])
def test_what_samples_read_ahead_must_leave_enough(size: int, is_cold: bool) -> None:
    assert Ranges([size * MIB], 1, MIB).cold
    assert Ranges([size * MIB], 1, MIB, ahead=16 * MIB).cold is is_cold


def test_what_was_read_ahead_is_given_up() -> None:
    ranges = Ranges([64 * MIB, 64 * MIB], 1, MIB)
    ranges.give_up(0, MIB - 1, 3 * MIB + 1)
    left = drain(ranges, 200)
    assert {(one.file, one.offset // MIB) for one in ranges.every} - {
        (one.file, one.offset // MIB) for one in left
    } == {(0, 0), (0, 1), (0, 2), (0, 3)}


@pytest.mark.parametrize("least", [MIB, 4 * MIB])
def test_a_file_too_small_has_no_range(least: int) -> None:
    assert Ranges([least], 1, MIB, least).length == least
    with pytest.raises(ValueError, match="no range"):
        Ranges([least - 1], 1, MIB, least)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("seq-read", "mmap-read", "many-streams", "open-storm")),
        *((name, False) for name in ("mixed", "database", "metadata", "tree-copy")),
    ],
)
def test_which_workloads_can_read_any_file(name: str, expected: bool) -> None:
    assert WORKLOADS[name].only_reads is expected


# The walk


def make(file: Path, size: int, modified: float = 1e9) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.truncate(size)
    os.utime(file, (modified, modified))


def found(top: Path, *paths: str) -> list[str]:
    return both_found(top, Wanted(paths))[0]


def both_found(top: Path, wanted: Wanted) -> tuple[list[str], list[str]]:
    fd = os.open(top, os.O_PATH)
    try:
        files, opened = find_files(fd, wanted)
        for file in files:
            assert os.fstat(file.fd).st_size == file.size
            os.close(file.fd)
        return [file.path for file in files], opened
    finally:
        os.close(fd)


def test_large_files_come_first_and_new_ones_before_old(tmp_path: Path) -> None:
    make(tmp_path / "old", 20 * MIB)
    make(tmp_path / "deep" / "er" / "new", 20 * MIB, 2e9)
    make(tmp_path / "newest but small", 2 * MIB, 3e9)
    make(tmp_path / "too small", MIB - 1, 3e9)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("old")
    assert found(tmp_path) == ["deep/er/new", "old", "newest but small"]
    assert found(tmp_path, "deep") == ["deep/er/new"]
    assert found(tmp_path, "newest but small", "deep") == ["newest but small", "deep/er/new"]


def test_no_more_files_than_a_run_can_hold(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 6):
        make(tmp_path / str(number), MIB)
    assert len(found(tmp_path)) == MOST_FILES


def test_files_to_open_may_be_small(tmp_path: Path) -> None:
    make(tmp_path / "large", 2 * MIB)
    make(tmp_path / "below" / "small", 4096)
    make(tmp_path / "tiny", 4095)
    (tmp_path / "link").symlink_to("large")
    files, opened = both_found(tmp_path, Wanted(opens=True))
    assert files == ["large"]
    assert opened == ["large", "below/small"]
    assert both_found(tmp_path, Wanted(["below"], ranges=False, opens=True))[1] == ["below/small"]
    assert both_found(tmp_path, Wanted(["below/small", "large"], opens=True)) == (
        ["large"],
        ["below/small", "large"],
    )
    known = Wanted(["large"], opens=True, opened=["below/small"])
    assert both_found(tmp_path, known) == (["large"], ["below/small"])
    for number in range(MOST_SMALL):
        make(tmp_path / "more" / str(number), 4096)
    assert len(both_found(tmp_path, Wanted(ranges=False, opens=True))[1]) == MOST_SMALL


def test_long_paths_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_MOST_CHARACTERS", 4000)
    deep = "/".join(["d" * 200] * 4)
    for number in range(10):
        make(tmp_path / deep / f"file-{number}", MIB)
    # 200, 401, 602 and 803 characters to the directory, then 810 for each file.
    assert len(found(tmp_path)) == (4000 - 200 - 401 - 602 - 803) // 810


def test_a_walk_leaves_neither_the_directory_nor_the_mount(tmp_path: Path) -> None:
    make(tmp_path / "secret", 2 * MIB)
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "out").symlink_to(tmp_path)
    for path in ("", "out", "out/secret", "../secret", "/etc/passwd"):
        with pytest.raises(FusetuneError):
            found(tmp_path / "top", path)


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root")
def test_a_directory_without_permission_is_passed_over_or_told(tmp_path: Path) -> None:
    make(tmp_path / "locked" / "file", 2 * MIB)
    make(tmp_path / "open", 2 * MIB)
    tmp_path.chmod(0o755)
    (tmp_path / "locked").chmod(0o700)
    script = (
        "import os, sys; from fusetune.bench.finding import Wanted, find_files; "
        "os.setgid(65534); os.setuid(65534); "
        "print([f.path for f in find_files(int(sys.argv[1]), Wanted(sys.argv[2:]))[0]])"
    )
    top = os.open(tmp_path, os.O_PATH)
    words = ["/usr/bin/python3", "-c", script, str(top)]
    done = subprocess.run(words, pass_fds=[top], capture_output=True, text=True, check=False)
    assert done.stdout == "['open']\n", done.stderr
    done = subprocess.run(
        [*words, "locked"], pass_fds=[top], capture_output=True, text=True, check=False
    )
    os.close(top)
    assert "locked: Permission denied" in done.stderr
