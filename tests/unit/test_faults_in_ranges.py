# SPDX-License-Identifier: GPL-2.0-or-later
"""Page faults in ranges of existing files: what they read, and how their failure is reported."""

import subprocess
import sys
from pathlib import Path

import pytest

from fusetune.bench.faults import Faults, blocks_of
from fusetune.bench.ranges import Range
from fusetune.bench.workloads import WORKLOADS, only_job
from fusetune.errors import FusetuneError

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("job", "expected", "blocks"),
    [("random", Faults(MIB, 4 * KIB), 3), ("sequential", Faults(128 * KIB, 128 * KIB), 24)],
)
def test_a_range_is_read_like_the_job_reads_its_file(
    tmp_path: Path, job: str, expected: Faults, blocks: int
) -> None:
    faults = Faults.of(only_job(WORKLOADS["mmap-read"], job), MIB)
    assert faults == expected
    file = tmp_path / "file"
    file.write_bytes(bytes(8 * MIB))
    for seconds, read in ((10.0, blocks), (0.0, 1)):
        program, *words = faults.command(str(file), Range(0, 4 * MIB, 3 * MIB), seconds)
        assert program == "python3"
        done = subprocess.run([sys.executable, *words], capture_output=True, check=True, timeout=60)
        number, taken = blocks_of(done.returncode, done.stdout, done.stderr)
        assert number == read
        assert taken > 0


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "said"),
    [
        (-7, b"", b"", "exit status -7"),  # SIGBUS
        (1, b"", b"Traceback\nValueError: mmap length is greater\x1b than\n", r"greater\\x1b than"),
        (0, b"0 5\n", b"", "0 5"),
        (0, b"4 5\n6 7\n", b"", "6 7"),
        (2, b"4 5\n", b"", "4 5"),
    ],
)
def test_a_program_that_fails(status: int, stdout: bytes, stderr: bytes, said: str) -> None:
    with pytest.raises(FusetuneError, match=rf"^a mapped file could not be read: .*{said};"):
        blocks_of(status, stdout, stderr)
