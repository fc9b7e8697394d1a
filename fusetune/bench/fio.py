# SPDX-License-Identifier: GPL-2.0-or-later
"""fio: its path, a job that lays out a file, and its results."""

import errno
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fusetune.bench.figures import idle
from fusetune.bench.place import failure
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from fusetune.text import printable
from fusetune.untrusted import parse

T = TypeVar("T")
#: fio's exit status if another job's end (exitall) ended a job before it began.
_ENDED_EARLY = 128


def installed() -> str:
    """Return the path of fio. Raises FusetuneError if there is none."""
    fio = shutil.which("fio")
    if not fio:
        raise FusetuneError("fio is not installed: apt install fio, or dnf install fio")
    return os.path.realpath(fio)


def laying_out(name: str, size: int, seconds: float) -> str:
    """Return a job that writes a file of ``size`` bytes, for at most ``seconds``."""
    return (
        "[global]\nthread\nclocksource=clock_gettime\nioengine=psync\nfallocate=none\n"
        f"[{name}]\nfilename={name}\nrw=write\nbs=1m\nsize={size}\n"
        f"runtime={int(seconds * 1000)}ms\nend_fsync=1\n"
    )


def files_of(job: str, known: Mapping[str, range]) -> dict[str, range]:
    """Return the files that a job names, with their ``known`` sizes (bytes); others have any."""
    names = re.findall(r"^filename=(\S+)$", job, re.MULTILINE)
    return {name: known.get(name, range(1 << 63)) for name in names}


def jobs_of(
    mount: Mount, fio: str, status: int, stdout: bytes, stderr: bytes
) -> list[dict[str, Any]]:
    """Return fio's result of each job. Raises FusetuneError if fio or the mount failed.

    It is no failure if the end of another job ended a job that had not begun.
    """
    try:
        # fio may print warnings before the JSON document.
        jobs = parse(stdout[max(0, stdout.find(b"{")) :])["jobs"]
        if not jobs:
            raise ValueError("no jobs")
        errors = [int(job["error"]) for job in jobs]
    except (ValueError, KeyError, TypeError) as problem:
        lines = (stderr + stdout).decode("utf-8", "replace").strip().splitlines()
        said = f": {printable(lines[-1][:200])}" if lines else ""
        raise FusetuneError(
            f"{fio} exited with status {status} without a readable result{said}"
        ) from problem
    if any(errors):
        number = next(filter(None, errors))
        raise failure(mount, number if number in errno.errorcode else errno.EIO, "measure")
    if status and not (status == _ENDED_EARLY and any(map(idle, jobs))):
        raise FusetuneError(f"{fio} exited with status {status}, although its jobs report no error")
    result: list[dict[str, Any]] = jobs
    return result


def only(jobs: Sequence[T]) -> T:
    """Return the result of the only job. Raises FusetuneError if there are others."""
    if len(jobs) != 1:
        raise FusetuneError(f"results of {len(jobs)} jobs instead of one")
    return jobs[0]
