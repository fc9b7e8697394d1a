# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the operations of a workload take, from the bins of fio's histograms.

fio's bins are at most 2 % wide (fio's stat.h, FIO_IO_U_PLAT_BITS), and so is the error.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from fusetune.bench.figures import P99_UNIT, Job, latencies
from fusetune.bench.workloads import Workload
from fusetune.errors import FusetuneError

#: Number of operations by duration in nanoseconds.
Bins = Counter[float]


class Target(StrEnum):
    """What ``auto`` improves."""

    THROUGHPUT = "throughput"
    P99 = "p99"


@dataclass(frozen=True)
class Latency:
    """Seconds within which 50 % and 99 % of the operations completed."""

    p50_seconds: float
    p99_seconds: float

    @classmethod
    def of(cls, bins: Bins) -> "Latency | None":
        """Return the latency of ``bins``, None if no operation was counted."""
        return cls(_percentile(bins, 0.50), _percentile(bins, 0.99)) if bins.total() else None


def _percentile(bins: Bins, share: float) -> float:
    """Return the seconds that at least ``share`` of the operations did not exceed."""
    wanted, seen = share * bins.total(), 0.0
    for nanoseconds in sorted(bins):
        seen += bins[nanoseconds]
        if seen >= wanted:
            break
    return nanoseconds / 1e9


def bins_of(workload: Workload, jobs: Iterable[Job]) -> Bins:
    """Return the bins of the operations that a program waits for. Raises like `latencies`."""
    bins: Bins = Counter()
    for job in jobs:
        for way in workload.waits:
            bins.update(latencies(job, way))
    return bins


@dataclass
class Latencies:
    """The bins of each workload by setting, gathered over a run."""

    _bins: dict[frozenset[tuple[str, int]], dict[str, Bins]] = field(default_factory=dict)

    def add(self, setting: Mapping[str, int], bins: Mapping[str, Bins]) -> None:
        """Add an evaluation."""
        gathered = self._bins.setdefault(frozenset(setting.items()), {})
        for name, one in bins.items():
            gathered.setdefault(name, Counter()).update(one)

    def of(self, setting: Mapping[str, int]) -> dict[str, Latency]:
        """Return the latency of each workload with ``setting``, by name; empty if unmeasured."""
        gathered = self._bins.get(frozenset(setting.items()), {})
        found = {name: Latency.of(bins) for name, bins in gathered.items()}
        return {name: latency for name, latency in found.items() if latency}


def aimed_at(target: Target, workloads: Sequence[Workload]) -> list[Workload]:
    """Return workloads whose figure is that of ``target``; higher is better."""
    if target is Target.THROUGHPUT:
        return list(workloads)
    return [replace(one, figure=partial(_inverse_p99, one), unit=P99_UNIT) for one in workloads]


def _inverse_p99(workload: Workload, jobs: Sequence[Job]) -> float:
    latency = Latency.of(bins_of(workload, jobs))
    if not latency or not latency.p99_seconds:
        raise FusetuneError("fio reports no latency")
    return 1 / latency.p99_seconds
