# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents of ``auto``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.workloads import Workload
from fusetune.mounts.mount import Mount
from fusetune.report.documents.base import (
    Count,
    Document,
    Interval95,
    KnobFile,
    KnobName,
    KnobValues,
    MountIdentity,
    Positive,
    Text,
)
from fusetune.report.documents.figures import Cost, Ratio, WorkloadName, WorkloadUnit
from fusetune.report.text import Table, figure_text, ratio_text
from fusetune.schema import Rule
from fusetune.text import shell_word
from fusetune.tuner.auto import Candidates, Outcome

Sample = Annotated[
    Mapping[str, Positive],
    "Figure of each workload in one evaluation, by the workload's name, in its unit.",
    Rule(minProperties=1, propertyNames={"pattern": "^[a-z][a-z0-9-]*$"}),
]


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


@dataclass(frozen=True)
class MeasuredSetting:
    """One setting and its samples."""

    knobs: KnobValues
    samples: Annotated[Sequence[Sample], "One figure a workload for each evaluation, in order."]


@dataclass(frozen=True)
class AutoResult(Document):
    """What 'auto' measured, chose and did."""

    SCHEMA = "auto"
    COMMANDS = ("auto",)

    mount: MountIdentity
    workloads: Annotated[
        Sequence[WorkloadName],
        "Names of the workloads measured.",
        Rule(minItems=1, uniqueItems=True),
    ]
    before: Annotated[
        KnobValues, "Values found at the start, by the knob's name, in the unit named at each."
    ]
    after: Annotated[
        KnobValues, "Values set at the end, by the knob's name, in the unit named at each."
    ]
    gain: Annotated[
        Ratio,
        "Speed after divided by speed before, geometric mean over the workloads; 1 if nothing was "
        "changed.",
    ]
    per_workload: Annotated[
        Sequence[WorkloadGain], "The gain by workload; empty if nothing was changed."
    ]
    trials: Annotated[Sequence[MeasuredSetting], "Every setting that was measured."]
    cost: Cost
    applied: Annotated[bool, "Whether values were changed for good."]
    saved: Annotated[bool, "Whether they were saved for the next mount."]
    reasons: Annotated[
        Sequence[Annotated[Text, "One sentence."]],
        "Why it was chosen so, and what could not be decided: sentences.",
    ]

    def parts(self) -> Iterator[str | Table]:
        """Yield the values and speeds before and after, the reasons and the cost."""
        yield Table(
            ("knob", "before", "after"),
            [(name, str(value), str(self.after[name])) for name, value in self.before.items()],
            right="before after",
        )
        if self.per_workload:
            yield ""
            yield Table(
                ("workload", "before", "after", "gain [95 %]"),
                [
                    (
                        row.name,
                        figure_text(row.before, row.unit),
                        figure_text(row.after, row.unit),
                        ratio_text(row.ratio, row.ci95),
                    )
                    for row in self.per_workload
                ],
                right="before after",
            )
        yield ""
        yield from (f"- {reason}" for reason in self.reasons)
        yield (
            f"{self.cost.evaluations} evaluations in {self.cost.seconds:.0f} s, "
            f"{self.cost.bytes_written / (1 << 20):.0f} MiB written"
        )
        if self.applied:
            gain = ratio_text(self.gain.ratio, self.gain.ci95)
            path = shell_word(self.mount.path)
            yield f"set and saved: {gain}; 'fusetune reset {path}' undoes it"
        else:
            yield "nothing better was found than what is set; nothing was changed"


@dataclass(frozen=True)
class KnobCandidates:
    """A knob that would be written."""

    knob: KnobName
    file: KnobFile
    before: Annotated[Count, "Value now, in the knob's unit."]
    candidates: Annotated[
        Sequence[Annotated[Count, "A value, in the knob's unit."]],
        "Values that may be tried, in the knob's unit, ascending.",
        Rule(minItems=1, uniqueItems=True),
    ]


@dataclass(frozen=True)
class AutoPreview(Document):
    """What 'auto' would write and try, without measuring."""

    SCHEMA = "auto-preview"
    COMMANDS = ("auto --dry-run",)

    mount: MountIdentity
    workloads: Annotated[
        Sequence[WorkloadName],
        "Names of the workloads that would be measured.",
        Rule(minItems=1, uniqueItems=True),
    ]
    knobs: Annotated[Sequence[KnobCandidates], "Each knob that would be written."]

    def parts(self) -> Iterator[str | Table]:
        """Yield the files that would be written, and the values to try."""
        yield Table(
            ("file", "before", "would try"),
            [
                (knob.file, str(knob.before), " ".join(map(str, knob.candidates)))
                for knob in self.knobs
            ],
            right="before",
        )
        yield f"dry run: would measure {', '.join(self.workloads)}; nothing was written"


def auto_result(outcome: Outcome) -> AutoResult:
    """Return what 'auto' did."""
    choice = outcome.choice
    gains = []
    for workload in outcome.workloads:
        if workload.name in choice.per_workload:
            before, after, gain = choice.per_workload[workload.name]
            ci95 = [gain.low, gain.high]
            gains.append(
                WorkloadGain(workload.name, workload.unit, before, after, gain.ratio, ci95)
            )
    return AutoResult(
        _identity(outcome.mount),
        [workload.name for workload in outcome.workloads],
        outcome.before,
        outcome.after,
        Ratio(choice.gain.ratio, [choice.gain.low, choice.gain.high]),
        gains,
        [MeasuredSetting(trial.setting, trial.samples) for trial in outcome.trials],
        Cost(outcome.seconds, outcome.bytes_written, outcome.evaluations),
        choice.changed,
        choice.changed,
        outcome.reasons,
    )


def auto_preview(
    mount: Mount, workloads: Sequence[Workload], candidates: Sequence[Candidates]
) -> AutoPreview:
    """Return the files that 'auto' would write, and the values to try."""
    return AutoPreview(
        _identity(mount),
        [workload.name for workload in workloads],
        [KnobCandidates(one.knob, one.file, one.now, one.values) for one in candidates],
    )


def _identity(mount: Mount) -> MountIdentity:
    return MountIdentity(mount.path, mount.fstype, mount.source, mount.bdi)
