# SPDX-License-Identifier: GPL-2.0-or-later
"""What documents of ``auto`` and ``bench`` share: workloads, ratios, and the cost of measuring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.workloads import WORKLOADS
from fusetune.report.documents.base import Count, Duration, Interval95, Object, Positive
from fusetune.schema import Rule

WorkloadName = Annotated[
    str, "Name of a workload; its fio job file is called so.", Rule(pattern="^[a-z][a-z0-9-]*$")
]


def workload_unit() -> Object:
    """Return the shape of the unit of a workload's figures."""
    return {
        "description": "Unit of the workload's figures; more is better.",
        "type": "string",
        "enum": list(dict.fromkeys(workload.unit for workload in WORKLOADS.values())),
    }


WorkloadUnit = Annotated[str, workload_unit]


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
