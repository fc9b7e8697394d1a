# SPDX-License-Identifier: GPL-2.0-or-later
"""Page faults in ranges of existing files: what they read, and how their failure is reported."""

import subprocess
import sys
from pathlib import Path

import pytest

from fusetune.bench import faults
from fusetune.bench.latency import bins_of
from fusetune.bench.ranges import Range
from fusetune.bench.workloads import WORKLOADS, only_job
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(("name", "blocks", "size"), [("random", 4, 4), ("sequential", 32, 128)])
def test_a_range_is_read_as_the_job_reads_its_file(
    mounted: Mount, tmp_path: Path, name: str, blocks: int, size: int
) -> None:
    job = only_job(WORKLOADS["mmap-read"], name)
    file = tmp_path / "file"
    file.write_bytes(bytes(8 * MIB))
    for seconds, count in ((10.0, blocks), (0.0, 1)):
        program, *words = faults.command(job, str(file), Range(0, 4 * MIB, 4 * MIB), MIB, seconds)
        assert program == "python3"
        done = subprocess.run([sys.executable, *words], capture_output=True, check=True, timeout=60)
        found = faults.job_of(mounted, done.returncode, done.stdout, done.stderr)
        assert found["read"]["total_ios"] == count
        assert found["read"]["io_bytes"] == count * size * KIB
        bins = bins_of(job, [found])
        assert bins.total() == count
        waited = sum(nanoseconds * number for nanoseconds, number in bins.items())
        assert job.figure([found]) == pytest.approx(count * size * KIB * 1e9 / waited)


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "said"),
    [
        (-7, b"", b"", "cannot measure in .*: Input/output error"),  # SIGBUS
        (1, b"", b"ValueError: mmap length is greater\x1b than", r"status 1 .*greater\\x1b than"),
        (0, b'{"jobs": []}', b"", "python3 exited with status 0 without a readable result"),
        (0, b'{"jobs": [{"error": 3000000000}]}', b"", "cannot measure in .*: Input/output error"),
        (0, b'{"jobs": [{"error": 0}, {"error": 0}]}', b"", "results of 2 jobs instead of one"),
    ],
)
def test_a_program_that_fails(
    mounted: Mount, status: int, stdout: bytes, stderr: bytes, said: str
) -> None:
    with pytest.raises(FusetuneError, match=said):
        faults.job_of(mounted, status, stdout, stderr)
