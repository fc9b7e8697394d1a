# SPDX-License-Identifier: GPL-2.0-or-later
"""What documents of ``auto`` and ``bench`` share: workloads, ratios, and the cost of measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.figures import P99_UNIT
from fusetune.bench.latency import Latency
from fusetune.bench.reading import Reading
from fusetune.bench.workloads import WORKLOADS, Workload
from fusetune.report.documents.base import Count, Duration, Interval95, Object, Positive, Text
from fusetune.schema import Rule

WorkloadName = Annotated[
    str, "Name of a workload; its fio job file is called so.", Rule(pattern="^[a-z][a-z0-9-]*$")
]


def workload_unit() -> Object:
    """Return the shape of the unit of a workload's figures."""
    units = dict.fromkeys(workload.unit for workload in WORKLOADS.values())
    return {
        "description": "Unit of the workload's figures; more is better. "
        f"{P99_UNIT}: 1 divided by the p99, with --target p99.",
        "type": "string",
        "enum": [*units, P99_UNIT],
    }


WorkloadUnit = Annotated[str, workload_unit]

Sample = Annotated[
    Mapping[str, Positive],
    "Figure of each workload in one evaluation, by the workload's name, in its unit.",
    Rule(minProperties=1, propertyNames={"pattern": "^[a-z][a-z0-9-]*$"}),
]


@dataclass(frozen=True)
class Percentiles:
    """How long operations took: reads, writes, or fsync where a workload waits for that."""

    p50_seconds: Annotated[Duration, "Seconds within which half of them were done."]
    p99_seconds: Annotated[Duration, "Seconds within which 99 in 100 were done."]


MaybePercentiles = Annotated[
    Percentiles | None, "How long its operations took; null if none were counted."
]


def percentiles(latency: Latency | None) -> Percentiles | None:
    """Return what a document says of a latency."""
    return Percentiles(latency.p50_seconds, latency.p99_seconds) if latency else None


Weights = Annotated[
    Mapping[str, Annotated[float, "Above 0; all of them sum to 1.", Rule(exclusiveMinimum=0)]],
    "Share of each workload in the gain, by the workload's name.",
    Rule(minProperties=1, propertyNames={"pattern": "^[a-z][a-z0-9-]*$"}),
]


def weights_of(workloads: Sequence[Workload]) -> dict[str, float]:
    """Return each workload's share, by its name."""
    whole = sum(workload.weight for workload in workloads)
    return {workload.name: workload.weight / whole for workload in workloads}


@dataclass(frozen=True)
class Ratio:
    """A ratio of two speeds."""

    ratio: Annotated[Positive, "After divided by before; above 1 is faster."]
    ci95: Annotated[Interval95, "95 % interval of the ratio, lower end first."]


@dataclass(frozen=True)
class Cost:
    """What the measuring cost."""

    seconds: Annotated[Duration, "Seconds by the clock."]
    bytes_written: Annotated[Count, "Bytes written to the mount."]
    evaluations: Annotated[Count, "How often every workload was measured once."]
    bytes_read: Annotated[
        Count,
        "Bytes that workloads read of files that were there, without what the kernel read ahead of "
        "them; 0 where scratch files were used.",
    ] = 0
    requests: Annotated[
        Count, "Calls of read(2) for these bytes; 0 where scratch files were used."
    ] = 0


@dataclass(frozen=True)
class FileRead:
    """A file that was read."""

    path: Annotated[Text, "Its path, relative to the mount."]
    size_bytes: Annotated[Count, "Its size in bytes."]


@dataclass(frozen=True)
class FilesRead:
    """The files that were there and were read, in place of scratch files: nothing was written."""

    files: Annotated[Sequence[FileRead], "The files.", Rule(minItems=1)]
    named: Annotated[bool, "Whether --files named them; else a walk found them."]
    range_bytes: Annotated[Count, "Bytes of the range that a workload reads in one sample."]
    ranges: Annotated[Count, "How many such ranges there are."]
    server_cache: Annotated[
        str,
        "cold: each range was read only once; warm: each was read once before the first sample, "
        "because there are too few.",
        Rule(enum=["cold", "warm"]),
    ]


def files_read(reading: Reading | None) -> FilesRead | None:
    """Return what a document says of the files that were read; None for scratch files."""
    if reading is None or reading.ranges is None:
        return None
    return FilesRead(
        [FileRead(file.path, file.size) for file in reading.files],
        bool(reading.paths),
        reading.ranges.length,
        reading.ranges.count,
        "cold" if reading.ranges.cold else "warm",
    )


def cost_text(cost: Cost, read: FilesRead | None) -> str:
    """Return what the measuring cost, as a line."""
    line = f"{cost.evaluations} evaluations in {cost.seconds:.0f} s, "
    if read is None:
        return line + f"{cost.bytes_written / (1 << 20):.0f} MiB written"
    number = f"{len(read.files)} file" + ("s" if len(read.files) > 1 else "")
    return (
        line + f"{cost.bytes_read / (1 << 20):.0f} MiB of {number} read in {cost.requests} calls, "
        "nothing written"
    )
