# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure mounts as they are, without choosing anything."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from fusetune.bench.intervals import t_quantile
from fusetune.bench.runner import Bench, Budget, BudgetSpent
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import Workload
from fusetune.changes.lock import Lock
from fusetune.host import Host
from fusetune.mounts.mount import Mount

ENOUGH = (
    0.03  # half width of the 95 % interval, as a share, below which more samples are not worth it
)
FEWEST_AT_ALL, FEWEST, MOST = 2, 5, 40  # samples


@dataclass(frozen=True)
class Figure:
    """A workload's samples and their geometric mean with its 95 % interval, in its unit."""

    workload: Workload
    samples: tuple[float, ...]
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Measurement:
    """The figures of the series ``label``, and the cost of measuring them.

    ``mount`` is None for tmpfs itself, and where ``absent`` says why this host lacks the series.
    """

    label: str
    mount: Mount | None
    figures: list[Figure]
    seconds: float = 0.0
    bytes_written: int = 0
    evaluations: int = 0
    absent: str | None = None


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
    progress: Callable[[float, str], None] = lambda share, words: None,
) -> list[Measurement]:
    """Measure ``mounts`` (by label) in turn, so that the host's drift affects all alike.

    Ends when every interval is narrow enough or the common budget is spent. Raises FusetuneError
    if a mount cannot be measured.
    """
    share = Budget(budget.seconds, budget.bytes_written // len(mounts))
    with ExitStack() as contexts:
        for mount in mounts.values():
            contexts.enter_context(Lock(host, mount))
        interruption = contexts.enter_context(Interruption())
        benches = {
            label: contexts.enter_context(Bench(host, m, workloads, share, interruption, size))
            for label, m in mounts.items()
        }
        rows = _rounds(list(benches.values()), workloads, progress)
        return [
            Measurement(
                label,
                bench.mount if bench.mount.bdi else None,
                [summarise(w, [row[w.name] for row in bench_rows]) for w in workloads],
                bench.seconds,
                bench.bytes_written,
                bench.evaluations,
            )
            for (label, bench), bench_rows in zip(benches.items(), rows, strict=True)
        ]


def _rounds(
    benches: Sequence[Bench],
    workloads: Sequence[Workload],
    progress: Callable[[float, str], None],
) -> list[list[dict[str, float]]]:
    """Return the samples of each bench, taken in turn."""
    rows: list[list[dict[str, float]]] = [[] for _ in benches]
    cost = 0.0
    while len(rows[0]) < FEWEST_AT_ALL or (
        len(rows[0]) < MOST
        and not _narrow(rows, workloads)
        and all(bench.seconds_left > 1.1 * cost and bench.affordable() for bench in benches)
    ):
        began = time.monotonic()
        figures = []
        try:
            for bench in benches:
                progress(1 - bench.seconds_left / bench.budget.seconds, bench.mount.path)
                figures.append(bench.measure())
        except BudgetSpent:
            if len(rows[0]) < FEWEST_AT_ALL:
                raise
            break
        for samples, figure in zip(rows, figures, strict=True):
            samples.append(figure)
        cost = time.monotonic() - began
    return rows


def _narrow(rows: Sequence[Sequence[dict[str, float]]], workloads: Sequence[Workload]) -> bool:
    return len(rows[0]) >= FEWEST and all(
        figure.high / figure.mean <= 1 + ENOUGH
        for samples in rows
        for figure in (summarise(w, [row[w.name] for row in samples]) for w in workloads)
    )
