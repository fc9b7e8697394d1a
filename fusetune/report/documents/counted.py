# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's counts of a mount's requests and dirty pages, as documents have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.mounts.bdi import DirtyPages
from fusetune.profile.module import Counters
from fusetune.report.documents.base import Count, Duration
from fusetune.schema import Rule


@dataclass(frozen=True)
class CountedOperation:
    """The requests of one operation since the module started counting."""

    operation: Annotated[
        str, "The operation as the protocol spells it.", Rule(pattern="^[A-Z0-9_]+$")
    ]
    requests: Annotated[
        Count, "How many completed; for operations without a reply, how many the server read."
    ]
    errors: Annotated[Count, "How many of them failed."]
    sent_bytes: Annotated[Count, "Bytes after the headers of the requests."]
    received_bytes: Annotated[Count, "Bytes after the headers of the replies."]
    seconds: Annotated[
        Duration,
        "Total time of all requests that got a reply, from creation to completion, including the "
        "wait for a slot among max_background.",
    ]
    latency_counts: Annotated[
        Sequence[Annotated[Count, "A number of requests."]],
        "How many of these took less than 1 microsecond, less than 2, less than 4 and so on; the "
        "last number counts the rest.",
    ]


@dataclass(frozen=True)
class DirtyMemory:
    """The pages of a mount that are dirty or being written."""

    dirty_bytes: Annotated[Count, "Their size."]
    limit_bytes: Annotated[Count, "The mount's limit for dirty pages."]
    pausing_bytes: Annotated[
        Count | None,
        "Size above which the kernel throttles writers; null if the mount has no strict limit.",
    ]
    written_back_bytes: Annotated[Count, "Bytes written back since the mount was made."]


Counted = Annotated[
    Sequence[CountedOperation] | None,
    "What the module fusetuned has counted, by operation, at least since the first report. "
    "Null for mounts of other modules, or if the counters cannot be read.",
]
Dirty = Annotated[DirtyMemory | None, "Its dirty pages; null if debugfs does not show them."]


def counted_operations(counters: Mapping[str, Counters] | None) -> list[CountedOperation] | None:
    """Return a mount's counters in the form of documents, by name; None if there are none."""
    if counters is None:
        return None
    return [
        CountedOperation(
            *(name, one.requests, one.errors, one.sent_bytes, one.received_bytes),
            seconds=one.time_ns / 1e9,
            latency_counts=one.latency,
        )
        for name, one in sorted(counters.items())
    ]


def dirty_memory(pages: DirtyPages | None, strict: bool) -> DirtyMemory | None:
    """Return dirty pages in the form of documents; ``strict``: whether the limit is strict."""
    if pages is None:
        return None
    pausing = pages.pausing if strict else None
    return DirtyMemory(pages.dirty, pages.limit, pausing, pages.written)
