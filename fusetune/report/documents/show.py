# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``show``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.changes.state import KnobState
from fusetune.desired.resolve import Expected
from fusetune.desired.results import Saved
from fusetune.knobs import REMOUNT
from fusetune.mounts.mount import Mount
from fusetune.report.documents.base import (
    AbsentReason,
    Count,
    Document,
    KnobName,
    KnobValue,
    MountIdentity,
    Object,
    SetBy,
    Stock,
    Text,
    Unit,
)
from fusetune.report.documents.expected import (
    ExpectedOrigin,
    ExpectedValue,
    SavedResult,
    origin_of,
    saved_result,
)
from fusetune.report.text import Table, value_text
from fusetune.schema import Rule

_NEGOTIATED = {
    "minor": "Minor version of the protocol.",
    "max_write": "Largest write request in bytes.",
    "max_read": "Largest read request in bytes; 4294967295: unlimited.",
    "max_readahead": "Largest readahead that the server allows, in bytes.",
    "max_pages": "Largest number of pages per request.",
}


def negotiated() -> Object:
    """Return the schema of what INIT negotiated."""
    numbers = {
        name: {"description": text, "type": "integer", "minimum": 0}
        for name, text in _NEGOTIATED.items()
    }
    flag = {
        "description": "Name of a flag in lower case; bitN for an unknown flag.",
        "type": "string",
        "pattern": "^[a-z0-9_]+$",
    }
    flags = {
        "description": "The protocol flags that both sides support.",
        "type": "array",
        "items": flag,
    }
    forced = {
        "description": "Mount options of the module that override the server's reply: NAME or "
        "NAME=VALUE; absent if there are none.",
        "type": "array",
        "items": {
            "description": "An active option.",
            "type": "string",
            "pattern": "^[a-z0-9_]+(=[0-9]+)?$",
        },
    }
    return {
        "description": "What INIT negotiated.",
        "type": "object",
        "properties": {**numbers, "flags": flags, "forced": forced},
        "additionalProperties": {
            "description": "A number reported by a later module.",
            "type": "integer",
            "minimum": 0,
        },
        "required": ["flags"],
    }


@dataclass(frozen=True)
class ShownKnob:
    """A knob and its current state."""

    name: KnobName
    value: KnobValue
    stock: Stock
    low: Annotated[Count, "Smallest value that the kernel accepts, in the knob's unit."]
    high: Annotated[
        Count | None,
        "Largest value that the kernel accepts, in the knob's unit; null if there is no bound.",
    ]
    unit: Unit
    scope: Annotated[str, "What a value applies to.", Rule(enum=["mount", "host"])]
    set_by: SetBy
    absent_reason: AbsentReason
    summary: Annotated[Text, "What the knob does."]
    risk: Annotated[Text, "The cost of a wrong value."]
    source: Annotated[Text, "The source of these facts."]
    expected: ExpectedValue
    origin: ExpectedOrigin


@dataclass(frozen=True)
class RemountProperty:
    """A property that only a remount can change."""

    name: KnobName
    summary: Annotated[Text, "What it does."]
    remedy: Annotated[Text, "How to set it for a server."]
    risk: Annotated[Text, "Its possible cost."]
    source: Annotated[Text, "The source of these facts."]


@dataclass(frozen=True)
class Shown(Document):
    """Every knob of a mount or of the host, and who set it."""

    SCHEMA = "show"
    COMMANDS = ("show",)

    mount: Annotated[MountIdentity | None, "The mount; null for the host's own knobs."]
    knobs: Annotated[
        Sequence[ShownKnob], "The knobs, in the order of their table.", Rule(minItems=1)
    ]
    needs_remount: Annotated[
        Sequence[RemountProperty], "What only a remount can change; empty for the host."
    ]
    init: Annotated[
        Annotated[Mapping[str, int | Sequence[str]], negotiated] | None,
        "What INIT negotiated, as reported by the module fusetuned; null for other mounts, and "
        "before the server has replied to INIT.",
    ]
    saved: Annotated[
        SavedResult | None,
        "The result saved for the mount by 'auto' or 'save'; null if there is none.",
    ]

    def parts(self) -> Iterator[str | Table]:
        """Yield the table of knobs, what is saved, and what a remount could change."""
        mount = self.mount
        yield f"{mount.path} ({mount.fstype}, bdi {mount.bdi})" if mount else "host"
        yield Table(
            ("knob", "value", "stock", "range", "set by", "kept value"),
            [
                (
                    knob.name,
                    value_text(knob.value),
                    value_text(knob.stock),
                    f"{knob.low}-{'' if knob.high is None else knob.high} {knob.unit}",
                    knob.absent_reason or value_text(knob.set_by),
                    "-" if knob.origin is None else f"{knob.expected} ({knob.origin})",
                )
                for knob in self.knobs
            ],
            right="value stock",
        )
        if self.saved:
            values = " ".join(f"{name}={value}" for name, value in self.saved.knobs.items())
            yield f"saved: {values}" if values else "saved: the kernel's defaults are best"
        if self.init:
            lists = {name: words for name, words in self.init.items() if not isinstance(words, int)}
            numbers = [f"{name} {value}" for name, value in self.init.items() if name not in lists]
            yield f"INIT negotiated: {', '.join(numbers)}; {' '.join(lists['flags'])}"
            if "forced" in lists:
                yield f"overridden by mount options: {' '.join(lists['forced'])}"
        if self.needs_remount:
            yield "needs a remount: " + ", ".join(knob.name for knob in self.needs_remount)

    def explanations(self) -> Iterator[str]:
        """Yield what each knob does, its risk and source."""
        every: list[ShownKnob | RemountProperty] = [*self.knobs, *self.needs_remount]
        for knob in every:
            yield ""
            yield f"{knob.name}: {knob.summary}"
            if isinstance(knob, RemountProperty):
                yield f"  how: {knob.remedy}"
            yield f"  risk: {knob.risk}"
            yield f"  source: {knob.source}"


def shown(
    mount: Mount | None,
    states: Sequence[KnobState],
    saved: Saved | None,
    expected: Mapping[str, Expected],
    init: Mapping[str, str] | None = None,
) -> Shown:
    """Return the document for a mount, or for the host if ``mount`` is None.

    ``init``: what INIT negotiated, as far as known.
    """
    return Shown(
        MountIdentity(mount.path, mount.fstype, mount.source, mount.bdi) if mount else None,
        [_knob(state, expected.get(state.knob.name)) for state in states],
        [
            RemountProperty(knob.name, knob.summary, knob.remedy_on(mount), knob.risk, knob.source)
            for knob in (REMOUNT if mount else ())
        ],
        _negotiated(init or {}),
        saved_result(saved),
    )


def _knob(state: KnobState, expected: Expected | None) -> ShownKnob:
    knob = state.knob
    return ShownKnob(
        knob.name,
        state.value,
        knob.stock,
        knob.low,
        knob.high,
        knob.unit,
        str(knob.scope),
        state.set_by,
        state.absent,
        knob.summary,
        knob.risk,
        knob.source,
        expected.value if expected else None,
        origin_of(expected) if expected else None,
    )


def _negotiated(init: Mapping[str, str]) -> Mapping[str, int | Sequence[str]] | None:
    if not init:
        return None
    numbers = {name: int(text) for name, text in init.items() if text.isdigit()}
    lists = {name: text.split() for name, text in init.items() if name == "forced"}
    return {**numbers, "flags": init.get("flags", "").split(), **lists}
