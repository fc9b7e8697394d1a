# SPDX-License-Identifier: GPL-2.0-or-later
"""The measurements of the last ``auto``, as documents have them: curves and trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.intervals import Interval
from fusetune.desired.curve import BeforeAfter, Curve
from fusetune.desired.results import Run, Saved
from fusetune.knobs import LIVE_BY_NAME
from fusetune.report.documents.base import Count, Interval95, KnobName, KnobValues, Positive, Unit
from fusetune.report.documents.figures import Sample, WorkloadName, WorkloadUnit
from fusetune.report.text import Table, ratio_text
from fusetune.schema import Rule

#: Length of the longest bar of a curve, in characters.
_BAR = 32
AtLeastOne = Annotated[int, Rule(minimum=1)]


@dataclass(frozen=True)
class MeasuredPoint:
    """A value of a knob that was measured."""

    value: Annotated[Count, "The value, in the knob's unit."]
    ratio: Annotated[
        Positive,
        "Speed with this value divided by the speed with the initial value, estimated by the model "
        "of the search; 1 for the initial value. Other knobs have the chosen values.",
    ]
    ci95: Annotated[Interval95, "95 % interval of the ratio, lower end first."]
    samples: Annotated[AtLeastOne, "How many of the trials had this value."]


@dataclass(frozen=True)
class MeasuredKnob:
    """The effect of the values of a knob."""

    name: KnobName
    unit: Unit
    ordered: Annotated[
        bool, "Whether neighbouring values perform similarly; false for switches and the like."
    ]
    start: Annotated[Count, "Initial value, in the knob's unit."]
    chosen: Annotated[Count, "Chosen value, in the knob's unit."]
    points: Annotated[
        Sequence[MeasuredPoint], "The values measured, the smallest first.", Rule(minItems=2)
    ]

    def caption(self) -> str:
        """Return the chosen value and its effect."""
        chosen = f"{self.name}: {self.chosen} chosen"
        if self.chosen == self.start:
            return f"{chosen}, unchanged"
        speeds = (ratio_text(p.ratio, p.ci95) for p in self.points if p.value == self.chosen)
        return "".join([chosen, *(f", {s} times the speed with {self.start}" for s in speeds)])

    def parts(self) -> Iterator[Table]:
        """Yield the curve as a table: each value, its ratio, and a bar of that length."""
        most = max(point.ratio for point in self.points)
        yield Table(
            (self.name, f"speed / speed with {self.start} {self.unit}", ""),
            [
                (
                    str(point.value),
                    "1" if point.value == self.start else ratio_text(point.ratio, point.ci95),
                    "#" * round(_BAR * point.ratio / most)
                    + (" chosen" if point.value == self.chosen else ""),
                )
                for point in self.points
            ],
            right=self.name,
        )


@dataclass(frozen=True)
class MeasuredWorkload:
    """A workload's figures before and after, from the confirming blocks.

    They are null if not on record.
    """

    name: WorkloadName
    unit: WorkloadUnit
    before: Annotated[
        Positive | None,
        "Figure with the initial values, geometric mean, in the workload's unit.",
    ]
    after: Annotated[
        Positive | None, "Figure with the chosen values, geometric mean, in the workload's unit."
    ]
    ratio: Annotated[Positive | None, "After divided by before; above 1 is faster."]
    ci95: Annotated[Interval95 | None, "95 % interval of the ratio, lower end first."]


@dataclass(frozen=True)
class MeasuredTrial:
    """One evaluation of a setting."""

    block: Annotated[
        AtLeastOne,
        "Number of its block. The host drifts from block to block, so only figures within one "
        "block are comparable.",
    ]
    knobs: KnobValues
    figures: Sample


@dataclass(frozen=True)
class Measured:
    """What the last 'auto' that changed the mount measured."""

    start: Annotated[KnobValues, "Initial values of the searched knobs; empty if not on record."]
    chosen: Annotated[KnobValues, "Chosen values of the searched knobs; empty if not on record."]
    workloads: Annotated[Sequence[MeasuredWorkload], "The workloads measured."]
    knobs: Annotated[
        Sequence[MeasuredKnob],
        "The knobs with several measured values; empty if the initial values are not on record.",
    ]
    trials: Annotated[
        Sequence[MeasuredTrial],
        "The recorded trials, in order, followed by those of the earlier run from which it "
        "started. Of more than 80, the proof and the first ones are on record.",
    ]


LastMeasured = Annotated[
    Measured | None,
    "Measurements of the last 'auto'; null if nothing is saved or they are not on record.",
]


def last_measured(saved: Saved | None) -> Measured | None:
    """Return the run of a saved result in the form of documents; None if there is none."""
    return None if saved is None or saved.run is None else measured(saved.run)


def measured(run: Run) -> Measured:
    """Return a run of ``auto`` in the form of documents."""
    proof = {one.workload: one for one in _proof(run)}
    return Measured(
        run.start,
        run.chosen,
        [_workload(name, unit, proof.get(name)) for name, unit in run.conditions.units.items()],
        measured_knobs(run),
        [
            MeasuredTrial(number, knobs, figures)
            for number, block in enumerate(run.blocks, 1)
            for knobs, figures in block
        ],
    )


def _proof(run: Run) -> Sequence[BeforeAfter]:
    if run.proof is not None:
        return run.proof
    # Most reports, and all metrics, need no model. Earlier versions did not record the proof.
    from fusetune.tuner.curves import before_and_after  # noqa: PLC0415

    return before_and_after(run)


def measured_knobs(run: Run) -> list[MeasuredKnob]:
    """Return the effect of each knob that a run measured, in the form of documents."""
    if run.curves is not None:
        return [_knob(curve) for curve in run.curves]
    # Version 3 of saved results had no curves.
    from fusetune.tuner.curves import curves  # noqa: PLC0415 - as above

    return [_knob(curve) for curve in curves(run)]


def _workload(name: str, unit: str, proof: BeforeAfter | None) -> MeasuredWorkload:
    if proof is None:
        return MeasuredWorkload(name, unit, None, None, None, None)
    ratio = proof.ratio
    return MeasuredWorkload(name, unit, proof.before, proof.after, ratio.ratio, _ends(ratio))


def _knob(curve: Curve) -> MeasuredKnob:
    return MeasuredKnob(
        curve.knob,
        LIVE_BY_NAME[curve.knob].unit,
        curve.ordered,
        curve.start,
        curve.chosen,
        [
            MeasuredPoint(one.value, one.ratio.ratio, _ends(one.ratio), one.samples)
            for one in curve.points
        ],
    )


def _ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high
