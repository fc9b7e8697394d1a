# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``profile``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.mounts.mount import Mount
from fusetune.profile.limit import Limit, limit_of
from fusetune.profile.traffic import Calls, Operation, Traffic, share
from fusetune.report.documents.base import Count, Document, Duration, KnobName, MountIdentity, Text
from fusetune.report.text import Table, figure_text, value_text
from fusetune.schema import Rule
from fusetune.text import counted, shell_word

Share = Annotated[
    float | None,
    Rule(minimum=0, maximum=1),
]
UnusedShare = Annotated[
    Share,
    "Share of the data fetched by READ that programs did not read in this time: wasted readahead, "
    "or data read later. It is too small by what they read again from the page cache. Null without "
    "READ, if not all reads were seen, and after page faults that sent a READ request.",
]
_SPEED = "bytes_per_second"
Microseconds = Annotated[float, Rule(minimum=0)]
_ENDS = {
    "time": "the time was up",
    "signal": "ended by a signal",
    "unmounted": "the mount was unmounted",
}


@dataclass(frozen=True)
class Latency:
    """50th, 95th and 99th percentile in microseconds; from the module, rounded to powers of two."""

    p50: Microseconds
    p95: Microseconds
    p99: Microseconds


@dataclass(frozen=True)
class ProfiledOperation:
    """The requests of one operation."""

    operation: Annotated[
        str, "The operation as the protocol spells it.", Rule(pattern="^[A-Z0-9_]+$")
    ]
    requests: Annotated[Count, "How many were sent."]
    bytes: Annotated[
        Count | None,
        "Data sent by WRITE; for all other operations, data in the replies. If some are "
        "unrecorded, an estimate from the others; null if none was recorded.",
    ]
    largest_bytes: Annotated[Count | None, "Largest request; null if the source does not tell."]
    latency_us: Annotated[
        Latency | None, "From the sending of a request to its completion; null if none completed."
    ]
    most_in_flight: Annotated[
        Count | None, "Most requests at the server at once; null if the source does not tell."
    ]


@dataclass(frozen=True)
class AccessPattern:
    """How programs used the mount's files; null if the source does not tell or no call was seen.

    On a kernel with kprobes, every read and write counts; otherwise read(2), pread(2), write(2),
    pwrite(2) and their vectored forms with one buffer, by all processes except the server.
    """

    reads: Annotated[Count | None, "Reads by programs, as far as observed."]
    sequential_reads_share: Annotated[
        Share, "Share of reads that start where the previous read of the open file ended."
    ]
    direct_reads_share: Annotated[Share, "Share of reads that bypass the page cache."]
    readahead_unused_share: UnusedShare
    streams: Annotated[
        Count | None,
        "Files read sequentially at the same time: the average over the busiest second.",
    ]
    page_faults: Annotated[
        Count | None, "Page faults on mapped files that sent a READ request, as far as recorded."
    ]
    writes: Annotated[Count | None, "Writes by programs, as far as observed."]
    sequential_writes_share: Annotated[Share, "As for reads."]
    direct_writes_share: Annotated[Share, "Share of writes that bypass the page cache."]
    appends_share: Annotated[Share, "Share of writes that start at the end of the file."]
    fsyncs: Annotated[Count, "FSYNC requests."]
    paused_seconds: Annotated[
        Duration | None, "Time for which the kernel throttled writers because of dirty pages."
    ]


@dataclass(frozen=True)
class BindingLimit:
    """The limit that holds back the traffic."""

    knob: KnobName
    command: Annotated[Text, "The command that lifts the limit."]
    reason: Annotated[Text, "What was observed."]


@dataclass(frozen=True)
class Profile(Document):
    """The traffic of a mount while it was observed."""

    SCHEMA = "profile"
    COMMANDS = ("profile",)

    mount: MountIdentity
    seconds: Annotated[Duration, "How long it was observed."]
    source: Annotated[str, "What counted the requests.", Rule(enum=["module", "bpftrace"])]
    ended: Annotated[str, "Why observation ended.", Rule(enum=list(_ENDS))]
    lost: Annotated[
        Count,
        "Requests that may not have been counted, because the kernel did not run a probe's "
        "program so many times.",
    ]
    unrecorded: Annotated[Count, "Requests that were counted without size and latency."]
    operations: Annotated[Sequence[ProfiledOperation], "The operations, most frequent first."]
    pattern: AccessPattern
    limit: Annotated[
        BindingLimit | None, "The limit that holds back the traffic; null if none does."
    ]
    workloads: Annotated[
        Mapping[str, Annotated[float, "Above 0, up to 1.", Rule(exclusiveMinimum=0, maximum=1)]],
        Rule(propertyNames={"pattern": "^[a-z][a-z0-9-]*$"}),
        "Share of each workload that represents the traffic, saved as the mount's profile; empty, "
        "and nothing is saved, if there were no requests.",
    ]

    def parts(self) -> Iterator[str | Table]:
        """Yield the table of operations, the pattern, and the limit."""
        yield f"{self.mount.path}: {self.seconds:.1f} s by {self.source}; {_ENDS[self.ended]}"
        if self.lost:
            yield lost_words(self.lost)
        if not self.operations:
            yield "no requests"
            return
        headings = ("operation", "/s", "size", "bytes", "p50", "p95", "p99", "flight")
        rows = [_row(one, self.seconds) for one in self.operations]
        yield Table(headings, rows, right=" ".join(headings[1:]))
        if self.unrecorded:
            requests = sum(one.requests for one in self.operations)
            yield recorded_words(self.unrecorded, requests)
        yield from _pattern_lines(self.pattern)
        if self.limit:
            yield f"limit: {self.limit.knob}: {self.limit.reason}"
            yield f"  {self.limit.command}"
        if self.workloads:
            shown = ", ".join(f"{name} {share:.0%}" for name, share in self.workloads.items())
            yield f"profile: {shown}"
            yield f"  fusetune auto {shell_word(self.mount.path)} -w profile"


