# SPDX-License-Identifier: GPL-2.0-or-later
"""What a mount, and each operation, did within an interval of ``top``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.mounts.stack import Stacks
from fusetune.profile.sampling import Sample
from fusetune.profile.traffic import Operation
from fusetune.report.documents.base import Count, Duration, MountIdentity, Text
from fusetune.report.documents.layers import Device, LayerBelow, layers_below
from fusetune.report.documents.profile import (
    BindingLimit,
    Latency,
    Share,
    UnusedShare,
    binding_limit,
    latency_of,
)
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
        Count | None,
        "Data sent by WRITE; for all other operations, data in the replies. If some are "
        "unrecorded, an estimate from the others; null if none was recorded.",
    ]
    bytes_per_second: Annotated[Average, "The same per second."]
    mean_bytes: Annotated[Average, "Average data per request; null without bytes or requests."]
    latency_us: Annotated[
        Latency | None, "From the sending of a request to its completion; null if none completed."
    ]
    mean_in_flight: Annotated[
        Average,
        "Average number at the server, from the latencies of completed requests; null if all of "
        "these are unrecorded.",
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
    lost: Annotated[Count, "Requests that may not have been counted."]
    unrecorded: Annotated[Count, "Requests that were counted without size and latency."]
    requests_per_second: Annotated[
        Average, "Requests of all operations; null if nothing counts them."
    ]
    bytes_per_second: Annotated[Average, "Data of READ and WRITE; null if it is unknown."]
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


def top_mount(one: Sample, stacks: Stacks | None, shown: Collection[str]) -> TopMount:
    """Return what a mount did.

    ``stacks``: the layers below the mounts, None if unknown; those in ``shown`` are listed.
    """
    mount, traffic = one.mount, one.traffic
    layers = [layer for layer in stacks.below(mount) if layer.device in shown] if stacks else []
    data = [op for op in traffic.operations if op.name in ("READ", "WRITE")]
    transfers, nbytes = sum(op.requests for op in data), _bytes_of(data)
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
        unrecorded=traffic.unrecorded,
        requests_per_second=_rate(requests, traffic.seconds) if counts else None,
        bytes_per_second=_known_rate(nbytes, traffic.seconds) if counts else None,
        mean_bytes=nbytes / transfers if nbytes is not None and transfers else None,
        latency_us=latency_of(_all_of(traffic.operations)),
        in_flight=one.in_flight,
        mean_in_flight=traffic.waiting,
        max_background=one.values.get("max_background"),
        background_limit_share=traffic.at_background,
        dirty_bytes=dirty.dirty if dirty else None,
        dirty_limit_bytes=dirty.limit if dirty else None,
        written_back_bytes_per_second=one.written,
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


def _bytes_of(operations: Sequence[Operation]) -> int | None:
    """Return the data of all operations, None if that of one is unknown."""
    known = [one.nbytes for one in operations if one.nbytes is not None]
    return sum(known) if len(known) == len(operations) else None


def _operation(one: Operation, seconds: float) -> TopOperation:
    return TopOperation(
        one.name,
        one.requests,
        _rate(one.requests, seconds),
        one.nbytes,
        _known_rate(one.nbytes, seconds),
        one.nbytes / one.requests if one.nbytes is not None and one.requests else None,
        latency_of(one),
        None if one.unrecorded and not one.ended else round(_rate(one.seconds, seconds), 3),
    )


def _known_rate(number: int | None, seconds: float) -> float | None:
    return None if number is None else _rate(number, seconds)


def _rate(number: float, seconds: float) -> float:
    return number / seconds if seconds > 0 else 0.0
