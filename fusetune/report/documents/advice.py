# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``advise``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from fusetune.bench.intervals import Interval
from fusetune.bench.limits import Limits
from fusetune.mounts.mount import is_fuse
from fusetune.mounts.stack import Layer
from fusetune.recipes.advice import Advice
from fusetune.recipes.plan import Change
from fusetune.recipes.recipe import LIBRARIES
from fusetune.report.documents.base import (
    DiffLine,
    Document,
    FullPath,
    Interval95,
    MountIdentity,
    Positive,
    Text,
)
from fusetune.report.documents.edits import AdvisedEdit
from fusetune.report.documents.stack import (
    Layers,
    LimitingLayer,
    limiting_layer,
    stack_layers,
    stack_text,
)
from fusetune.report.text import Table, ratio_text
from fusetune.schema import Rule


@dataclass(frozen=True)
class AdvisedServer:
    """The server of the mount, as far as it is known."""

    program: Annotated[FullPath | None, "Absolute path of its program."]
    version: Annotated[Text | None, "Its version, as its package gives it."]
    library: Annotated[str | None, "The library that it is built on.", Rule(enum=list(LIBRARIES))]


@dataclass(frozen=True)
class AdvisedGain:
    """What a change gains."""

    ratio: Annotated[Positive, "Speed after divided by speed before."]
    ci95: Annotated[Interval95, "Its 95 % interval."]


@dataclass(frozen=True)
class AdvisedChange:
    """An option to set or to leave out at the next mount."""

    option: Annotated[
        Text, "Name of the option in the recipe; tuned.NAME: a mount option of the module."
    ]
    about: Annotated[Text, "What the option does, or why it is harmful."]
    from_: Annotated[
        str | None, "Its current value; null if it is not set and its default is unknown."
    ]
    to: Annotated[str | None, "The value to set; null to leave the option out."]
    gain: Annotated[AdvisedGain | None, "What it gains; null if that was not measured."]
    measured: Annotated[bool, "Whether the gain was measured on this mount."]
    class_: Annotated[
        str,
        "safe: no program can see a difference; conditional: correct if the condition holds; "
        "unsafe: data can be lost or corrupted, proposed only on request.",
        Rule(enum=["safe", "conditional", "unsafe"]),
    ]
    condition: Annotated[Text | None, "When the change is correct; null if always."]
    risk: Annotated[Text, "What happens if the condition does not hold."]
    needs: Annotated[
        Sequence[Annotated[Text, "Another option with its value, or a sentence."]],
        "What else the change needs.",
    ]
    slows: Annotated[
        Sequence[Annotated[str, "A workload."]], "The workloads that the change slows down."
    ]
    source: Annotated[Text, "The source of these facts."]


@dataclass(frozen=True)
class AdvisedCommands:
    """The server's command line; *** stands for what may be a secret."""

    now: Annotated[Text | None, "The current line; null if it cannot be read."]
    then: Annotated[Text | None, "The proposed line; null if it does not change."]


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
        "Options that have no effect or are unsafe, what limits a mount without a recipe, and what "
        "could not be read.",
    ]
    layers: Layers
    limits: Annotated[
        LimitingLayer | None,
        "The layer that limits; null if none stands out, or without --measure-layers.",
    ]

    @property
    def has_advice(self) -> bool:
        """Whether the document has more than an empty result of a recipe."""
        return bool(
            self.changes
            or self.recipe is None
            or any(one.changes or one.workloads for one in self.layers)
        )

    def parts(self) -> Iterator[str | Table]:
        """Yield the layers, changes with their conditions, command lines, diffs and notes."""
        if any(is_fuse(one.fstype) for one in self.layers[:-1]):
            yield from stack_text(self.layers, self.limits)
        if self.recipe and not self.changes:
            yield f"{self.mount.path}: recipe {self.recipe} proposes no change"
            yield from (f"note: {note}" for note in self.notes)
            return
        server = self.server.program or "unknown server"
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
            yield from map(DiffLine, edit.diff.splitlines())
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
    if change.class_ == "unsafe":
        yield f"  unsafe: only if {change.condition}; otherwise {change.risk}"
    elif change.condition:
        yield f"  only if {change.condition}; otherwise {change.risk}"
    else:
        yield f"  {change.class_}: {change.risk}"
    if change.needs:
        yield f"  needs {', '.join(change.needs)}"
    if change.slows:
        yield f"  slows down {', '.join(change.slows)}"
    if change.gain:
        yield f"  gain {ratio_text(change.gain.ratio, change.gain.ci95)}"
    else:
        yield "  gain not measured"
    yield f"  source: {change.source}"


def advised(
    advice: Advice,
    general: Sequence[str] = (),
    below: Sequence[Layer] = (),
    proposed: Mapping[str, Sequence[str]] | None = None,
    limits: Limits | None = None,
    gains: Mapping[str, Interval] = MappingProxyType({}),
) -> Advised:
    """Return the document; ``general``: what limits a mount without a recipe.

    ``below``: all layers that the mount lies on, from the bottom up; ``proposed``: the options
    proposed for each, by device; ``limits``: what was measured; ``gains``: by option name.
    """
    mount = advice.mount
    own = {mount.device: [one.option for one in advice.changes]}
    layers = stack_layers(mount, below, own | dict(proposed or {}), limits)
    return Advised(
        MountIdentity(mount.path, mount.fstype, advice.source, mount.bdi),
        AdvisedServer(advice.program, advice.version, advice.library),
        advice.recipe.recipe.name if advice.recipe else None,
        [_change(one, gains.get(one.option)) for one in advice.changes],
        AdvisedCommands(advice.now, advice.then),
        [AdvisedEdit(file, diff) for file, diff in advice.edits],
        [*advice.named, *general, *advice.notes],
        layers,
        limiting_layer(layers, limits),
    )


def _change(change: Change, gain: Interval | None) -> AdvisedChange:
    return AdvisedChange(
        change.option,
        change.about,
        change.before,
        change.after,
        AdvisedGain(gain.ratio, [gain.low, gain.high]) if gain else None,
        gain is not None,
        change.class_,
        change.condition,
        change.risk,
        change.needs,
        change.slows,
        change.source,
    )
