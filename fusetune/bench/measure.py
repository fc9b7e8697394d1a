# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure mounts without choosing anything."""

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from fusetune.bench.intervals import t_quantile
from fusetune.bench.latency import Bins, Latency
from fusetune.bench.reading import Reading, bench_of
from fusetune.bench.runner import Bench, BudgetSpent
from fusetune.bench.spending import LEAST_BYTES, MIB, Budget
from fusetune.bench.usage import Usage
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import Workload
from fusetune.changes.lock import Lock
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.mounts.mount import Mount

ENOUGH = (
    0.03  # half width of the 95 % interval, as a share, below which more samples are not worth it
)
FEWEST_AT_ALL, FEWEST, MOST = 2, 5, 40  # samples


@dataclass(frozen=True)
class Figure:
    """A workload's samples and their geometric mean with its 95 % interval, in its unit.

    ``latency``: of the operations of all samples, ``usage``: the resources used; None if
    unknown.
    """

    workload: Workload
    samples: tuple[float, ...]
    mean: float
    low: float
    high: float
    latency: Latency | None = None
    usage: Usage | None = None


@dataclass(frozen=True)
class Measurement:
    """The figures of the series ``label``, and the cost of measuring them.

    ``mount`` is None for tmpfs itself, and if ``absent`` says why this host lacks the series.
    ``reading``: the existing files that were read, if any, with ``bytes_read`` and ``requests``.
    """

    label: str
    mount: Mount | None
    figures: list[Figure]
    seconds: float = 0.0
    bytes_written: int = 0
    evaluations: int = 0
    absent: str | None = None
    reading: Reading | None = None
    bytes_read: int = 0
    requests: int = 0


def summarise(workload: Workload, samples: Sequence[float]) -> Figure:
    """Return the geometric mean of at least two positive samples, with Student's interval."""
    logs = [math.log(sample) for sample in samples]
    mean = statistics.fmean(logs)
    half = t_quantile(0.05, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Figure(
        workload, tuple(samples), math.exp(mean), math.exp(mean - half), math.exp(mean + half)
    )


def measure(
    host: Host,
    mounts: Mapping[str, Mount],
    workloads: Sequence[Workload],
    budget: Budget,
    *,
    size: int | None = None,
    reading: Reading | None = None,
    progress: Callable[[float, str], None] = lambda share, words: None,
    interruption: Interruption | None = None,
) -> list[Measurement]:
    """Measure ``mounts`` (by label) in turn, so that drift of the host affects all alike.

    Ends when every interval is narrow enough or the common budget is spent. ``reading``: which
    files of the mount are read, None for scratch files. ``interruption``: the caller's, if it has
    entered one. Raises FusetuneError if a mount cannot be measured, `Interrupted` after a signal.
    """
    if (least := len(mounts) * LEAST_BYTES) > budget.bytes_written:
        raise UsageError(
            f"{len(mounts)} mounts are measured, which together need --budget-bytes of at least "
            f"{least // MIB}M"
        )
    share = replace(budget, bytes_written=budget.bytes_written // len(mounts))
    with ExitStack() as contexts:
        for mount in mounts.values():
            contexts.enter_context(Lock(host, mount))
        interruption = interruption or contexts.enter_context(Interruption())
        benches = {
            label: contexts.enter_context(
                bench_of(host, m, workloads, share, interruption, size=size, reading=reading)
            )
            for label, m in mounts.items()
        }
        samples = _rounds(list(benches.values()), workloads, progress)
        return [
            Measurement(
                label,
                bench.mount if bench.mount.bdi else None,
                gathered.figures(workloads),
                bench.seconds,
                bench.bytes_written,
                bench.evaluations,
                reading=reading,
                bytes_read=bench.bytes_read,
                requests=bench.requests,
            )
            for (label, bench), gathered in zip(benches.items(), samples, strict=True)
        ]


@dataclass
class _Samples:
    """The samples of one bench, by workload."""

    rows: list[dict[str, float]] = field(default_factory=list)
    bins: dict[str, Bins] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)

    def add(self, figures: dict[str, float], bench: Bench) -> None:
        self.rows.append(figures)
        for name, one in bench.bins.items():
            self.bins.setdefault(name, Counter()).update(one)
        for name, used in bench.usage.items():
            self.usage[name] = self.usage[name] + used if name in self.usage else used

    def figures(self, workloads: Sequence[Workload]) -> list[Figure]:
        return [
            replace(
                summarise(w, [row[w.name] for row in self.rows]),
                latency=Latency.of(self.bins[w.name]),
                usage=self.usage[w.name],
            )
            for w in workloads
        ]

    def narrow(self, workloads: Sequence[Workload]) -> bool:
        return all(
            figure.high / figure.mean <= 1 + ENOUGH
            for figure in (summarise(w, [row[w.name] for row in self.rows]) for w in workloads)
        )


def _rounds(
    benches: Sequence[Bench],
    workloads: Sequence[Workload],
    progress: Callable[[float, str], None],
) -> list[_Samples]:
    """Return the samples of each bench, taken in turn."""
    samples = [_Samples() for _ in benches]
    cost, count = 0.0, 0
    while count < FEWEST_AT_ALL or (
        count < MOST
        and not (count >= FEWEST and all(one.narrow(workloads) for one in samples))
        and all(bench.seconds_left > 1.1 * cost and bench.affordable() for bench in benches)
    ):
        began = time.monotonic()
        figures = []
        try:
            for bench in benches:
                progress(1 - bench.seconds_left / bench.budget.seconds, bench.mount.path)
                figures.append(bench.measure())
        except BudgetSpent:
            if count < FEWEST_AT_ALL:
                raise
            break
        for gathered, figure, bench in zip(samples, figures, benches, strict=True):
            gathered.add(figure, bench)
        cost, count = time.monotonic() - began, count + 1
    return samples
