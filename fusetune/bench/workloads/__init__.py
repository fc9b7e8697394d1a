# SPDX-License-Identifier: GPL-2.0-or-later
"""fio job files, and what each of them measures.

A new workload is a job file ``NAME.fio`` and an entry here. A job file may use the environment's
``FUSETUNE_RUNTIME`` (milliseconds), ``FUSETUNE_READ_SIZE`` and ``FUSETUNE_WRITE_SIZE`` (bytes) and
``FUSETUNE_FILES``, and the files ``read-data`` (laid out beforehand) and ``write-data``. Names of
other files belong in ``holder.is_scratch_file``, or they are not removed.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any, TypeVar

from fusetune.errors import FusetuneError, UsageError

Job = Mapping[str, Any]
T = TypeVar("T")
DEFAULT = "mixed"


class Access(StrEnum):
    """A way of using a mount that a knob may affect."""

    BUFFERED_READ = "buffered read"
    BUFFERED_WRITE = "buffered write"
    DIRECT_WRITE = "direct write"
    METADATA = "metadata"


def number(job: Job, *keys: str) -> float:
    """Return the number at ``keys`` of a job. FusetuneError if there is none or it is below 0."""
    value: Any = job
    try:
        for key in keys:
            value = value[key]
        found = float(value)
    except (KeyError, TypeError, ValueError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise FusetuneError(f"fio gives no number for {'.'.join(keys)}")
    return found


def bytes_per_second(jobs: Sequence[Job]) -> float:
    """Return the geometric mean of the jobs' rates in bytes/s; fsync at the end is counted."""
    rates = [sum(number(job, way, "bw_bytes") for way in ("read", "write")) for job in jobs]
    if not rates or min(rates) <= 0:
        raise FusetuneError("fio reports no bytes moved")
    return statistics.geometric_mean(rates)


def operations_per_second(jobs: Sequence[Job]) -> float:
    """Return file operations/s over all jobs, from fio's completion latency (nanoseconds).

    The file engines report each operation as a read (fio's engines/filecreate.c and its kin);
    their run time in whole milliseconds would be too coarse.
    """
    return sum(number(job, "read", "clat_ns", "N") for job in jobs) / _busy_seconds(jobs, "read")


def bytes_per_second_in_write(jobs: Sequence[Job]) -> float:
    """Return bytes/s of the time spent in write(2), throttling by the kernel included.

    This is what a burst costs the program that writes it. The fsync after it is not counted; it
    leaves no dirty page for the next sample.
    """
    return sum(number(job, "write", "io_bytes") for job in jobs) / _busy_seconds(jobs, "write")


def _busy_seconds(jobs: Sequence[Job], way: str) -> float:
    """Return the time from the start of each operation to its end, summed."""
    seconds = sum(
        number(job, way, "clat_ns", "N") * number(job, way, "clat_ns", "mean") / 1e9 for job in jobs
    )
    if seconds <= 0:
        raise FusetuneError("fio reports no operation done")
    return seconds


@dataclass(frozen=True)
class Workload:
    """A fio job, the unit of its figure (more is better), and the files it needs.

    ``accesses``: the knobs that affect these are searched; ``reads``: it reads a file laid out
    beforehand; ``writes``: it writes ``write-data``; ``makes_files``: it makes small files and
    removes them. ``figure`` returns the figure of fio's jobs. ``text``: the job, if it is not in a
    file. ``least_bytes``: the smallest file that it can write.
    """

    name: str
    measures: str
    accesses: frozenset[Access]
    reads: bool = False
    writes: bool = False
    makes_files: bool = False
    unit: str = "bytes_per_second"
    figure: Callable[[Sequence[Job]], float] = bytes_per_second
    text: str = ""
    least_bytes: int = 1 << 20

    @property
    def job(self) -> str:
        """Text of the fio job file."""
        return self.text or (files(__package__) / f"{self.name}.fio").read_text(encoding="utf-8")


_READ = frozenset({Access.BUFFERED_READ})
_WRITE = frozenset({Access.BUFFERED_WRITE})
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "mixed",
            "a reader, a writer and a random reader at once",
            _READ | _WRITE,
            reads=True,
            writes=True,
        ),
        Workload("seq-read", "cold sequential reading", _READ, reads=True),
        Workload(
            "seq-write", "sequential writing in 128 KiB blocks, with fsync", _WRITE, writes=True
        ),
        Workload(
            "small-write",
            "a burst of 4 KiB buffered writes, as its program waits for it",
            _WRITE,
            writes=True,
            figure=bytes_per_second_in_write,
        ),
        Workload("rand-read", "cold random 4 KiB reading", _READ, reads=True),
        Workload("rand-write", "random 4 KiB buffered writing, with fsync", _WRITE, writes=True),
        Workload(
            "shared-write",
            "four direct writers in one file",
            frozenset({Access.DIRECT_WRITE}),
            writes=True,
        ),
        Workload(
            "metadata",
            "create, open, stat and unlink of small files",
            frozenset({Access.METADATA}),
            makes_files=True,
            unit="operations_per_second",
            figure=operations_per_second,
        ),
    )
}


def chosen(names: Sequence[str]) -> list[Workload]:
    """Return the workloads of these names, each once, or the default for none.

    Raises UsageError for an unknown name.
    """
    return picked("workload", WORKLOADS, names or (DEFAULT,))


def picked(what: str, known: Mapping[str, T], names: Iterable[str]) -> list[T]:
    """Return the ``known`` entries of these names, each once. UsageError for an unknown one."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            raise UsageError(f"unknown {what} {name!r}; known are {', '.join(known)}")
    return [known[name] for name in wanted]