def lost_words(lost: int) -> str:
    return f"{lost} requests may not have been counted"


def recorded_words(unrecorded: int, requests: int) -> str:
    return f"sizes and latencies are from {requests - unrecorded} of {requests} requests"


def _row(one: ProfiledOperation, seconds: float) -> Sequence[str]:
    latency = one.latency_us
    times = [latency.p50, latency.p95, latency.p99] if latency else []
    return (
        one.operation,
        f"{one.requests / seconds:.0f}" if seconds else "-",
        "-" if one.bytes is None or not one.requests else f"{one.bytes / one.requests:.0f}",
        "-" if one.bytes is None or not seconds else figure_text(one.bytes / seconds, _SPEED),
        *([f"{time:.0f} us" for time in times] or ["-"] * 3),
        value_text(one.most_in_flight),
    )


def _pattern_lines(pattern: AccessPattern) -> Iterator[str]:
    if pattern.reads:
        streams = f", {counted(pattern.streams, 'stream')}" if pattern.streams is not None else ""
        yield (
            f"reads: {pattern.reads}, {_percent(pattern.sequential_reads_share)} sequential, "
            f"{_percent(pattern.direct_reads_share)} direct{streams}"
        )
    if pattern.readahead_unused_share is not None:
        yield f"data of READ that nothing read: {_percent(pattern.readahead_unused_share)}"
    if pattern.page_faults:
        yield f"page faults: {pattern.page_faults}"
    if pattern.writes:
        yield (
            f"writes: {pattern.writes}, {_percent(pattern.sequential_writes_share)} sequential, "
            f"{_percent(pattern.direct_writes_share)} direct, "
            f"{_percent(pattern.appends_share)} appends; {counted(pattern.fsyncs, 'fsync')}"
        )
    if pattern.paused_seconds:
        yield f"writers were throttled for {pattern.paused_seconds:.1f} s"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.0%}"


def profiled(
    mount: Mount, traffic: Traffic, values: Mapping[str, int], shares: Mapping[str, float]
) -> Profile:
    """Return the document; ``values``: the mount's live knobs; ``shares``: by workload."""
    return Profile(
        MountIdentity(mount.path, mount.fstype, mount.source, mount.bdi),
        round(traffic.seconds, 3),
        traffic.source,
        traffic.ended,
        traffic.lost,
        traffic.unrecorded,
        [_operation(one) for one in traffic.operations],
        _pattern(traffic),
        binding_limit(mount, traffic, values),
        shares,
    )


def _operation(one: Operation) -> ProfiledOperation:
    return ProfiledOperation(
        one.name,
        one.requests,
        one.nbytes,
        one.largest_bytes,
        latency_of(one),
        one.most_in_flight,
    )


def latency_of(one: Operation) -> Latency | None:
    """Return the latencies of an operation, None if no request ended."""
    times = [one.percentile(percent) for percent in (50, 95, 99)]
    known = [time for time in times if time is not None]
    return Latency(*known) if known else None


def _pattern(traffic: Traffic) -> AccessPattern:
    pattern = traffic.pattern
    reads, writes = pattern.reads or Calls(), pattern.writes or Calls()
    fsync = traffic.operation("FSYNC")
    return AccessPattern(
        pattern.reads.total if pattern.reads else None,
        reads.sequential_share,
        share(reads.direct, reads.total),
        traffic.unread_share,
        pattern.streams,
        pattern.page_faults,
        pattern.writes.total if pattern.writes else None,
        writes.sequential_share,
        share(writes.direct, writes.total),
        share(writes.appends, writes.total),
        fsync.requests if fsync else 0,
        pattern.paused_seconds,
    )


def binding_limit(mount: Mount, traffic: Traffic, values: Mapping[str, int]) -> BindingLimit | None:
    """Return the limit that applies and the command that lifts it; ``values``: the live knobs."""
    limit = limit_of(traffic, values)
    return _binding(mount, limit) if limit else None


def _binding(mount: Mount, limit: Limit) -> BindingLimit:
    target = shell_word(mount.path)
    if limit.value is None:
        command = f"fusetune advise {target}"
    else:
        command = f"fusetune set {target} {limit.knob}={limit.value}"
    return BindingLimit(limit.knob, command, limit.reason)
