# SPDX-License-Identifier: GPL-2.0-or-later
"""What every document has: its JSON, its text, and the types of its fields.

A field is annotated with its JSON Schema (see `fusetune.schema`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from typing import Annotated, Any, ClassVar

from fusetune.knobs import LIVE, SYSTEM
from fusetune.mounts.mount import Mount
from fusetune.report.text import Table
from fusetune.schema import Rule, key_of
from fusetune.text import printable

Object = dict[str, Any]

# What a mount may have although fusetune does not set it: 0 if root wrote that, the highest number
# once a server is dead (fs/fuse/dev.c, fuse_abort_conn()).
_SHOWN_LOW = {"max_background": 0}
_SHOWN_HIGH = {"max_background": 2**32 - 1}
RAW_BYTES = "Bytes that are not UTF-8 become lone surrogates U+DC80 to U+DCFF, as in os.fsdecode()."


@dataclass(frozen=True)
class Document(ABC):
    """What a command found or did.

    ``SCHEMA``: the name of its format; ``COMMANDS``: the commands that print it with --json. The
    docstring of a subclass describes the document, and its `parts` are the text.
    """

    SCHEMA: ClassVar[str]
    COMMANDS: ClassVar[Sequence[str]]

    def as_object(self) -> Object:
        """Return the JSON object."""
        found: Object = {"schema": f"fusetune.{self.SCHEMA}/1"} | plain(self)
        return found

    def as_json(self) -> str:
        """Return the JSON text."""
        return json.dumps(self.as_object(), indent=2) + "\n"

    def as_line(self) -> str:
        """Return the JSON text in one line."""
        return json.dumps(self.as_object()) + "\n"

    def as_text(self, *, long: bool = False, columns: int | None = None) -> str:
        """Return the text for people; ``long`` adds the document's explanations.

        ``columns``: the width of the terminal, None if there is none.
        """
        parts = chain(self.parts(), self.explanations() if long else ())
        return joined(parts, columns)

    @abstractmethod
    def parts(self) -> Iterable[str | Table]:
        """Return the lines and tables of the text."""

    def explanations(self) -> Iterable[str | Table]:
        """Return the additional lines and tables of ``long``."""
        return ()


class DiffLine(str):
    """A line of a diff; its tabs stay tabs, so that it applies to the file."""

    __slots__ = ()


def _line(part: str) -> str:
    if isinstance(part, DiffLine) and part.startswith(("+", "-", " ")):
        return "\t".join(map(printable, part.split("\t")))
    return printable(part)


def joined(parts: Iterable[str | Table], columns: int | None = None) -> str:
    """Return the text of lines and tables; tables are at most ``columns`` wide."""
    return "".join(
        part.text(columns) if isinstance(part, Table) else f"{_line(part)}\n" for part in parts
    )


def plain(value: Any) -> Any:
    """Return the JSON form of a value; a dataclass becomes an object with its fields in order."""
    if is_dataclass(value):
        return {key_of(field): plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def knob_values() -> Object:
    """Return the schema of values by live knob."""
    known: Object = {}
    for knob in LIVE:
        known[knob.name] = {
            "description": f"Unit: {knob.unit}. {knob.summary[0].upper()}{knob.summary[1:]}.",
            "type": "integer",
            "minimum": _SHOWN_LOW.get(knob.name, knob.low),
        }
        high = _SHOWN_HIGH.get(knob.name, knob.high)
        if high is not None:
            known[knob.name]["maximum"] = high
    return {
        "description": "Value of each live knob that this kernel and mount have, by knob name, "
        "in the unit stated for each.",
        "type": "object",
        "properties": known,
        "propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"},
        "additionalProperties": {
            "description": "A knob of a later kernel or module, in the unit that 'show' prints.",
            "type": "integer",
            "minimum": 0,
        },
    }


def unit() -> Object:
    """Return the schema of a knob's unit."""
    return {
        "description": "Unit of the knob's values; a switch is 0 or 1.",
        "type": "string",
        "enum": list(dict.fromkeys(knob.unit for knob in (*LIVE, *SYSTEM))),
    }


Count = Annotated[int, Rule(minimum=0)]
Positive = Annotated[float, Rule(exclusiveMinimum=0)]
Duration = Annotated[float, Rule(minimum=0)]
Text = Annotated[str, Rule(minLength=1)]
FullPath = Annotated[str, Rule(pattern="^/")]

MountPoint = Annotated[FullPath, f"Absolute path of a mount point. {RAW_BYTES}"]
KnobFile = Annotated[FullPath, "Full path of the value's file in /sys or /proc."]
KnobName = Annotated[
    str, "The knob's name as the kernel spells it.", Rule(pattern="^[a-z][a-z0-9_.-]*$")
]
Unit = Annotated[str, unit]
KnobValues = Annotated[Mapping[str, int], knob_values]
KnobValue = Annotated[Count | None, "Current value, in the knob's unit; null if there is none."]
Stock = Annotated[
    Count | None,
    "The kernel's default, in the knob's unit; null if it depends on the memory size or is "
    "unknown.",
]
AbsentReason = Annotated[Text | None, "Why there is no value; null if there is one."]
SetBy = Annotated[
    str | None,
    "stock: the kernel's default; fusetune: the last value that fusetune wrote; other: any other "
    "value; null if there is no value or the undo journal cannot be read.",
    Rule(enum=["stock", "fusetune", "other"]),
]
LeftAloneReason = Annotated[Text | None, "Why fusetune sets nothing on this mount; null if it may."]
End = Annotated[Positive, "An end of the interval."]
Interval95 = Annotated[Sequence[End], Rule(minItems=2, maxItems=2)]
DryRun = Annotated[bool, "Whether nothing was written."]


@dataclass(frozen=True)
class MountIdentity:
    """A FUSE mount."""

    path: MountPoint
    fstype: Annotated[Text, "File system type as in /proc/self/mountinfo, with its subtype."]
    source: Annotated[str, "Source as given by the server, as in /proc/self/mountinfo."]
    bdi: Annotated[
        str | None,
        "Name of the mount's device in /sys/class/bdi; null if there is none.",
        Rule(pattern="^[0-9]+:[0-9]+(-[a-z]+)?$"),
    ]


def identity(mount: Mount) -> MountIdentity:
    """Return the identity of a mount in documents."""
    return MountIdentity(mount.path, mount.fstype, mount.source, mount.bdi)
