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
    str, "Name of a workload and of its fio job file.", Rule(pattern="^[a-z][a-z0-9-]*$")
]


def workload_unit() -> Object:
    """Return the schema of the unit of a workload's figures."""
    units = dict.fromkeys(workload.unit for workload in WORKLOADS.values())
    return {
        "description": "Unit of the workload's figures; higher is better. "
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
    """Latencies of operations: reads, writes, or fsyncs if a workload waits for those."""

    p50_seconds: Annotated[Duration, "Seconds within which half of them completed."]
    p99_seconds: Annotated[Duration, "Seconds within which 99 % of them completed."]


MaybePercentiles = Annotated[
    Percentiles | None, "Latencies of its operations; null if none were counted."
]


def percentiles(latency: Latency | None) -> Percentiles | None:
    """Return a latency in the form of documents."""
    return Percentiles(latency.p50_seconds, latency.p99_seconds) if latency else None


Weights = Annotated[
    Mapping[str, Annotated[float, "Above 0; the shares sum to 1.", Rule(exclusiveMinimum=0)]],
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

    seconds: Annotated[Duration, "Wall-clock time in seconds."]
    bytes_written: Annotated[Count, "Bytes written to the mount."]
    evaluations: Annotated[Count, "How many times each workload was measured."]
    bytes_read: Annotated[
        Count,
        "Bytes that workloads read from existing files, without the kernel's readahead; 0 if "
        "scratch files were used.",
    ] = 0
    requests: Annotated[
        Count, "Calls of read(2) for these bytes; 0 if scratch files were used."
    ] = 0


@dataclass(frozen=True)
class FileRead:
    """A file that was read."""

    path: Annotated[Text, "Its path, relative to the mount."]
    size_bytes: Annotated[Count, "Its size in bytes."]


@dataclass(frozen=True)
class FilesRead:
    """The existing files that were read instead of scratch files; nothing was written."""

    files: Annotated[Sequence[FileRead], "The files of which ranges were read."]
    named: Annotated[bool, "Whether --files named them; otherwise they were searched for."]
    range_bytes: Annotated[
        Count, "Size of the range that a workload reads in one sample; 0 if none was read."
    ]
    ranges: Annotated[Count, "How many such ranges there are."]
    server_cache: Annotated[
        str,
        "cold: each range was read only once; warm: each was read once before the first sample, "
        "because there are too few of them, or no range was read.",
        Rule(enum=["cold", "warm"]),
    ]
    opened: Annotated[
        Sequence[Annotated[Text, "A path, relative to the mount."]],
        "The files that open-storm opened in every sample, in this order.",
    ]


def files_read(reading: Reading | None) -> FilesRead | None:
    """Return the files that were read in the form of documents; None for scratch files."""
    if reading is None or not (reading.ranges or reading.opened):
        return None
    ranges = reading.ranges
    return FilesRead(
        [FileRead(file.path, file.size) for file in reading.files],
        bool(reading.paths),
        ranges.length if ranges else 0,
        ranges.count if ranges else 0,
        "cold" if ranges and ranges.cold else "warm",
        reading.opened,
    )


def cost_text(cost: Cost, read: FilesRead | None) -> str:
    """Return the cost of measuring, as a line."""
    line = f"{cost.evaluations} evaluations in {cost.seconds:.0f} s, "
    if read is None:
        return line + f"{cost.bytes_written / (1 << 20):.0f} MiB written"
    count = len({*(file.path for file in read.files), *read.opened})
    number = f"{count} file" + ("s" if count > 1 else "")
    return (
        line + f"{cost.bytes_read / (1 << 20):.0f} MiB of {number} read in {cost.requests} calls, "
        "nothing written"
    )
