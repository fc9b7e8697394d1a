# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``top``: what each mount did within an interval."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.mounts.stack import Stacks
from fusetune.profile.sampling import Sample
from fusetune.profile.traffic import Operation
from fusetune.report.documents.base import (
    Count,
    Document,
    Duration,
    MountIdentity,
    Text,
    joined,
)
from fusetune.report.documents.layers import Device, LayerBelow, layers_below
from fusetune.report.documents.profile import (
    BindingLimit,
    Latency,
    Share,
    UnusedShare,
    binding_limit,
    latency_of,
)
from fusetune.report.text import Table
from fusetune.report.top_rows import HEADINGS, RIGHT, limit_line, lost_lines, table_rows
from fusetune.schema import Rule

#: Seconds without a reply after which the server, not a limit, is considered the cause.
STUCK = 2.0
Average = Annotated[float | None, Rule(minimum=0)]
Rate = Annotated[float, Rule(minimum=0)]


@dataclass(frozen=True)
class TopOperation:
    """The requests of one operation within the interval."""

    operation: Annotated[
        str, "The operation as the protocol spells it.", Rule(pattern="^[A-Z0-9_]+$")
    ]
    requests: Annotated[Count, "How many there were."]
    requests_per_second: Rate
    bytes: Annotated[
        Count,
        "Data sent by WRITE; for all other operations, data in the replies. If requests were lost, "
        "an estimate from the others.",
    ]
    bytes_per_second: Rate
    mean_bytes: Annotated[Average, "Average data per request; null without requests."]
    latency_us: Annotated[
        Latency | None, "From the sending of a request to its completion; null if none completed."
    ]
    mean_in_flight: Annotated[
        Rate, "Average number at the server, from the latencies of completed requests."
    ]


@dataclass(frozen=True)
class TopMount(MountIdentity):
    """A mount within the interval."""

    device: Device
    below: Annotated[
        Sequence[LayerBelow], "The FUSE mounts of this document that are directly below it."
    ]
    counted_by: Annotated[
        str,
        "What counts its requests. module: the statistics of fusetuned; bpftrace; fusectl: only "
        "the number of waiting requests; bdi: nothing.",
        Rule(enum=["module", "bpftrace", "fusectl", "bdi"]),
    ]
    why: Annotated[Text | None, "Why no better source is used; null if this is the best."]
    seconds: Annotated[Duration, "The time over which its requests were counted."]
    lost: Annotated[Count, "Requests that were counted without size and latency."]
    requests_per_second: Annotated[
        Average, "Requests of all operations; null if nothing counts them."
    ]
    bytes_per_second: Annotated[Average, "Data of READ and WRITE; null if nothing counts it."]
    mean_bytes: Annotated[
        Average, "Average data per READ or WRITE; null if there was none or it is unknown."
    ]
    latency_us: Annotated[
        Latency | None,
        "Of the requests of all operations; null if none completed or it is unknown.",
    ]
    in_flight: Annotated[
        Count | None,
        "Requests that wait for the server at the end of the interval; null if unknown.",
    ]
    mean_in_flight: Annotated[Average, "Average of in_flight over all samples; null if unknown."]
    max_background: Annotated[Count | None, "The limit of background requests; null if unknown."]
    background_limit_share: Annotated[
        Share,
        "Share of the samples in which at least max_background requests waited, in the background "
        "or not: an upper bound of the time at the limit. Null if unknown.",
    ]
    dirty_bytes: Annotated[
        Count | None, "Pages that are dirty or being written; null if debugfs does not show them."
    ]
    dirty_limit_bytes: Annotated[
        Count | None, "The limit of dirty pages from max_ratio; null if debugfs does not show it."
    ]
    written_back_bytes_per_second: Annotated[
        Average, "Data written back from the page cache; null if debugfs does not show it."
    ]
    readahead_unused_share: UnusedShare
    unanswered_seconds: Annotated[
        Duration,
        "For how long requests have waited without a sign that any completed. If only fusectl "
        "reports them, a server that is always equally busy looks the same.",
    ]
    limit: Annotated[
        BindingLimit | None,
        "The limit that applies; null if none does, or without a reply for 2 seconds.",
    ]
    operations: Annotated[
        Sequence[TopOperation], "The operations, most frequent first; empty if nothing counts them."
    ]

    @property
    def stuck(self) -> bool:
        """Whether the mount has not replied for so long that it is marked."""
        return self.unanswered_seconds >= STUCK


