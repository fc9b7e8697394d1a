# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents of ``auto``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Annotated

from fusetune.bench.latency import Latency
from fusetune.bench.spending import ALL_READ, NOTHING, OPTIONS, RANGES
from fusetune.recipes.by_module import is_by_module
from fusetune.report.documents.advice import Advised, advised
from fusetune.report.documents.base import (
    Document,
    KnobValues,
    MountIdentity,
    Text,
    identity,
)
from fusetune.report.documents.begun import BegunAt
from fusetune.report.documents.figures import (
    Cost,
    FilesRead,
    Percentiles,
    Ratio,
    Sample,
    Weights,
    WorkloadName,
    cost_text,
    files_read,
    percentiles,
    weights_of,
)
from fusetune.report.documents.gains import WorkloadGain, gains_table, workload_gains
from fusetune.report.documents.guards import GuardRatio, guard_ratios
from fusetune.report.documents.measured import MeasuredKnob, measured_knobs
from fusetune.report.documents.usage import (
    UsageChange,
    WorkloadUsage,
    usage_by_name,
    usage_changes,
)
from fusetune.report.text import Table, ratio_text
from fusetune.schema import Rule
from fusetune.text import shell_word
from fusetune.tuner.auto import Outcome
from fusetune.tuner.options import OptionsOutcome


@dataclass(frozen=True)
class MeasuredSetting:
    """One setting and its samples."""

    knobs: KnobValues
    samples: Annotated[Sequence[Sample], "One figure a workload for each evaluation, in order."]
    latency: Annotated[
        Mapping[str, Percentiles], "Latencies of each workload's operations, by workload name."
    ]
    usage: Annotated[
        Mapping[str, WorkloadUsage],
        "Resources of the host that each workload used, by workload name.",
    ]


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
    weights: Weights
    before: Annotated[
        KnobValues, "Values found at the start, by knob name, in the unit stated for each."
    ]
    after: Annotated[
        KnobValues, "Values set at the end, by knob name, in the unit stated for each."
    ]
    gain: Annotated[
        Ratio,
        "Speed after divided by speed before, weighted geometric mean over the workloads; 1 if "
        "nothing was changed.",
    ]
    per_workload: Annotated[
        Sequence[WorkloadGain], "The gain by workload; empty if nothing was changed."
    ]
    trials: Annotated[Sequence[MeasuredSetting], "Every setting that was measured."]
    cost: Cost
    applied: Annotated[bool, "Whether the changed values were kept."]
    saved: Annotated[bool, "Whether they were saved for the next mount."]
    reasons: Annotated[
        Sequence[Annotated[Text, "One sentence."]],
        "Reasons for the choice, and what could not be decided.",
    ]
    read: Annotated[
        FilesRead | None, "The existing files that were read; null if scratch files were used."
    ]

    guards: Annotated[Sequence[GuardRatio], "The measurements of guards, in order."]
    ended_by: Annotated[
        str,
        "Why the search ended: search: nothing else was promising; a part of the budget, where "
        f"seconds also means --for; ranges: {ALL_READ}.",
        Rule(enum=[NOTHING, *OPTIONS, RANGES]),
    ]
    usage: Annotated[
        Sequence[UsageChange],
        "Host resources that each workload used, over all samples; empty if none was measured.",
    ]
    source: Annotated[
        str,
        "fio: generated load. live: the mount's own traffic, with --live; the figures of read, "
        "write and fault are bytes per second of waiting, over all programs together.",
        Rule(enum=["fio", "live"]),
    ]
    warm_start: Annotated[
        BegunAt | None, "Where the search started; null if no earlier run is on record."
    ]
    curves: Annotated[
        Sequence[MeasuredKnob],
        "The effect of the values of each searched knob; empty with --live and --try-options, and "
        "for an unknown server.",
    ]

    @property
    def better(self) -> bool:
        """Whether something was proven better."""
        return self.gain.ratio > 1

    def parts(self) -> Iterator[str | Table]:
        """Yield the values and speeds before and after, the reasons and the cost."""
        yield Table(
            ("knob", "before", "after"),
            [(name, str(value), str(self.after[name])) for name, value in self.before.items()],
            right="before after",
        )
        yield from self.figures()
        if self.applied:
            gain = ratio_text(self.gain.ratio, self.gain.ci95)
            path = shell_word(self.mount.path)
            yield f"set and saved: {gain}; 'fusetune reset {path}' undoes it"
        else:
            yield "no better values were found; nothing was changed"
            path = shell_word(self.mount.path)
            yield f"'fusetune auto {path} --try-options' measures the gain of its server's options"

    def figures(self) -> Iterator[str | Table]:
        """Yield the speeds before and after, the reasons and the cost."""
        if self.per_workload:
            yield ""
            yield gains_table(self.per_workload)
        for curve in self.curves:
            if curve.chosen != curve.start:
                yield ""
                yield from curve.parts()
        yield ""
        yield from (f"- {one.text()}" for one in (self.warm_start, *self.usage) if one)
        yield from (f"- {reason}" for reason in self.reasons)
        if self.source == "live":
            cost = self.cost
            yield f"{cost.evaluations} blocks of traffic in {cost.seconds:.0f} s, no files used"
        else:
            yield cost_text(self.cost, self.read)


