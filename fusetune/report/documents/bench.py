# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``bench``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.measure import Figure, Measurement
from fusetune.report.documents.base import Document, Interval95, MountIdentity, Positive, Text
from fusetune.report.documents.figures import (
    Cost,
    FilesRead,
    MaybePercentiles,
    WorkloadName,
    WorkloadUnit,
    cost_text,
    files_read,
    percentiles,
)
from fusetune.report.documents.usage import MaybeUsage, usage_shown, usage_text
from fusetune.report.text import Table, figure_text, latency_text
from fusetune.schema import Rule


@dataclass(frozen=True)
class WorkloadFigure:
    """One workload's figure."""

    name: WorkloadName
    unit: WorkloadUnit
    figure: Annotated[Positive, "Geometric mean of the samples, in the workload's unit."]
    ci95: Annotated[
        Interval95, "95 % interval of the figure, lower end first, in the workload's unit."
    ]
    samples: Annotated[
        Sequence[Annotated[Positive, "A sample, in the workload's unit."]],
        "The samples, in order, in the workload's unit.",
        Rule(minItems=2),
    ]
    latency: MaybePercentiles
    usage: MaybeUsage


@dataclass(frozen=True)
class Series:
    """The measurements of one mount or reference."""

    label: Annotated[Text, "What was measured: a mount's path, or the name of a reference."]
    mount: Annotated[
        MountIdentity | None, "The mount; null if there is none (tmpfs itself, or absent)."
    ]
    absent_reason: Annotated[
        Text | None, "Why it cannot be measured on this host; null if it was measured."
    ]
    workloads: Annotated[Sequence[WorkloadFigure], "Its figures; empty if absent."]
    cost: Cost
    read: Annotated[
        FilesRead | None, "The existing files that were read; null if scratch files were used."
    ]
    read_how: Annotated[
        Text | None, "Which ranges of these files were compared; null if no such files were read."
    ]


@dataclass(frozen=True)
class BenchResult(Document):
    """Figures of a mount, or of the best that FUSE can do on this host."""

    SCHEMA = "bench"
    COMMANDS = ("bench",)

    series: Annotated[Sequence[Series], "One entry for each thing measured.", Rule(minItems=1)]

    def parts(self) -> Iterator[str | Table]:
        """Yield a table with a row for each workload and a column for each series."""
        measured = [one for one in self.series if one.workloads]
        rows = []
        for position, workload in enumerate(measured[0].workloads):
            figures = (one.workloads[position] for one in measured)
            rows.append([workload.name, *map(figure_cell, figures)])
        yield Table(("workload", *(one.label for one in measured)), rows)
        for one in self.series:
            if one.absent_reason:
                yield f"{one.label}: {one.absent_reason}"
            where = f"{one.label}, " if len(measured) > 1 else ""
            yield from (
                f"- {where}{workload.name}: {usage_text(workload.usage)}"
                for workload in one.workloads
            )
            if one.read:
                yield f"- {one.read_how}"
                yield cost_text(one.cost, one.read)


def figure_cell(one: WorkloadFigure) -> str:
    """Return a figure with half its interval, for a table."""
    low, high = one.ci95
    half = (high - low) / 2 / one.figure
    shown = f"{figure_text(one.figure, one.unit)} ±{half:.0%}"
    return (
        f"{shown}, {latency_text(one.latency.p50_seconds, one.latency.p99_seconds)}"
        if one.latency
        else shown
    )


def bench_result(series: Sequence[Measurement]) -> BenchResult:
    """Return the document: ``series`` has one entry for each mount or reference."""
    return BenchResult([_series(measurement) for measurement in series])


def _series(one: Measurement) -> Series:
    mount = one.mount
    return Series(
        one.label,
        MountIdentity(mount.path, mount.fstype, mount.source, mount.bdi) if mount else None,
        one.absent,
        [shown_figure(figure) for figure in one.figures],
        Cost(one.seconds, one.bytes_written, one.evaluations, one.bytes_read, one.requests),
        files_read(one.reading),
        "; ".join(one.reading.why) if one.reading else None,
    )


def shown_figure(figure: Figure) -> WorkloadFigure:
    """Return a figure in the form of documents."""
    return WorkloadFigure(
        figure.workload.name,
        figure.workload.unit,
        figure.mean,
        [figure.low, figure.high],
        figure.samples,
        percentiles(figure.latency),
        usage_shown(figure.usage),
    )
