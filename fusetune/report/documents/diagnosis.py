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
    """Return the schema of a finding's name."""
    return {
        "description": "The kind of finding.",
        "type": "string",
        "oneOf": [{"const": name, "description": one} for name, one in FINDINGS.items()],
    }


DirtyPercent = Annotated[
    Count, "Dirty memory allowed to all tuned mounts together, in percent of the host's limit."
]
MaxDirtyPercent = Annotated[
    Count | None,
    "The configured bound of dirty_percent; null if the configuration is invalid.",
]
MountsElsewhere = Annotated[
    Count,
    "How many FUSE mounts are left alone because they are in other mount namespaces (containers).",
]


@dataclass(frozen=True)
class ShownFeature:
    """A knob of this kernel."""

    name: KnobName
    value: Annotated[Count | None, "Current value, in the knob's unit; null if it is absent."]
    unit: Unit
    absent_reason: AbsentReason


@dataclass(frozen=True)
class ShownFinding:
    """One thing that limits FUSE here."""

    name: Annotated[str, finding_name]
    mount: Annotated[
        MountPoint | None,
        f"Absolute path of a mount point; null if the finding concerns the host. {RAW_BYTES}",
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
        "The knobs of this kernel: the host's, and those of the first mount.",
        Rule(minItems=1),
    ]
    findings: Findings

    def parts(self) -> Iterator[str | Table]:
        """Yield the kernel's knobs, the sum of dirty memory, and the findings."""
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
            f"tuned mounts together may use {self.dirty_percent} % of the host's dirty limit"
            + ("" if bound is None else f"; max_dirty_percent is {bound}")
        )
        if self.mounts_elsewhere:
            yield (
                f"left alone in other mount namespaces (containers): "
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
    """Return findings in the form of documents."""
    return [
        ShownFinding(one.name, one.mount.path if one.mount else None, one.what, one.remedy)
        for one in findings
    ]