@dataclass(frozen=True)
class MeasuredOptions(MeasuredSetting):
    """One setting of options and live knobs, and its samples."""

    options: Annotated[
        Mapping[str, Annotated[str | None, "Its value; null if the option is left out."]],
        "The options that differ from those of the live mount, by name.",
    ]


@dataclass(frozen=True)
class AutoOptions(AutoResult):
    """What 'auto --try-options' measured on shadow mounts, and what it advises."""

    SCHEMA = "auto-options"
    COMMANDS = ("auto --try-options",)

    trials: Annotated[Sequence[MeasuredOptions], "Every setting that was measured."]
    advice: Annotated[Advised, "The options that were proven better, in the format of 'advise'."]

    def parts(self) -> Iterator[str | Table]:
        """Yield the advice, the speeds, the reasons and the cost."""
        if self.advice.changes:
            yield from self.advice.parts()
        yield from self.figures()
        gain = ratio_text(self.gain.ratio, self.gain.ci95)
        if self.advice.changes:
            yield f"proven on shadow mounts: {gain}; nothing was changed"
            if names := self._writable():
                said = f"writes {', '.join(names)} into the files of the mount"
                yield f"'{self._remount(names)}' {said}"
        elif self.better:
            yield f"no option is better, but values of live knobs are: {gain}; nothing was changed"
        else:
            yield "no better options were found; nothing was changed"

    def _writable(self) -> dict[str, str]:
        """Return the class of each option that `remount` may write."""
        return {
            one.option: one.class_
            for one in self.advice.changes
            if one.class_ != "unsafe" and not is_by_module(one.option)
        }

    def _remount(self, names: Mapping[str, str]) -> str:
        """Return the command that writes these options and accepts their conditions."""
        words = [f"-w {name}" for name in self.workloads]
        words += [f"--accept {shell_word(n)}" for n, c in names.items() if c == "conditional"]
        words += [f"--only {shell_word(name)}" for name in names]
        return " ".join(["fusetune remount", shell_word(self.mount.path), *words])


def auto_result(outcome: Outcome) -> AutoResult:
    """Return what 'auto' did."""
    choice = outcome.choice
    return AutoResult(
        identity(outcome.mount),
        [workload.name for workload in outcome.workloads],
        weights_of(outcome.workloads),
        outcome.before,
        outcome.after,
        Ratio(choice.gain.ratio, [choice.gain.low, choice.gain.high]),
        workload_gains(outcome.workloads, choice, outcome.start, outcome.latencies),
        [
            MeasuredSetting(
                one.setting,
                one.samples,
                _shown(outcome.latencies.of(one.setting)),
                usage_by_name(outcome.usages.of(one.setting)),
            )
            for one in outcome.trials
        ],
        _cost(outcome),
        choice.changed,
        choice.changed,
        outcome.reasons,
        files_read(outcome.reading),
        guard_ratios(outcome.guarded),
        outcome.ended_by,
        _usage_changes(outcome),
        outcome.source,
        BegunAt(*astuple(outcome.warm_start)) if outcome.warm_start else None,
        measured_knobs(outcome.run) if outcome.run else [],
    )


def auto_options(outcome: OptionsOutcome) -> AutoOptions:
    """Return what 'auto --try-options' found."""
    choice = outcome.choice
    return AutoOptions(
        identity(outcome.mount),
        [workload.name for workload in outcome.workloads],
        weights_of(outcome.workloads),
        outcome.before,
        outcome.after,
        Ratio(choice.gain.ratio, [choice.gain.low, choice.gain.high]),
        workload_gains(outcome.workloads, choice, outcome.start, outcome.latencies),
        [
            MeasuredOptions(
                one.setting, one.samples, _shown(one.latency), usage_by_name(one.usage), one.options
            )
            for one in outcome.trials
        ],
        _cost(outcome),
        False,
        False,
        outcome.reasons,
        files_read(outcome.reading),
        guard_ratios(outcome.guarded),
        outcome.ended_by,
        _usage_changes(outcome),
        "fio",
        None,
        [],
        advised(outcome.advice, gains=outcome.gains),
    )


def _cost(outcome: Outcome | OptionsOutcome) -> Cost:
    return Cost(
        outcome.seconds,
        outcome.bytes_written,
        outcome.evaluations,
        outcome.bytes_read,
        outcome.requests,
    )


def _usage_changes(outcome: Outcome | OptionsOutcome) -> list[UsageChange]:
    setting = outcome.choice.setting if outcome.choice.changed else None
    return usage_changes(outcome.workloads, outcome.usages, outcome.start, setting)


def _shown(latencies: Mapping[str, Latency]) -> dict[str, Percentiles]:
    found = {name: percentiles(latency) for name, latency in latencies.items()}
    return {name: one for name, one in found.items() if one}
