# SPDX-License-Identifier: GPL-2.0-or-later
"""The bench mounts in a namespace of its own: nothing remains if it is killed."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.native.mirror import CHECKOUT, MOUNTINFO, PATIENCE, children, wait_for


def _runs_fio(bench: int) -> bool:
    for child in children(bench):
        with suppress(FileNotFoundError):  # it has ended
            if Path(f"/proc/{child}/comm").read_text() == "fio\n":
                return True
    return False


def test_mounts_of_the_bench_are_in_its_own_namespace() -> None:
    # A shell starts background jobs with SIGINT ignored, and the bench would inherit that.
    heeding = ("env", "--default-signal=INT")
    with subprocess.Popen(
        [*heeding, sys.executable, "-m", "tests.bench", "--only", "contests"],
        cwd=CHECKOUT,
        stderr=subprocess.DEVNULL,
    ) as bench:
        mounts = Path(f"/proc/{bench.pid}/mountinfo")
        try:
            # A sample, because a signal while the bench starts its server leaves a process behind.
            wait_for(lambda: " fuse.mirrorfs " in mounts.read_text(), "the bench's first mount")
            wait_for(lambda: _runs_fio(bench.pid), "the bench's first sample")
            assert " fuse.mirrorfs " not in MOUNTINFO.read_text()
        finally:
            bench.send_signal(signal.SIGINT)
            bench.wait(PATIENCE)
