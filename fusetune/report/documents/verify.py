# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``verify``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.changes.journal import Record
from fusetune.desired.drift import Verified
from fusetune.desired.inspect import Check
from fusetune.report.documents.base import (
    AbsentReason,
    Count,
    Document,
    Duration,
    KnobName,
    KnobValue,
    LeftAloneReason,
    MountIdentity,
    SetBy,
    Text,
    Unit,
)
from fusetune.report.documents.expected import Origin, origin_of
from fusetune.report.documents.sources import Sources, source_ages
from fusetune.report.text import Table
from fusetune.source_age import Age

Differs = Annotated[
    bool,
    "Whether the value differs from the expected one. Values that policy forbids and knobs that "
    "the kernel lacks do not count.",
]
Differences = Annotated[Count, "How many knobs differ."]
RefusedReason = Annotated[Text | None, "Why policy forbids the value; null if it does not."]


@dataclass(frozen=True)
class LastWrite:
    """The last write of a knob that fusetune's undo journal has."""

    value: Annotated[Count, "Written value, in the knob's unit."]
    why: Annotated[Text, "The command of fusetune that wrote it, and its reason."]
    time_seconds: Annotated[Duration, "Time of the write, in seconds since the epoch."]


@dataclass(frozen=True)
class VerifiedKnob:
    """A kept knob and its current state."""

    name: KnobName
    unit: Unit
    expected: Annotated[Count, "Kept value, in the knob's unit."]
    actual: KnobValue
    origin: Origin
    differs: Differs
    refused_reason: RefusedReason
    absent_reason: AbsentReason
    set_by: SetBy
    last_write: Annotated[
        LastWrite | None,
        "The last write of this knob in fusetune's undo journal; null if there is none.",
    ]


@dataclass(frozen=True)
class VerifiedMount(MountIdentity):
    """A mount and the values kept for it."""

    left_alone_reason: LeftAloneReason
    knobs: Annotated[Sequence[VerifiedKnob], "The kept knobs, in the order of their table."]


@dataclass(frozen=True)
class Verification(Document):
    """The values of mounts, compared with the values kept for them."""

    SCHEMA = "verify"
    COMMANDS = ("verify",)

    differences: Differences
    problems: Annotated[
        Sequence[Annotated[Text, "One sentence."]],
        "Why some mounts cannot be compared, such as a saved result that cannot be read.",
    ]
    sources: Sources
    mounts: Annotated[
        Sequence[VerifiedMount], "The mounts that were examined, in the order of mounting."
    ]

    def parts(self) -> Iterator[str | Table]:
        """Yield every difference, and the number of values as expected."""
        each = [(mount, knob) for mount in self.mounts for knob in mount.knobs]
        differing = [(mount, knob) for mount, knob in each if knob.differs]
        if differing:
            yield Table(
                ("mount", "knob", "expected", "actual", "changed by", "expected from"),
                [
                    (
                        mount.path,
                        knob.name,
                        str(knob.expected),
                        str(knob.actual),
                        _changed_by(knob),
                        str(knob.origin),
                    )
                    for mount, knob in differing
                ],
                right="expected actual",
            )
        count = 0
        for mount, knob in each:
            if why := knob.refused_reason or knob.absent_reason:
                yield f"{mount.path}: {knob.name} is not set: {why}"
            else:
                count += not knob.differs
        yield f"{count} as kept, {len(differing)} different"
        for source in self.sources:
            if source.older:
                yield f"note: {source.summary}"


def _changed_by(knob: VerifiedKnob) -> str:
    """Return who last set a value, with the command if it was fusetune."""
    last = knob.last_write
    if knob.set_by == "fusetune" and last:
        return f"fusetune ({last.why})"
    if last and last.value != knob.actual:
        return "another program"
    return {"stock": "nobody", "other": "another program"}.get(knob.set_by or "", "unknown")


def verification(verified: Sequence[Verified], ages: Sequence[Age] = ()) -> Verification:
    """Return the document; ``ages``: how old our copies of others' code are."""
    return Verification(
        sum(check.differs for one in verified for check in one.checks),
        [one.problem for one in verified if one.problem],
        source_ages(ages),
        [
            VerifiedMount(
                one.mount.path,
                one.mount.fstype,
                one.mount.source,
                one.mount.bdi,
                one.left_alone,
                [_knob(check) for check in one.checks],
            )
            for one in verified
        ],
    )


def _knob(check: Check) -> VerifiedKnob:
    return VerifiedKnob(
        check.state.knob.name,
        check.state.knob.unit,
        check.expected.value,
        check.state.value,
        origin_of(check.expected),
        check.differs,
        check.expected.refused,
        check.state.absent,
        check.state.set_by,
        _last_write(check.last) if check.last else None,
    )


def _last_write(last: Record) -> LastWrite:
    return LastWrite(last.new, last.why, last.time)
