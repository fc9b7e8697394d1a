# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures made of the jobs that fio reports (fio(1), --output-format=json+)."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fusetune.errors import FusetuneError

Job = Mapping[str, Any]
#: Unit of 1 divided by a p99, which is a figure as well.
P99_UNIT = "per_p99_second"
#: Key of the last job: seconds of what was done to its files after it.
AFTERWARDS = "afterwards_seconds"
#: Seconds between two blocks of a reader of the workload video, and until its block must be there.
FRAME_SECONDS = 0.02


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


def operations_by_clock(jobs: Sequence[Job]) -> float:
    """Return operations/s of a job from its first to its last, the geometric mean over the jobs.

    Opening, closing and syncing files takes part of that time, but is no operation of its own.
    """
    rates = []
    for job in jobs:
        seconds = max(number(job, way, "runtime") for way in ("read", "write")) / 1000
        if not seconds:
            raise FusetuneError("fio reports no time spent")
        rates.append(sum(number(job, way, "total_ios") for way in ("read", "write")) / seconds)
    if not rates or min(rates) <= 0:
        raise FusetuneError("fio reports no operation done")
    return statistics.geometric_mean(rates)


def files_in_all(jobs: Sequence[Job]) -> float:
    """Return files/s where one job after the other does its part with each file."""
    if not jobs:
        raise FusetuneError("fio reports no operation done")
    return number(jobs[-1], "write", "total_ios") / _whole_seconds(jobs)


def bytes_in_all(jobs: Sequence[Job]) -> float:
    """Return bytes/s written, with the time of what was done to the file afterwards."""
    return sum(number(job, "write", "io_bytes") for job in jobs) / _whole_seconds(jobs)


def _whole_seconds(jobs: Sequence[Job]) -> float:
    ways = ("read", "write")
    seconds = sum(max(number(job, way, "runtime") for way in ways) / 1000 for job in jobs)
    seconds += sum(number(job, AFTERWARDS) for job in jobs[-1:])
    if seconds <= 0:
        raise FusetuneError("fio reports no time spent")
    return seconds


def share_in_time(jobs: Sequence[Job]) -> float:
    """Return the share of blocks, above 0 up to 1, that were there before the next one was due.

    While one read takes N times as long as a block lasts, N blocks come too late. If none is in
    time, half a block is counted, because figures are compared as ratios.
    """
    blocks = late = 0.0
    for job in jobs:
        for nanoseconds, count in latencies(job, "read").items():
            blocks += count
            if nanoseconds > FRAME_SECONDS * 1e9:
                late += count * math.ceil(nanoseconds / (FRAME_SECONDS * 1e9))
    if not blocks:
        raise FusetuneError("fio reports no operation done")
    return max(0.5, blocks - late) / blocks


def latencies(job: Job, way: str) -> dict[float, float]:
    """Return how many operations took how long (nanoseconds), from the bins that fio writes.

    ``way``: ``read``, ``write`` or ``sync``. Empty if there was none. FusetuneError if fio gives
    no number.
    """
    key = "lat_ns" if way == "sync" else "clat_ns"  # fio has no other one of fsync
    try:
        bins = dict(job[way][key].get("bins", {}))
        found = {float(edge): float(count) for edge, count in bins.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FusetuneError(f"fio gives no latencies of {way}") from error
    if not all(0 <= number < math.inf for pair in found.items() for number in pair):
        raise FusetuneError(f"fio gives no latencies of {way}")
    return found
