# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``advise``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.recipes.advice import Advice
from fusetune.recipes.advise import Change
from fusetune.recipes.recipe import LIBRARIES
from fusetune.report.documents.base import (
    Document,
    FullPath,
    Interval95,
    MountIdentity,
    Positive,
    Text,
)
from fusetune.report.text import ratio_text
from fusetune.schema import Rule


@dataclass(frozen=True)
class AdvisedServer:
    """The server of the mount, as far as it is known."""

    program: Annotated[FullPath | None, "Absolute path of its program."]
    version: Annotated[Text | None, "Its version, as the package says it."]
    library: Annotated[str | None, "What it is built on.", Rule(enum=list(LIBRARIES))]


@dataclass(frozen=True)
class AdvisedGain:
    """What a change gains."""

    ratio: Annotated[Positive, "Speed after divided by speed before."]
    ci95: Annotated[Interval95, "Its 95 % interval."]


@dataclass(frozen=True)
class AdvisedChange:
    """An option to set, or to leave out, at the next mount."""

    option: Annotated[Text, "Name of the option, in the recipe."]
    about: Annotated[Text, "What the option does, or why it hurts."]
    from_: Annotated[
        str | None, "Its value now; null if it is not set and its default is not known."
    ]
    to: Annotated[str | None, "The value to set; null to leave the option out."]
    gain: Annotated[AdvisedGain | None, "What it gains; null if that was not measured."]
    measured: Annotated[bool, "Whether the gain was measured on this mount."]
    class_: Annotated[
        str,
        "safe: nothing that a program can see changes; conditional: right where the condition "
        "holds.",
        Rule(enum=["safe", "conditional"]),
    ]
    condition: Annotated[Text | None, "When the change is right; null if always."]
    risk: Annotated[Text, "What happens where the condition does not hold."]
    needs: Annotated[
        Sequence[Annotated[Text, "Another option with its value, or a sentence."]],
        "What the change needs besides.",
    ]
    source: Annotated[Text, "Where these facts come from."]


@dataclass(frozen=True)
class AdvisedCommands:
    """The server's command line; *** stands for what may be a secret."""

    now: Annotated[Text | None, "The line as it is; null if it cannot be read."]
    then: Annotated[Text | None, "The line as it should be; null if nothing is to change."]


@dataclass(frozen=True)
class AdvisedEdit:
    """A change of a file that says how the mount is made."""

    file: Annotated[FullPath, "Absolute path of the file."]
    diff: Annotated[Text, "The change as a unified diff for patch -p1 -d /."]


@dataclass(frozen=True)
class Advised(Document):
    """What to change at the next mount."""

    SCHEMA = "advise"
    COMMANDS = ("advise",)

    mount: Annotated[MountIdentity, "The mount."]
    server: AdvisedServer
    recipe: Annotated[Text | None, "Name of the recipe; null if there is none for this server."]
    changes: Annotated[Sequence[AdvisedChange], "The options to change."]
    commands: AdvisedCommands
    edits: Annotated[Sequence[AdvisedEdit], "The files to change."]
    notes: Annotated[
        Sequence[Annotated[Text, "A sentence."]],
        "Options that do nothing or are unsafe, what limits a mount without a recipe, and what "
        "could not be read.",
    ]

    def parts(self) -> Iterator[str]:
        """Yield each change with its conditions, the command lines, the diffs and the notes."""
        if self.recipe and not self.changes:
            yield f"{self.mount.path}: the recipe {self.recipe} has nothing to change"
            yield from (f"note: {note}" for note in self.notes)
            return
        server = self.server.program or "the server is not known"
        version = f" {self.server.version}" if self.server.version else ""
        recipe = f"recipe {self.recipe}" if self.recipe else "no recipe"
        yield f"{self.mount.path} ({self.mount.fstype}, {server}{version}, {recipe})"
        for change in self.changes:
            yield ""
            yield from _lines(change)
        if self.commands.then:
            yield ""
            yield f"now:  {self.commands.now}"
            yield f"then: {self.commands.then}"
        for edit in self.edits:
            yield ""
            yield from edit.diff.splitlines()
        if self.notes:
            yield ""
            yield from (f"note: {note}" for note in self.notes)

    def diffs(self) -> str:
        """Return the diffs alone."""
        return "".join(edit.diff for edit in self.edits)


def _lines(change: AdvisedChange) -> Iterator[str]:
    if change.to is None:
        yield f"leave out {change.option} (now {change.from_})"
    else:
        now = "not set" if change.from_ is None else f"now {change.from_}"
        yield f"set {change.option} to {change.to} ({now})"
    yield f"  {change.about}"
    if change.condition:
        yield f"  only if {change.condition}; otherwise {change.risk}"
    else:
        yield f"  {change.class_}: {change.risk}"
    if change.needs:
        yield f"  needs {', '.join(change.needs)}"
    if change.gain:
        yield f"  gain {ratio_text(change.gain.ratio, change.gain.ci95)}"
    else:
        yield "  gain not measured"
    yield f"  source: {change.source}"


def advised(advice: Advice, general: Sequence[str]) -> Advised:
    """Return the document; ``general``: what limits a mount without a recipe."""
    mount = advice.mount
    return Advised(
        MountIdentity(mount.path, mount.fstype, advice.source, mount.bdi),
        AdvisedServer(advice.program, advice.version, advice.library),
        advice.recipe.recipe.name if advice.recipe else None,
        [_change(one) for one in advice.changes],
        AdvisedCommands(advice.now, advice.then),
        [AdvisedEdit(file, diff) for file, diff in advice.edits],
        [*advice.named, *general, *advice.notes],
    )


def _change(change: Change) -> AdvisedChange:
    return AdvisedChange(
        change.option,
        change.about,
        change.before,
        change.after,
        None,
        False,
        change.class_,
        change.condition,
        change.risk,
        change.needs,
        change.source,
    )
