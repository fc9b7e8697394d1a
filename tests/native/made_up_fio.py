# SPDX-License-Identifier: GPL-2.0-or-later
"""A fake fio whose figures depend on a mount's read_ahead_kb."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.native.conftest import sysfs_files
from tests.native.mirror import Mirror
from tests.native.servers import also_mounted

#: Above this, page faults get slower and CPU time changes.
THRESHOLD = 512
#: Each doubling of read_ahead_kb up to 4096 doubles the speed of reads. Above the threshold, page
#: faults have 60 % of their speed. seq-read has 1 % of noise. The other jobs have none, or a guard
#: would refuse a harmless value by chance, in 1.8 % of runs. CPU time is the value of the
#: expression CPU. fio sees no /sys, so the value is bind-mounted into its own directory.
_FIO = """#!/usr/bin/python3
import json, os, random, re, sys

job = sys.stdin.read()
if "rw=write" in job:  # the file to read is laid out by fio itself
    there = os.memfd_create("job")
    os.write(there, job.encode())
    os.lseek(there, 0, os.SEEK_SET)
    os.dup2(there, 0)
    os.execv("/usr/bin/fio", ["fio", *sys.argv[1:]])
ahead = int(open(os.path.dirname(os.path.realpath(__file__)) + "/ahead").read())
jobs = []
for name in re.findall(r"^\\[(?!global\\])(.+)\\]$", job, re.MULTILINE):
    bw = 1e8 if ahead <= THRESHOLD or "random" not in name else 6e7
    if name == "seq-read":
        bw = 1e6 * max(1, min(ahead, 4096)) * random.lognormvariate(0, 0.01)
    moved = {"bw_bytes": int(bw), "io_bytes": 4096, "runtime": 1, "total_ios": 1,
             "clat_ns": {"N": 1, "mean": 1e6, "bins": {"1000000": 1}}}
    idle = {"bw_bytes": 0, "io_bytes": 0, "runtime": 0, "total_ios": 0, "clat_ns": {"N": 0}}
    jobs.append({"jobname": name, "error": 0, "read": moved, "write": idle,
                 "sync": {"lat_ns": {"N": 0}}, "job_runtime": 1000,
                 "usr_cpu": 100 * (CPU), "sys_cpu": 0})
print(json.dumps({"jobs": jobs}))
"""


@contextmanager
def made_up_fio(directory: Path, mirror: Mirror, cpu: str = "0") -> Iterator[dict[str, str]]:
    """Yield an environment in which fusetune finds this fio.

    ``cpu``: CPU seconds of each job, a Python expression in which ``ahead`` is read_ahead_kb.
    """
    program, ahead = directory / "fio", directory / "ahead"
    program.write_text(_FIO.replace("THRESHOLD", str(THRESHOLD)).replace("CPU", cpu))
    program.chmod(0o755)
    ahead.touch()
    with also_mounted("--bind", sysfs_files(mirror.bdi)["read_ahead_kb"], ahead):
        yield {"PATH": f"{directory}:/usr/bin:/bin:/usr/sbin:/sbin"}
