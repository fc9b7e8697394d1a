# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``doctor``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.report.doctor import Diagnosis
from fusetune.report.documents.base import (
    RAW_BYTES,
    AbsentReason,
    Count,
    Document,
    KnobName,
    MountPoint,
    Object,
    Text,
    Unit,
)
from fusetune.report.documents.sources import Sources, source_ages
from fusetune.report.findings import FINDINGS, Finding
from fusetune.report.text import Table, value_text
from fusetune.schema import Rule
from fusetune.text import counted


def finding_name() -> Object:
    """Return the shape of the name of a finding."""
    return {
        "description": "What kind of finding it is.",
        "type": "string",
        "oneOf": [{"const": name, "description": one} for name, one in FINDINGS.items()],
    }


DirtyPercent = Annotated[
    Count, "What all tuned mounts together may keep dirty, in percent of the host's limit."
]
MaxDirtyPercent = Annotated[
    Count | None,
    "The bound of the configuration for dirty_percent; null where the configuration is wrong.",
]
MountsElsewhere = Annotated[
    Count, "How many FUSE mounts are in other mount namespaces (containers), and so left alone."
]


@dataclass(frozen=True)
class ShownFeature:
    """A knob of this kernel."""

    name: KnobName
    value: Annotated[Count | None, "Value now, in the knob's unit; null where it is absent."]
    unit: Unit
    absent_reason: AbsentReason


@dataclass(frozen=True)
class ShownFinding:
    """One thing that limits FUSE here."""

    name: Annotated[str, finding_name]
    mount: Annotated[
        MountPoint | None,
        f"Absolute path of a mount point; null if it is about the host. {RAW_BYTES}",
    ]
    what: Annotated[Text, "What was found: one sentence."]
    remedy: Annotated[Text, "What to do about it."]

    def parts(self) -> Iterator[str]:
        """Yield what was found and what to do."""
        yield f"! {self.what}"
        yield f"  remedy: {self.remedy}"


Findings = Annotated[Sequence[ShownFinding], "What limits FUSE here."]


@dataclass(frozen=True)
class DoctorReport(Document):
    """What limits FUSE on this host, with remedies."""

    SCHEMA = "doctor"
    COMMANDS = ("doctor",)

    dirty_percent: DirtyPercent
    mounts_elsewhere: MountsElsewhere
    sources: Sources
    max_dirty_percent: MaxDirtyPercent
    features: Annotated[
        Sequence[ShownFeature],
        "What this kernel offers: the host's knobs, and those of the first mount.",
        Rule(minItems=1),
    ]
    findings: Findings

    def parts(self) -> Iterator[str | Table]:
        """Yield what the kernel offers, the sum of dirty memory, and the findings."""
        yield Table(
            ("feature", "value", "unit"),
            [
                (one.name, value_text(one.value), one.absent_reason or one.unit)
                for one in self.features
            ],
            right="value",
        )
        bound = self.max_dirty_percent
        yield (
            f"tuned mounts together may keep {self.dirty_percent} % of the host's dirty limit"
            + ("" if bound is None else f", at most {bound} by configuration")
        )
        if self.mounts_elsewhere:
            yield (
                f"in other mount namespaces (containers), and left alone: "
                f"{counted(self.mounts_elsewhere, 'FUSE mount')}"
            )
        yield ""
        for finding in self.findings:
            yield from finding.parts()
        if not self.findings:
            yield "nothing found that limits FUSE here"


def doctor_report(diagnosis: Diagnosis) -> DoctorReport:
    """Return the document of a diagnosis."""
    return DoctorReport(
        diagnosis.dirty_percent,
        diagnosis.elsewhere,
        source_ages(diagnosis.ages),
        diagnosis.max_dirty_percent,
        [
            ShownFeature(one.knob.name, one.value, one.knob.unit, one.absent)
            for one in diagnosis.features
        ],
        shown_findings(diagnosis.findings),
    )


def shown_findings(findings: Iterable[Finding]) -> list[ShownFinding]:
    """Return what a document says of findings."""
    return [
        ShownFinding(one.name, one.mount.path if one.mount else None, one.what, one.remedy)
        for one in findings
    ]
