# SPDX-License-Identifier: GPL-2.0-or-later
"""Page faults in a range of an existing file, as a job of mmap-read makes them in its file.

fio cannot make them: it maps a file from its start, wherever the range is (fio 3.33,
engines/mmap.c, fio_mmap_prep_full()).
"""

import errno
import signal
from typing import Any

from fusetune.bench.fio import jobs_of, only
from fusetune.bench.place import failure
from fusetune.bench.ranges import Range
from fusetune.bench.readers import block_and_step
from fusetune.bench.workloads import Workload
from fusetune.mounts.mount import Mount

_PROGRAM_NAME = "python3"
#: Drops the range from the page cache and reads it through a mapping, until the time is up. Prints
#: what fio prints of a job, as far as it is used here.
_PROGRAM = """
import collections, json, mmap, os, sys, time
name, *numbers = sys.argv[1:]
offset, length, step, block, nanoseconds = map(int, numbers)
file = os.open(name, os.O_RDONLY)
os.posix_fadvise(file, offset, length, os.POSIX_FADV_DONTNEED)
waits = []
with mmap.mmap(file, length, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=offset) as mapped:
    before, began = os.times(), time.monotonic_ns()
    end = began
    for at in range(0, length, step):
        if end - began > nanoseconds:
            break
        last = end
        mapped[at : at + block]
        end = time.monotonic_ns()
        waits.append(end - last)
    after = os.times()
taken = max(1, end - began)
read = {
    "io_bytes": len(waits) * block,
    "total_ios": len(waits),
    "bw_bytes": len(waits) * block * 1e9 / taken,
    "clat_ns": {"bins": collections.Counter(waits)},
}
job = {
    "error": 0,
    "job_runtime": taken / 1e6,
    "usr_cpu": (after.user - before.user) * 1e11 / taken,
    "sys_cpu": (after.system - before.system) * 1e11 / taken,
    "read": read,
    "write": {"io_bytes": 0, "bw_bytes": 0, "clat_ns": {}},
}
print(json.dumps({"jobs": [job]}))
"""


def command(job: Workload, name: str, one: Range, apart: int, seconds: float) -> list[str]:
    """Return the command for at most ``seconds`` of a job's faults in a range of the file ``name``.

    Random faults are ``apart`` bytes apart.
    """
    block, step = block_and_step(job.job, apart)
    numbers = (one.offset, one.length, step, block, int(seconds * 1e9))
    return [_PROGRAM_NAME, "-I", "-S", "-c", _PROGRAM, name, *map(str, numbers)]


def job_of(mount: Mount, status: int, stdout: bytes, stderr: bytes) -> dict[str, Any]:
    """Return the result, as fio's of a job. Raises FusetuneError if the command failed."""
    if status == -signal.SIGBUS:  # the kernel could not read a page
        raise failure(mount, errno.EIO, "measure")
    return only(jobs_of(mount, _PROGRAM_NAME, status, stdout, stderr))
