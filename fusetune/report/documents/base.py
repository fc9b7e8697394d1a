# SPDX-License-Identifier: GPL-2.0-or-later
"""What every document has: its JSON, its text, and the types of its fields.

A field is annotated with its JSON Schema, as `fusetune.schema` says.
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

# Once a server is dead (fs/fuse/dev.c, fuse_abort_conn()), above what the kernel takes.
_SHOWN_HIGH = {"max_background": 2**32 - 1}
RAW_BYTES = (
    "A byte that is not UTF-8 is the lone surrogate U+DC80 to U+DCFF, as os.fsdecode() writes it."
)


@dataclass(frozen=True)
class Document(ABC):
    """What a command found or did.

    ``SCHEMA``: the name of its format; ``COMMANDS``: the commands that print it with --json. A
    subclass says by its docstring what it holds, and by `parts` what its text is.
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
        """Return what people read; ``long`` adds explanations where the document has any.

        ``columns``: of the terminal that it is for, if there is one.
        """
        parts = chain(self.parts(), self.explanations() if long else ())
        return joined(parts, columns)

    @abstractmethod
    def parts(self) -> Iterable[str | Table]:
        """Return the lines and tables of the text."""

    def explanations(self) -> Iterable[str | Table]:
        """Return the lines and tables that explain more."""
        return ()


def joined(parts: Iterable[str | Table], columns: int | None = None) -> str:
    """Return the text of lines and tables; tables as wide as ``columns``, if there are any."""
    return "".join(
        part.text(columns) if isinstance(part, Table) else f"{printable(part)}\n" for part in parts
    )


def plain(value: Any) -> Any:
    """Return what JSON has for a value: an object for a dataclass, in the order of its fields."""
    if is_dataclass(value):
        return {key_of(field): plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def knob_values() -> Object:
    """Return the shape of values by the name of a live knob."""
    known: Object = {}
    for knob in LIVE:
        known[knob.name] = {
            "description": f"Unit: {knob.unit}. {knob.summary[0].upper()}{knob.summary[1:]}.",
            "type": "integer",
            "minimum": knob.low,
        }
        high = _SHOWN_HIGH.get(knob.name, knob.high)
        if high is not None:
            known[knob.name]["maximum"] = high
    return {
        "description": "Value of each live knob that this kernel and mount have, by the knob's "
        "name, in the unit named at each.",
        "type": "object",
        "properties": known,
        "propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"},
        "additionalProperties": {
            "description": "A knob of a later kernel or module, in the unit that 'show' names.",
            "type": "integer",
            "minimum": 0,
        },
    }


def unit() -> Object:
    """Return the shape of the unit of a knob's values."""
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
KnobFile = Annotated[FullPath, "Full path of the file in /sys or /proc that holds the value."]
KnobName = Annotated[
    str, "The knob's name, in the kernel's spelling.", Rule(pattern="^[a-z][a-z0-9_.-]*$")
]
Unit = Annotated[str, unit]
KnobValues = Annotated[Mapping[str, int], knob_values]
KnobValue = Annotated[Count | None, "Value now, in the knob's unit; null where there is none."]
Stock = Annotated[
    Count | None,
    "The kernel's default, in the knob's unit; null where it follows the memory size, or is not "
    "known.",
]
AbsentReason = Annotated[Text | None, "Why there is no value; null if there is one."]
SetBy = Annotated[
    str | None,
    "stock: the kernel's default; fusetune: what fusetune wrote last; other: anything else; null "
    "without a value, or where the undo journal cannot be read.",
    Rule(enum=["stock", "fusetune", "other"]),
]
LeftAloneReason = Annotated[Text | None, "Why nothing is set on it; null if it is not left alone."]
End = Annotated[Positive, "End of the interval."]
Interval95 = Annotated[Sequence[End], Rule(minItems=2, maxItems=2)]
DryRun = Annotated[bool, "Whether nothing was written."]


@dataclass(frozen=True)
class MountIdentity:
    """A FUSE mount."""

    path: MountPoint
    fstype: Annotated[Text, "File system type as in /proc/self/mountinfo, with its subtype."]
    source: Annotated[str, "What the server says it mounts, as in /proc/self/mountinfo."]
    bdi: Annotated[
        str | None,
        "Name of the mount's device in /sys/class/bdi; null where the kernel shows none.",
        Rule(pattern="^[0-9]+:[0-9]+(-[a-z]+)?$"),
    ]


def identity(mount: Mount) -> MountIdentity:
    """Return what a document says of a mount."""
    return MountIdentity(mount.path, mount.fstype, mount.source, mount.bdi)