@dataclass(frozen=True)
class Top(Document):
    """The activity of every FUSE mount, or of one and those below it, within an interval."""

    SCHEMA = "top"
    COMMANDS = ("top",)

    time: Annotated[Duration, "Seconds since 1970 at the end of the interval."]
    seconds: Annotated[Duration, "Length of the interval."]
    mounts: Annotated[Sequence[TopMount], "The mounts, in the order of mounting."]

    def parts(self) -> Iterator[str | Table]:
        """Yield the time, a line for each mount, a single mount's operations, and the limits."""
        return self._parts(operations=len(self.mounts) == 1)

    def plain(self, *, operations: bool) -> str:
        """Return the text; ``operations``: with a line for each operation."""
        return joined(self._parts(operations=operations))

    def _parts(self, *, operations: bool) -> Iterator[str | Table]:
        yield time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.time))
        rows = list(table_rows(self.mounts, operations=operations))
        if rows:
            yield Table(HEADINGS, [row.text_cells for row in rows], RIGHT)
        else:
            yield "no FUSE mount"
        yield from (limit_line(one) for one in self.mounts if one.limit)
        yield from lost_lines(self.mounts)
        yield ""


def top_frame(samples: Sequence[Sample], stacks: Stacks | None, at: float, seconds: float) -> Top:
    """Return the document of an interval that ended at ``at``, and took ``seconds``.

    ``stacks``: the layers below the mounts, None if unknown.
    """
    shown = {one.mount.device for one in samples}
    return Top(round(at, 3), round(seconds, 3), [_mount(one, stacks, shown) for one in samples])


def _mount(one: Sample, stacks: Stacks | None, shown: Collection[str]) -> TopMount:
    mount, traffic = one.mount, one.traffic
    layers = [layer for layer in stacks.below(mount) if layer.device in shown] if stacks else []
    data = [op for op in traffic.operations if op.name in ("READ", "WRITE")]
    transfers, nbytes = sum(op.requests for op in data), sum(op.nbytes for op in data)
    requests = sum(op.requests for op in traffic.operations)
    counts = traffic.tells_operations
    dirty = traffic.dirty
    return TopMount(
        mount.path,
        mount.fstype,
        mount.source,
        mount.bdi,
        device=mount.device,
        below=layers_below(layers),
        counted_by=traffic.source,
        why=one.why,
        seconds=round(traffic.seconds, 3),
        lost=traffic.lost,
        requests_per_second=_rate(requests, traffic.seconds) if counts else None,
        bytes_per_second=_rate(nbytes, traffic.seconds) if counts else None,
        mean_bytes=nbytes / transfers if transfers else None,
        latency_us=latency_of(_all_of(traffic.operations)),
        in_flight=one.in_flight,
        mean_in_flight=traffic.waiting,
        max_background=one.values.get("max_background"),
        background_limit_share=traffic.at_background,
        dirty_bytes=dirty.dirty if dirty else None,
        dirty_limit_bytes=dirty.limit if dirty else None,
        written_back_bytes_per_second=(
            None if one.written is None else _rate(one.written, traffic.seconds)
        ),
        readahead_unused_share=traffic.unread_share,
        unanswered_seconds=round(one.unanswered, 3),
        limit=None if one.unanswered >= STUCK else binding_limit(mount, traffic, one.values),
        operations=[_operation(op, traffic.seconds) for op in traffic.operations],
    )


def _all_of(operations: Sequence[Operation]) -> Operation:
    """Return the requests of all operations combined into one."""
    latency: Counter[float] = Counter()
    for one in operations:
        latency.update(dict(one.latency))
    return Operation("", sum(one.requests for one in operations), 0, sorted(latency.items()))


def _operation(one: Operation, seconds: float) -> TopOperation:
    return TopOperation(
        one.name,
        one.requests,
        _rate(one.requests, seconds),
        one.nbytes,
        _rate(one.nbytes, seconds),
        one.nbytes / one.requests if one.requests else None,
        latency_of(one),
        round(_rate(one.seconds, seconds), 3),
    )


def _rate(number: float, seconds: float) -> float:
    return number / seconds if seconds > 0 else 0.0
