# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``report``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.changes.state import KnobState
from fusetune.masking import mask_text
from fusetune.mounts.stack import Layer
from fusetune.report.documents.base import (
    AbsentReason,
    Count,
    Document,
    KnobName,
    KnobValue,
    LeftAloneReason,
    MountIdentity,
    SetBy,
    Stock,
    Text,
    Unit,
)
from fusetune.report.documents.counted import (
    Counted,
    Dirty,
    counted_operations,
    dirty_memory,
)
from fusetune.report.documents.diagnosis import (
    DirtyPercent,
    Findings,
    MaxDirtyPercent,
    MountsElsewhere,
    shown_findings,
)
from fusetune.report.documents.expected import (
    ExpectedOrigin,
    ExpectedValue,
    SavedResult,
    origin_of,
    saved_result,
)
from fusetune.report.documents.history import HistoryEntry, entries_of
from fusetune.report.documents.layers import Below, layers_below
from fusetune.report.documents.measured import LastMeasured, last_measured
from fusetune.report.documents.sources import Sources, source_ages
from fusetune.report.documents.verify import Differences, Differs, RefusedReason
from fusetune.report.inventory import MODULES, InventoriedMount, Inventory
from fusetune.report.text import Table, ratio_text, value_text
from fusetune.schema import Rule
from fusetune.text import counted

#: Entries of a mount's history in a report.
_LATEST = 10


@dataclass(frozen=True)
class FuseModule:
    """A FUSE module."""

    name: Annotated[str, "Name of the module.", Rule(enum=list(MODULES))]
    built_in: Annotated[bool, "Whether it is built into the kernel."]
    version: Annotated[str | None, "Its version; null if it has none, like the stock module."]


@dataclass(frozen=True)
class ReportedHost:
    """The host."""

    kernel: Annotated[Text, "Release of the kernel."]
    machine: Annotated[Text, "Hardware name, as in uname(2)."]
    cores: Annotated[Count, "Processors."]
    memory_bytes: Annotated[Count, "Memory of the machine, in bytes."]
    modules: Annotated[Sequence[FuseModule], "The FUSE modules in the kernel."]
    libfuse_versions: Annotated[
        Sequence[
            Annotated[
                str,
                "Version, as in the library's file name.",
                Rule(pattern=r"^[0-9]+(\.[0-9]+)+$"),
            ]
        ],
        "Installed versions of libfuse.",
    ]
    sources: Sources

    def parts(self) -> Iterator[str]:
        """Yield the host's kernel, memory, modules and libfuse."""
        modules = ", ".join(
            f"{one.name} ({'built in' if one.built_in else one.version or 'module'})"
            for one in self.modules
        )
        yield (
            f"kernel {self.kernel} on {self.machine}, {self.cores} cores, "
            f"{self.memory_bytes / (1 << 30):.1f} GiB"
        )
        yield f"FUSE modules: {modules or 'none loaded'}"
        yield f"libfuse: {', '.join(self.libfuse_versions) or 'none installed'}"
        yield from (one.summary for one in self.sources)
        yield ""


@dataclass(frozen=True)
class ReportedKnob:
    """A live knob."""

    name: KnobName
    unit: Unit
    stock: Stock
    value: KnobValue
    absent_reason: AbsentReason
    set_by: SetBy
    refused_reason: RefusedReason
    differs: Differs
    expected: ExpectedValue
    origin: ExpectedOrigin


@dataclass(frozen=True)
class ReportedMount(MountIdentity):
    """A mount's current and desired state."""

    owner_uid: Annotated[Count, "User ID of the user who mounted it."]
    waiting: Annotated[
        Count | None, "How many requests wait for the server's reply; null if unknown."
    ]
    left_alone_reason: LeftAloneReason
    saved: Annotated[
        SavedResult | None,
        "The result saved for the mount by 'auto' or 'save'; null if there is none.",
    ]
    knobs: Annotated[Sequence[ReportedKnob], "The live knobs, in the order of their table."]
    below: Below
    dirty: Dirty
    operations: Counted
    measured: LastMeasured
    history: Annotated[
        Sequence[HistoryEntry],
        f"The latest {_LATEST} entries of 'history', oldest first.",
    ]

    @property
    def shown_source(self) -> str:
        """Its source without secrets, for people; JSON has what mountinfo has."""
        return mask_text(self.source)

    def parts(self) -> Iterator[str | Table]:
        """Yield the mount, what is saved for it, and a table of its knobs."""
        yield (
            f"{self.path} ({self.fstype} of {self.shown_source}, bdi {self.bdi}, "
            f"uid {self.owner_uid})"
        )
        if self.left_alone_reason:
            yield f"  left alone: {self.left_alone_reason}"
        if self.below:
            yield f"  lies on {', '.join(one.text for one in self.below)}"
        if self.waiting:
            yield f"  {self.waiting} requests wait for its server"
        if self.saved and self.saved.gain_ratio is not None:
            gain, ci95 = self.saved.gain_ratio, self.saved.ci95
            speed = f"{gain:.2f}" if ci95 is None else ratio_text(gain, ci95)
            yield f"  last auto: {speed} times the speed before"
        yield Table(
            ("  knob", "value", "stock", "kept", "set by", ""),
            [
                (
                    "  " + knob.name,
                    knob.absent_reason or value_text(knob.value),
                    value_text(knob.stock),
                    "-" if knob.expected is None else f"{knob.expected} ({knob.origin})",
                    value_text(knob.set_by),
                    knob.refused_reason or ("DIFFERS" if knob.differs else ""),
                )
                for knob in self.knobs
            ],
            right="value stock",
        )
        yield ""


