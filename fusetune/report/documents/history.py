# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``history``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.desired.history import Entry, History
from fusetune.report.documents.base import (
    Count,
    Document,
    Duration,
    FullPath,
    Interval95,
    KnobName,
    Positive,
    Text,
)
from fusetune.report.documents.figures import WorkloadName
from fusetune.report.text import ratio_text


@dataclass(frozen=True)
class KnobChange:
    """A value that was changed."""

    knob: KnobName
    old: Annotated[Count, "Value before, in the knob's unit."]
    new: Annotated[Count, "Value after, in the knob's unit."]


@dataclass(frozen=True)
class HistoryEntry:
    """What one command did."""

    time_seconds: Annotated[Duration, "When, in seconds since the epoch."]
    command: Annotated[Text, "The command, without its name 'fusetune' and what it was given."]
    user: Annotated[
        Text | None,
        "Login name of the session that ran it; null if it was no login session, as for services.",
    ]
    changes: Annotated[Sequence[KnobChange], "The values that it changed for good."]
    workloads: Annotated[Sequence[WorkloadName], "Names of the workloads that it measured."]
    gain_ratio: Annotated[
        Positive | None,
        "Speed after divided by speed before; null if nothing was measured or proven better.",
    ]
    ci95: Annotated[Interval95 | None, "95 % interval of gain_ratio; null where there is none."]
    reasons: Annotated[Sequence[Annotated[Text, "One sentence."]], "Why, and what else it did."]

    def heading(self) -> str:
        """Return when, what, who, and the gain."""
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.time_seconds))
        words = f"{clock}  {self.command}"
        if self.user:
            words += f" by {self.user}"
        if self.workloads:
            words += f", {' '.join(self.workloads)}"
        if self.gain_ratio is not None and self.ci95 is not None:
            return f"{words}: {ratio_text(self.gain_ratio, self.ci95)} times the speed before"
        return f"{words}: nothing better was found" if self.workloads else words

    def parts(self) -> Iterator[str]:
        """Yield the heading, the changes and the reasons."""
        yield self.heading()
        if self.changes:
            yield "  " + ", ".join(f"{one.knob} {one.old} -> {one.new}" for one in self.changes)
        yield from (f"  - {reason}" for reason in self.reasons)


@dataclass(frozen=True)
class HistoryOf(Document):
    """What fusetune did to a mount or to the host."""

    SCHEMA = "history"
    COMMANDS = ("history",)

    path: Annotated[FullPath | None, "The mount point, mounted now or not; null for the host."]
    entries: Annotated[Sequence[HistoryEntry], "What was done, the oldest first."]
    left_out: Annotated[Count, "How many older entries there are, left out for --count."]

    def parts(self) -> Iterator[str]:
        """Yield the entries."""
        if self.left_out:
            yield f"{self.left_out} older entries are left out; --count shows more"
        for entry in self.entries:
            yield from entry.parts()
        if not self.entries:
            yield "nothing is on record"


def history_document(path: str | None, history: History, most: int) -> HistoryOf:
    """Return the document of at most the ``most`` latest entries."""
    entries = entries_of(history)
    return HistoryOf(path, entries[-most:], max(0, len(entries) - most))


def entries_of(history: History) -> list[HistoryEntry]:
    """Return what a document says of a history, the oldest entry first."""
    return [_entry(one) for one in history.entries]


def _entry(one: Entry) -> HistoryEntry:
    return HistoryEntry(
        one.time,
        one.command,
        one.user,
        [KnobChange(name, old, new) for name, (old, new) in one.changes.items()],
        one.workloads,
        one.gain,
        one.ci95,
        one.reasons,
    )
