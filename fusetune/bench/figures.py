# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures from the jobs that fio reports (fio(1), --output-format=json+)."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fusetune.errors import FusetuneError

Job = Mapping[str, Any]
#: Unit of 1 divided by a p99, which is also a figure.
P99_UNIT = "per_p99_second"
#: Key in the last job: seconds of the work on its files after it.
AFTERWARDS = "afterwards_seconds"
# The jobs of metadata that open files by fio's psync engine.
_BY_CLOCK = ("create", "open")
#: More than fio can count. A mount's owner may forge results, and sums must remain finite.
_LARGEST = 1e20
#: Seconds between two blocks of a reader of the workload video, and the deadline of a block.
FRAME_SECONDS = 0.02


def number(job: Job, *keys: str) -> float:
    """Return the number at ``keys`` of a job. FusetuneError if it is missing or impossible."""
    value: Any = job
    try:
        for key in keys:
            value = value[key]
        found = float(value)
    except (KeyError, TypeError, ValueError):
        found = math.nan
    if not 0 <= found < _LARGEST:
        raise FusetuneError(f"fio reports no number for {'.'.join(keys)}")
    return found


def idle(job: Job) -> bool:
    """Whether a job did nothing. FusetuneError if fio does not say."""
    return not sum(number(job, way, "total_ios") for way in ("read", "write"))


def bytes_per_second(jobs: Sequence[Job]) -> float:
    """Return the geometric mean of the jobs' rates in bytes/s; the fsync at the end is included."""
    rates = [sum(number(job, way, "bw_bytes") for way in ("read", "write")) for job in jobs]
    if not rates or min(rates) <= 0:
        raise FusetuneError("fio reports no bytes moved")
    return statistics.geometric_mean(rates)


def operations_per_second(jobs: Sequence[Job]) -> float:
    """Return file operations/s over all jobs, from fio's completion latency (nanoseconds).

    The file engines report each operation as a read (fio's engines/filecreate.c and others);
    their run time in whole milliseconds would be too coarse.
    """
    return sum(number(job, "read", "clat_ns", "N") for job in jobs) / _busy_seconds(jobs, "read")


def operations_in_turn(jobs: Sequence[Job]) -> float:
    """Return operations/s if each file is processed by one job of metadata after another.

    The latencies of the file engines count, as in `operations_per_second`. Those of psync leave out
    opening and closing a file, so the run time of its jobs counts, which fio rounds up to whole
    milliseconds: by half a millisecond on average.
    """
    operations = seconds = 0.0
    for job in jobs:
        way = "write" if job.get("jobname") == "create" else "read"
        operations += number(job, way, "clat_ns", "N")
        busy = _busy_seconds([job], way)
        by_clock = job.get("jobname") in _BY_CLOCK
        seconds += max(busy, (number(job, way, "runtime") - 0.5) / 1000) if by_clock else busy
    if not operations:
        raise FusetuneError("fio reports no completed operation")
    return operations / seconds


def bytes_per_second_in_write(jobs: Sequence[Job]) -> float:
    """Return bytes/s of the time spent in write(2), including throttling by the kernel.

    This is the cost of a burst for the program that writes it. The fsync after it is not counted;
    it leaves no dirty page for the next sample.
    """
    return sum(number(job, "write", "io_bytes") for job in jobs) / _busy_seconds(jobs, "write")


def _busy_seconds(jobs: Sequence[Job], way: str) -> float:
    """Return the time from the start of each operation to its end, summed."""
    seconds = sum(
        number(job, way, "clat_ns", "N") * number(job, way, "clat_ns", "mean") / 1e9 for job in jobs
    )
    if seconds <= 0:
        raise FusetuneError("fio reports no completed operation")
    return seconds


def operations_by_clock(jobs: Sequence[Job]) -> float:
    """Return operations/s between a job's first and last one, the geometric mean over the jobs.

    Opening, closing and syncing files takes part of that time, but is not counted as an operation.
    """
    rates = []
    for job in jobs:
        seconds = max(number(job, way, "runtime") for way in ("read", "write")) / 1000
        if not seconds:
            raise FusetuneError("fio reports no time spent")
        rates.append(sum(number(job, way, "total_ios") for way in ("read", "write")) / seconds)
    if not rates or min(rates) <= 0:
        raise FusetuneError("fio reports no completed operation")
    return statistics.geometric_mean(rates)


def files_in_all(jobs: Sequence[Job]) -> float:
    """Return files/s if each file is processed by one job after another."""
    if not jobs:
        raise FusetuneError("fio reports no completed operation")
    return number(jobs[-1], "write", "total_ios") / _whole_seconds(jobs)


def bytes_in_all(jobs: Sequence[Job]) -> float:
    """Return bytes/s written, including the time of later work on the file."""
    return sum(number(job, "write", "io_bytes") for job in jobs) / _whole_seconds(jobs)


def _whole_seconds(jobs: Sequence[Job]) -> float:
    ways = ("read", "write")
    seconds = sum(max(number(job, way, "runtime") for way in ways) / 1000 for job in jobs)
    seconds += sum(number(job, AFTERWARDS) for job in jobs[-1:])
    if seconds <= 0:
        raise FusetuneError("fio reports no time spent")
    return seconds


def share_in_time(jobs: Sequence[Job]) -> float:
    """Return the share of blocks, above 0 up to 1, that arrived before the next one was due.

    While one read takes N times the interval, N blocks are late. If none is in time, half a block
    is counted, because figures are compared as ratios.
    """
    blocks = late = 0.0
    for job in jobs:
        for nanoseconds, count in latencies(job, "read").items():
            blocks += count
            if nanoseconds > FRAME_SECONDS * 1e9:
                late += count * math.ceil(nanoseconds / (FRAME_SECONDS * 1e9))
    if not blocks:
        raise FusetuneError("fio reports no completed operation")
    return max(0.5, blocks - late) / blocks


def latencies(job: Job, way: str) -> dict[float, float]:
    """Return the number of operations by duration (nanoseconds), from fio's bins.

    ``way``: ``read``, ``write`` or ``sync``. Empty if there was none. FusetuneError if fio reports
    no number.
    """
    key = "lat_ns" if way == "sync" else "clat_ns"  # the only one that fio has for fsync
    try:
        bins = dict(job[way][key].get("bins", {}))
        found = {float(edge): float(count) for edge, count in bins.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FusetuneError(f"fio reports no latencies of {way}") from error
    if not all(0 <= number < _LARGEST for pair in found.items() for number in pair):
        raise FusetuneError(f"fio reports no latencies of {way}")
    return found