@dataclass(frozen=True)
class HostReport(Document):
    """The complete report about FUSE on this host."""

    SCHEMA = "report"
    COMMANDS = ("report",)

    host: ReportedHost
    mounts: Annotated[
        Sequence[ReportedMount], "The mounts that were examined, in the order of mounting."
    ]
    differences: Differences
    problems: Annotated[
        Sequence[Annotated[Text, "One sentence."]],
        "Configuration and saved results that cannot be used.",
    ]
    dirty_percent: DirtyPercent
    max_dirty_percent: MaxDirtyPercent
    mounts_elsewhere: MountsElsewhere
    findings: Findings

    def parts(self) -> Iterator[str | Table]:
        """Yield the host, the changed values of each mount, and the findings."""
        yield from self.host.parts()
        for mount in self.mounts:
            yield from mount.parts()
        yield (
            f"{counted(len(self.mounts), 'mount')}, "
            f"{counted(self.differences, 'value')} not as kept; tuned mounts together may use "
            f"{self.dirty_percent} % of the host's dirty limit"
        )
        for finding in self.findings:
            yield from finding.parts()
        yield from (f"! {problem}" for problem in self.problems)


def host_report(inventory: Inventory, *, measured: bool = True) -> HostReport:
    """Return the document of an inventory.

    ``measured``: whether to include measurements of ``auto``, which take some 50 ms per mount.
    """
    diagnosis = inventory.diagnosis
    mounts = [_mount(one, diagnosis.below, measured) for one in inventory.mounts]
    return HostReport(
        ReportedHost(
            inventory.kernel,
            inventory.machine,
            inventory.cores,
            inventory.memory_bytes,
            [FuseModule(one.name, one.built_in, one.version) for one in inventory.modules],
            inventory.libfuse,
            source_ages(diagnosis.ages),
        ),
        mounts,
        sum(knob.differs for mount in mounts for knob in mount.knobs),
        inventory.problems,
        diagnosis.dirty_percent,
        diagnosis.max_dirty_percent,
        diagnosis.elsewhere,
        shown_findings(diagnosis.findings),
    )


def _mount(
    one: InventoriedMount, below: Mapping[str, Sequence[Layer]], measured: bool
) -> ReportedMount:
    mount = one.mount
    return ReportedMount(
        mount.path,
        mount.fstype,
        mount.source,
        mount.bdi,
        mount.owner_uid,
        one.waiting,
        one.left_alone,
        saved_result(one.saved),
        [_knob(one, state) for state in one.states],
        layers_below(below.get(mount.device, ())),
        dirty_memory(one.dirty, strict=_is_strict(one.states)),
        counted_operations(one.counters),
        last_measured(one.saved) if measured else None,
        entries_of(one.history)[-_LATEST:],
    )


def _is_strict(states: Sequence[KnobState]) -> bool:
    """Whether the mount has a strict dirty limit, the default of FUSE."""
    return not any(one.knob.name == "strict_limit" and one.value == 0 for one in states)


def _knob(one: InventoriedMount, state: KnobState) -> ReportedKnob:
    knob, expected = state.knob, one.expected.get(state.knob.name)
    return ReportedKnob(
        knob.name,
        knob.unit,
        knob.stock,
        state.value,
        state.absent,
        state.set_by,
        expected.refused if expected else None,
        knob.name in one.differing,
        expected.value if expected else None,
        origin_of(expected) if expected else None,
    )
