# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``auto --dry-run``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.workloads import Workload
from fusetune.mounts.mount import Mount
from fusetune.report.documents.base import (
    Count,
    Document,
    KnobFile,
    KnobName,
    MountIdentity,
    identity,
)
from fusetune.report.documents.figures import Weights, WorkloadName, weights_of
from fusetune.report.text import Table
from fusetune.schema import Rule
from fusetune.tuner.auto import Candidates


@dataclass(frozen=True)
class KnobCandidates:
    """A knob that would be written."""

    knob: KnobName
    file: KnobFile
    before: Annotated[Count, "Current value, in the knob's unit."]
    candidates: Annotated[
        Sequence[Annotated[Count, "A value, in the knob's unit."]],
        "Values that may be tried, in the knob's unit, ascending.",
        Rule(minItems=1, uniqueItems=True),
    ]


@dataclass(frozen=True)
class AutoPreview(Document):
    """What 'auto' would try and write."""

    SCHEMA = "auto-preview"
    COMMANDS = ("auto --dry-run",)

    mount: MountIdentity
    workloads: Annotated[
        Sequence[WorkloadName],
        "Names of the workloads that would be measured.",
        Rule(minItems=1, uniqueItems=True),
    ]
    weights: Weights
    knobs: Annotated[Sequence[KnobCandidates], "Each knob that would be written."]

    def parts(self) -> Iterator[str | Table]:
        """Yield the files that would be written, and the values to try."""
        yield Table(
            ("file", "current", "candidates"),
            [
                (knob.file, str(knob.before), " ".join(map(str, knob.candidates)))
                for knob in self.knobs
            ],
            right="before",
        )
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.weights.items())
        what = self.workloads[0] if len(self.workloads) == 1 else shares
        yield f"dry run: would measure {what}; nothing was written"


def auto_preview(
    mount: Mount, workloads: Sequence[Workload], candidates: Sequence[Candidates]
) -> AutoPreview:
    """Return the files that 'auto' would write, and the values to try."""
    return AutoPreview(
        identity(mount),
        [workload.name for workload in workloads],
        weights_of(workloads),
        [KnobCandidates(one.knob, one.file, one.now, one.values) for one in candidates],
    )
