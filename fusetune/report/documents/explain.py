# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``explain``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.mounts.mount import Mount
from fusetune.report.documents.base import (
    AbsentReason,
    Document,
    KnobName,
    KnobValue,
    MountIdentity,
    SetBy,
    Stock,
    Text,
    Unit,
    identity,
)
from fusetune.report.explain import Explained
from fusetune.schema import Rule


@dataclass(frozen=True)
class ExplainedKnob:
    """A knob and why it has its value."""

    name: KnobName
    unit: Unit
    value: KnobValue
    stock: Stock
    set_by: SetBy
    absent_reason: AbsentReason
    sentences: Annotated[
        Sequence[Annotated[Text, "One sentence, without a full stop."]],
        "Its value, who set it, what keeps it, and what was tried, as far as on record.",
        Rule(minItems=1),
    ]

    def parts(self) -> Iterator[str]:
        """Yield the name and the sentences."""
        yield self.name
        yield from (f"  {sentence}" for sentence in self.sentences)


@dataclass(frozen=True)
class Explanation(Document):
    """Why each knob of a mount or of the host has its value."""

    SCHEMA = "explain"
    COMMANDS = ("explain",)

    mount: Annotated[MountIdentity | None, "The mount; null for the host's own knobs."]
    knobs: Annotated[
        Sequence[ExplainedKnob], "The knobs, in the order of their table.", Rule(minItems=1)
    ]

    def parts(self) -> Iterator[str]:
        """Yield the text of each knob."""
        for knob in self.knobs:
            yield from knob.parts()


def explanation(mount: Mount | None, explained: Sequence[Explained]) -> Explanation:
    """Return the document."""
    return Explanation(identity(mount) if mount else None, [_knob(one) for one in explained])


def _knob(one: Explained) -> ExplainedKnob:
    state = one.state
    return ExplainedKnob(
        state.knob.name,
        state.knob.unit,
        state.value,
        state.knob.stock,
        state.set_by,
        state.absent,
        one.sentences,
    )
