# SPDX-License-Identifier: GPL-2.0-or-later
"""The gain of each workload in documents of ``auto``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.latency import Latencies
from fusetune.bench.workloads import Workload
from fusetune.report.documents.base import Interval95, Positive
from fusetune.report.documents.figures import (
    MaybePercentiles,
    Percentiles,
    WorkloadName,
    WorkloadUnit,
    percentiles,
)
from fusetune.report.text import Table, figure_text, latency_text, ratio_text, value_text
from fusetune.tuner.search import Choice


@dataclass(frozen=True)
class WorkloadGain:
    """One workload's gain; its fields are from the confirming measurements only."""

    name: WorkloadName
    unit: WorkloadUnit
    before: Annotated[
        Positive, "Figure with the values before, geometric mean, in the workload's unit."
    ]
    after: Annotated[
        Positive, "Figure with the values after, geometric mean, in the workload's unit."
    ]
    ratio: Annotated[Positive, "After divided by before; above 1 is faster."]
    ci95: Annotated[Interval95, "95 % interval of the ratio, lower end first."]
    latency_before: MaybePercentiles
    latency_after: MaybePercentiles


def gains_table(gains: Sequence[WorkloadGain]) -> Table:
    """Return speeds and latencies before and after, one row for each workload."""
    return Table(
        ("workload", "before", "after", "gain [95 %]", "latency before", "after"),
        [
            (
                row.name,
                figure_text(row.before, row.unit),
                figure_text(row.after, row.unit),
                ratio_text(row.ratio, row.ci95),
                _latency_text(row.latency_before),
                _latency_text(row.latency_after),
            )
            for row in gains
        ],
        right="before after",
    )


def workload_gains(
    workloads: Sequence[Workload],
    choice: Choice,
    start: Mapping[str, int],
    latencies: Latencies,
) -> list[WorkloadGain]:
    """Return each workload's gain in the confirming measurements; ``start``: the old setting."""
    found = []
    early, late = latencies.of(start), latencies.of(choice.setting)
    for one in workloads:
        if one.name in choice.per_workload:
            before, after, gain = choice.per_workload[one.name]
            took = percentiles(early.get(one.name)), percentiles(late.get(one.name))
            ci95 = [gain.low, gain.high]
            found.append(WorkloadGain(one.name, one.unit, before, after, gain.ratio, ci95, *took))
    return found


def _latency_text(one: Percentiles | None) -> str:
    return latency_text(one.p50_seconds, one.p99_seconds) if one else value_text(None)
