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
    command: Annotated[Text, "Name of the command, without 'fusetune' and without arguments."]
    user: Annotated[
        Text | None,
        "Login name of the session that ran it; null outside login sessions, as for services.",
    ]
    changes: Annotated[Sequence[KnobChange], "The changed values that were kept."]
    workloads: Annotated[Sequence[WorkloadName], "Names of the workloads that it measured."]
    gain_ratio: Annotated[
        Positive | None,
        "Speed after divided by speed before; null if nothing was measured or proven better.",
    ]
    ci95: Annotated[Interval95 | None, "95 % interval of gain_ratio; null if there is none."]
    reasons: Annotated[Sequence[Annotated[Text, "One sentence."]], "Reasons, and what else it did."]

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
        return f"{words}: no better values were found" if self.workloads else words

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

    path: Annotated[FullPath | None, "The mount point, whether mounted or not; null for the host."]
    entries: Annotated[Sequence[HistoryEntry], "What was done, the oldest first."]
    left_out: Annotated[Count, "How many older entries --count left out."]

    def parts(self) -> Iterator[str]:
        """Yield the entries."""
        if self.left_out:
            yield f"{self.left_out} older entries are left out; --count shows more"
        for entry in self.entries:
            yield from entry.parts()
        if not self.entries:
            yield "no entries"


def history_document(path: str | None, history: History, most: int) -> HistoryOf:
    """Return the document of at most the ``most`` latest entries."""
    entries = entries_of(history)
    return HistoryOf(path, entries[-most:], max(0, len(entries) - most))


def entries_of(history: History) -> list[HistoryEntry]:
    """Return a history in the form of documents, oldest entry first."""
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
