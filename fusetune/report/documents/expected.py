# SPDX-License-Identifier: GPL-2.0-or-later
"""Values to be kept, as documents have them: the value, its origin, a saved result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fusetune.desired.resolve import Expected
from fusetune.desired.results import Saved
from fusetune.report.documents.base import (
    RAW_BYTES,
    Count,
    Duration,
    FullPath,
    Interval95,
    KnobValues,
    Positive,
)
from fusetune.schema import Rule


@dataclass(frozen=True)
class Origin:
    """Where a value to be kept comes from."""

    file: Annotated[
        FullPath,
        f"Full path of the configuration file or saved result that has it. {RAW_BYTES}",
    ]
    line: Annotated[
        int | None,
        "Line number in it, from 1; null for files that nobody edits.",
        Rule(minimum=1),
    ]
    shared_by: Annotated[
        FullPath | None,
        "Mount point of the saved result, if it is of another mount of a similar volume; otherwise "
        f"null. {RAW_BYTES}",
    ] = None
    others_as_like: Annotated[
        int,
        "How many older saved results are of equally similar volumes.",
        Rule(minimum=0),
    ] = 0

    def __str__(self) -> str:
        if self.shared_by is None:
            return self.file if self.line is None else f"{self.file}:{self.line}"
        newest = (
            f", the newest of {self.others_as_like + 1} equally similar ones"
            if self.others_as_like
            else ""
        )
        return f"shared by {self.shared_by}: {self.file}{newest}"


@dataclass(frozen=True)
class SavedResult:
    """What is saved for a mount by 'auto' or 'save'."""

    knobs: KnobValues
    by: Annotated[str, "The command that saved it.", Rule(enum=["auto", "save"])]
    time_seconds: Annotated[Duration, "Time of saving, in seconds since the epoch."]
    gain_ratio: Annotated[
        Positive | None,
        "Speed with the saved values divided by the speed before, as measured by 'auto'; null if "
        "not measured.",
    ]
    ci95: Annotated[
        Interval95 | None,
        "Lower and upper end of the 95 % interval of gain_ratio; null if not on record.",
    ]


ExpectedValue = Annotated[
    Count | None, "Value to be kept on the mount, in the knob's unit; null if there is none."
]
ExpectedOrigin = Annotated[
    Origin | None, "Where the value to be kept comes from; null if there is none."
]


def origin_of(expected: Expected) -> Origin:
    """Return where an expected value comes from."""
    file, line, shared = str(expected.origin.file), expected.origin.line, expected.shared
    return Origin(file, line, shared.saved.path, shared.others) if shared else Origin(file, line)


def saved_result(saved: Saved | None) -> SavedResult | None:
    """Return what is saved for a mount, None if nothing is."""
    if saved is None:
        return None
    return SavedResult(saved.values, saved.by, saved.time, saved.gain, saved.ci95)
