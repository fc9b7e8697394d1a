# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents of ``set``, ``reset`` and ``apply``: values before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.changes.apply import Change
from fusetune.desired.sysctl import Line
from fusetune.desired.undo import Reset
from fusetune.report.documents.base import (
    RAW_BYTES,
    Count,
    DiffLine,
    Document,
    DryRun,
    FullPath,
    KnobFile,
    KnobName,
    MountPoint,
)
from fusetune.report.documents.edits import AdvisedEdit, edits_of
from fusetune.report.documents.kept import ForgottenFile, forgotten, kept
from fusetune.report.text import Table


@dataclass(frozen=True)
class ChangedValue:
    """One changed value."""

    mount: Annotated[
        MountPoint | None,
        f"Absolute path of a mount point; null for the host's own knobs. {RAW_BYTES}",
    ]
    knob: KnobName
    file: Annotated[
        FullPath,
        "Full path of the value's file: in /sys or /proc, or in /etc for later boots.",
    ]
    before: Annotated[
        Count | None,
        "Previous value, in the knob's unit; null if a file for later boots had none.",
    ]
    after: Annotated[
        Count | None,
        "New value, in the knob's unit; null if a file for later boots no longer has one.",
    ]


@dataclass(frozen=True)
class Changes(Document):
    """What a command changed, or would change with --dry-run."""

    dry_run: DryRun
    changes: Annotated[Sequence[ChangedValue], "The changes, in the order of writing."]

    def parts(self) -> Iterator[str | Table]:
        """Yield a table of the files."""
        if not self.changes:
            yield "nothing to change"
            return
        yield Table(
            ("file", "before", "after"),
            [(one.file, _value(one.before), _value(one.after)) for one in self.changes],
            right="before after",
        )
        if self.dry_run:
            yield "dry run: nothing was written"


def _value(value: int | None) -> str:
    return "none" if value is None else str(value)


@dataclass(frozen=True)
class SetChanges(Changes):
    """What 'set' changed, or would change with --dry-run. Unchanged knobs are left out."""

    SCHEMA = "set"
    COMMANDS = ("set",)


@dataclass(frozen=True)
class ResetChanges(Changes):
    """What 'reset' restored, or would restore with --dry-run. Unchanged knobs are left out."""

    SCHEMA = "reset"
    COMMANDS = ("reset",)

    edits: Annotated[Sequence[AdvisedEdit], "The files of 'remount' that were restored."]
    forgotten: Annotated[Sequence[ForgottenFile], "The saved results that were removed."]

    def parts(self) -> Iterator[str | Table]:
        """Yield a table of the values, the results, and the diffs of the files."""
        if self.changes or not (self.edits or self.forgotten):
            yield from super().parts()
        elif self.dry_run:
            yield "dry run: nothing was written"
        yield from map(kept, self.forgotten)
        for edit in self.edits:
            yield from map(DiffLine, edit.diff.splitlines())
        if self.edits and not self.dry_run:
            yield "the next mount has the original options again"


@dataclass(frozen=True)
class AppliedValue(ChangedValue):
    """One changed value of a mount."""

    mount: MountPoint
    file: KnobFile
    before: Annotated[Count, "Previous value, in the knob's unit."]
    after: Annotated[Count, "New value, in the knob's unit."]


@dataclass(frozen=True)
class AppliedChanges(Changes):
    """What 'apply' changed, or would change with --dry-run. Unchanged knobs are left out."""

    SCHEMA = "apply"
    COMMANDS = ("apply",)

    changes: Annotated[Sequence[AppliedValue], "The changes, in the order of writing."]


def set_changes(changes: Sequence[Change | Line], dry_run: bool) -> SetChanges:
    """Return what 'set' changed; a `Line` is in a file for later boots."""
    return SetChanges(dry_run, [_changed(one) for one in changes])


def reset_changes(found: Reset, dry_run: bool) -> ResetChanges:
    """Return what 'reset' restored; a `Line` is in a file for later boots."""
    edits = [edit for one in found.undone for edit in edits_of(one.edits, one.secrets)]
    changes = [_changed(one) for one in found.changes]
    return ResetChanges(dry_run, changes, edits, forgotten(found.forgotten))


def applied_changes(changes: Sequence[Change], dry_run: bool) -> AppliedChanges:
    """Return what 'apply' changed."""
    return AppliedChanges(
        dry_run,
        [
            AppliedValue(one.mount.path, one.knob.name, one.file, one.old, one.new)
            for one in changes
            if one.mount
        ],
    )


def _changed(one: Change | Line) -> ChangedValue:
    mount = one.mount.path if one.mount else None
    return ChangedValue(mount, one.knob.name, one.file, one.old, one.new)
