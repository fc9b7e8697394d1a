# SPDX-License-Identifier: GPL-2.0-or-later
"""What documents say of what the kernel counts of a mount: its requests and its dirty pages."""

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
    """The requests of one operation since the module began to count them."""

    operation: Annotated[
        str, "The operation, in the protocol's spelling.", Rule(pattern="^[A-Z0-9_]+$")
    ]
    requests: Annotated[
        Count, "How many ended; of operations without a reply, how many the server read."
    ]
    errors: Annotated[Count, "How many of them ended in an error."]
    sent_bytes: Annotated[Count, "What followed the headers of the requests."]
    received_bytes: Annotated[Count, "What followed the headers of the replies."]
    seconds: Annotated[
        Duration,
        "How long all that had a reply took together, from making a request to its end. The wait "
        "for a place among max_background is included.",
    ]
    latency_counts: Annotated[
        Sequence[Annotated[Count, "How many."]],
        "How many of these took less than 1 microsecond, less than 2, less than 4 and so on; the "
        "last number has the rest.",
    ]


@dataclass(frozen=True)
class DirtyMemory:
    """The pages of a mount that are dirty or being written."""

    dirty_bytes: Annotated[Count, "How much it is."]
    limit_bytes: Annotated[Count, "The mount's limit for it."]
    pausing_bytes: Annotated[
        Count | None,
        "From where on the kernel pauses writers; null where the mount has no strict limit.",
    ]
    written_back_bytes: Annotated[Count, "What was written back since the mount was made."]


Counted = Annotated[
    Sequence[CountedOperation] | None,
    "What the module fusetuned has counted, by operation; counting begins at the first report, or "
    "before. Null where nothing counts: other mounts, or a module that cannot be read.",
]
Dirty = Annotated[DirtyMemory | None, "Its dirty pages; null where debugfs does not show them."]


def counted_operations(counters: Mapping[str, Counters] | None) -> list[CountedOperation] | None:
    """Return what a document says of a mount's counters, by name; None where there are none."""
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
    """Return what a document says of dirty pages; ``strict``: whether the limit is strict."""
    if pages is None:
        return None
    pausing = pages.pausing if strict else None
    return DirtyMemory(pages.dirty, pages.limit, pausing, pages.written)
