# SPDX-License-Identifier: GPL-2.0-or-later
"""Page faults in a range of an existing file.

fio cannot make them: it maps a file from its start, wherever the range is (fio 3.33,
engines/mmap.c, fio_mmap_prep_full()).
"""

import re
from dataclasses import dataclass
from typing import Self

from fusetune.bench.ranges import Range
from fusetune.bench.workloads import Workload
from fusetune.errors import FusetuneError
from fusetune.text import printable

#: Drops the range from the page cache and reads it through a mapping, until the time is up.
#: Prints how many blocks it read, and in how many nanoseconds.
_PROGRAM = """
import mmap, os, sys, time
name, *numbers = sys.argv[1:]
offset, length, step, block, nanoseconds = map(int, numbers)
file = os.open(name, os.O_RDONLY)
os.posix_fadvise(file, offset, length, os.POSIX_FADV_DONTNEED)
with mmap.mmap(file, length, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=offset) as mapped:
    done, taken, began = 0, 0, time.monotonic_ns()
    for at in range(0, length, step):
        if taken > nanoseconds:
            break
        mapped[at : at + block]
        done, taken = done + 1, time.monotonic_ns() - began
print(done, taken)
"""


@dataclass(frozen=True)
class Faults:
    """What a job of page faults does: it reads ``block`` bytes in every ``step`` of a range."""

    step: int
    block: int

    @classmethod
    def of(cls, workload: Workload, apart: int) -> Self:
        """Return what a job of mmap-read does; random faults are ``apart`` bytes apart."""
        said = re.search(r"^bs=(\d+)k$", workload.job, re.MULTILINE)
        assert said, workload.name  # noqa: S101 - a job file of this package
        block = int(said[1]) << 10
        return cls(apart if "FUSETUNE_SKIPPED" in workload.job else block, block)

    def command(self, name: str, one: Range, seconds: float) -> list[str]:
        """Return the command that reads a range of the file ``name`` for at most ``seconds``."""
        numbers = (one.offset, one.length, self.step, self.block, int(seconds * 1e9))
        return ["python3", "-I", "-S", "-c", _PROGRAM, name, *map(str, numbers)]


def blocks_of(status: int, stdout: bytes, stderr: bytes) -> tuple[int, float]:
    """Return the blocks read, and the seconds. Raises FusetuneError if the program failed."""
    if status == 0 and (said := re.fullmatch(rb"([1-9]\d*) ([1-9]\d*)\n", stdout)):
        return int(said[1]), int(said[2]) / 1e9
    lines = (stderr or stdout).decode("utf-8", "replace").strip().splitlines()
    why = printable(lines[-1][:200]) if lines else f"exit status {status}"
    raise FusetuneError(f"a mapped file could not be read: {why}; check the server's log")
