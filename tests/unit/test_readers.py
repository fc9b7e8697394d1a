# SPDX-License-Identifier: GPL-2.0-or-later
"""Which part of which file each reader of a job gets, and which files a job opens."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.bench.ranges import MIB, Range
from fusetune.bench.readers import opening, parts, placed, readers
from fusetune.bench.workloads import WORKLOADS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("seq-read", {"seq-read": 1}),
        ("large-read", {"buffered": 1, "direct": 1}),
        ("mmap-read", {"random": 1, "sequential": 1}),
        ("many-streams", {"stream": 32}),
        ("video", {"player": 4}),
    ],
)
def test_how_many_readers_a_section_has(name: str, expected: dict[str, int]) -> None:
    assert readers(WORKLOADS[name].job) == expected


@given(st.integers(1, 32), st.integers(1, 32), st.sampled_from([4, 8, 64, 256]))
def test_parts_are_in_their_ranges_and_apart(files: int, count: int, length: int) -> None:
    files = min(files, count)
    ranges = [Range(file, file * MIB, length * MIB) for file in range(files)]
    found = parts(ranges, count)
    assert len(found) == count
    (size,) = {part.length for part in found}
    assert size > 0
    assert size % (128 << 10) == 0
    assert size * count <= 4 * length * MIB  # together
    for one, other in pairwise(sorted(found, key=lambda part: (part.file, part.offset))):
        assert one.file != other.file or one.offset + size <= other.offset
    for part in found:
        start = ranges[part.file].offset
        assert start <= part.offset <= start + length * MIB - size
    shared = [sum(part.file == file for part in found) for file in range(files)]
    assert max(shared) - min(shared) <= 1


def test_one_reader_gets_the_whole_range() -> None:
    assert parts([Range(0, MIB, 8 * MIB)], 1) == [Range(0, MIB, 8 * MIB)]


def test_each_reader_is_a_section_with_its_part() -> None:
    job = WORKLOADS["large-read"].job
    one, other = Range(0, MIB, 4 * MIB), Range(1, 0, 4 * MIB)
    found = placed(job, [[("a", one)], [("b", other)]])
    assert found.endswith(
        "[buffered.0]\nfilename=a\noffset=1048576\nsize=4194304\n\n"
        "[direct.0]\nfilename=b\noffset=0\nsize=4194304\nstonewall\ndirect=1\n"
    )
    assert "read-data" not in found
    assert "FUSETUNE_READ_SIZE" not in found
    video = WORKLOADS["video"].job
    found = placed(video, [[(name, one) for name in "abcd"]])
    assert [f"[player.{number}]" in found for number in range(5)] == [True] * 4 + [False]
    assert found.count("rate=6400k") == found.count("group_reporting") == 4
    assert "numjobs" not in found
    assert "25%" not in found


def test_a_job_opens_existing_files() -> None:
    found = opening(WORKLOADS["open-storm"].job, ["0", "2", "3"])
    assert "[storm]\nfilename=0:2:3\nfilesize=4k\nopenfiles=1\n" in found
    assert "nrfiles" not in found
    assert "filename_format" not in found
