# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``remount``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.desired.remount import Remount
from fusetune.recipes.plan import Change
from fusetune.report.documents.base import DiffLine, Document, DryRun, MountIdentity, Text
from fusetune.report.documents.edits import AdvisedEdit, edits_of
from fusetune.schema import Rule


@dataclass(frozen=True)
class RemountChange:
    """An option of the next mount."""

    option: Annotated[Text, "Name of the option in the recipe."]
    from_: Annotated[
        str | None, "Its current value; null if it is not set and its default is unknown."
    ]
    to: Annotated[str | None, "Its new value; null if it is left out."]
    class_: Annotated[
        str,
        "safe: no program can see a difference; conditional: correct if the condition holds.",
        Rule(enum=["safe", "conditional"]),
    ]
    condition: Annotated[Text | None, "When the change is correct; null if always."]

    @property
    def words(self) -> str:
        """A short description of the change."""
        if self.to is None:
            return f"without {self.option}"
        return f"{self.option}={self.to} (now {self.from_ or 'not set'})"


@dataclass(frozen=True)
class Remounted(Document):
    """What 'remount' wrote for the next mount, and whether --now remounted."""

    SCHEMA = "remount"
    COMMANDS = ("remount",)

    mount: Annotated[MountIdentity, "The mount, as it was found."]
    recipe: Annotated[Text, "Name of the recipe."]
    dry_run: DryRun
    changes: Annotated[Sequence[RemountChange], "The changes of options."]
    not_applied: Annotated[
        Sequence[RemountChange],
        "Changes that 'advise' proposes but that were not made: their condition, or that of an "
        "option that they need, was not accepted, or the files cannot express them.",
    ]
    edits: Annotated[Sequence[AdvisedEdit], "The changes of files."]
    pending: Annotated[
        bool, "Whether the files have options that the current mount was not made with."
    ]
    commands: Annotated[
        Sequence[Annotated[Text, "A line for a shell."]],
        "Commands that make the options take effect.",
    ]
    in_use_by: Annotated[
        Sequence[Annotated[Text, "Name and id of a process, or another mount."]],
        "What uses the mount, so that --now did not remount; empty without --now.",
    ]
    remounted: Annotated[bool, "Whether it was remounted."]
    notes: Annotated[Sequence[Annotated[Text, "A sentence."]], "Notes as in 'advise'."]

    def parts(self) -> Iterator[str]:
        """Yield the changes, the diffs, the changes not made, and what remains to be done."""
        if not (self.changes or self.pending or self.remounted):
            yield f"{self.mount.path}: nothing to change"
        yield from (one.words for one in self.changes)
        for edit in self.edits:
            yield from map(DiffLine, edit.diff.splitlines())
        for one in self.not_applied:
            yield f"not applied: {one.words}"
            if one.condition:
                yield f"  only if {one.condition}: accept it with --accept {one.option}"
        yield from (f"note: {note}" for note in self.notes)
        yield from self._left_to_do()

    def _left_to_do(self) -> Iterator[str]:
        if self.remounted:
            yield f"{self.mount.path} was remounted"
        elif self.edits or self.pending:
            how = f": {'; '.join(self.commands)}" if self.commands else ""
            yield f"the next mount has these options{how}"
        if self.in_use_by:
            yield f"in use by {', '.join(self.in_use_by)}"
        if self.dry_run:
            yield "dry run: nothing was written"


def remounted(found: Remount, dry_run: bool) -> Remounted:
    """Return the document."""
    mount = found.mount
    return Remounted(
        MountIdentity(mount.path, mount.fstype, found.source, mount.bdi),
        found.recipe,
        dry_run,
        [_change(one) for one in found.changes],
        [_change(one) for one in found.withheld],
        edits_of(found.edits, found.secrets),
        found.pending or (bool(found.edits) and not (dry_run or found.remounted)),
        found.commands,
        found.in_use,
        found.remounted,
        found.notes,
    )


def _change(one: Change) -> RemountChange:
    return RemountChange(one.option, one.before, one.after, one.class_, one.condition)
