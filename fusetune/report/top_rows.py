# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows of ``top``, for plain lines and for the screen: cells of at most five characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusetune.profile.traffic import COUNTING
from fusetune.report.documents.layers import branches
from fusetune.report.documents.profile import Latency, lost_words, recorded_words
from fusetune.report.documents.top_mount import TopMount, TopOperation
from fusetune.text import printable

#: ``fly``: requests in flight; ``bg``: share of the time at the background limit; ``dirty``: dirty
#: pages as a share of their limit; ``waste``: share of the data of READ that nothing read.
HEADINGS = ("mount", "by", "/s", "B/s", "size", "p50", "p95", "p99", "fly", "bg", "dirty", "waste")
RIGHT = " ".join(HEADINGS[2:])
_BY = {"module": "mod", "bpftrace": "bpf", "fusectl": "ctl", "bdi": "bdi"}
_NONE = "-"


@dataclass(frozen=True)
class Row:
    """A line of the table: its cells and its subject.

    ``operation``: whether it is for an operation. ``mark``: text before the mount's name.
    """

    cells: Sequence[str]
    mount: TopMount
    operation: bool = False
    mark: str = ""

    @property
    def text_cells(self) -> Sequence[str]:
        """The cells with the mark."""
        name, *others = self.cells
        return [self.mark + name, *others]


def _number(value: float | None) -> float:
    return -1.0 if value is None else value


#: Sort keys, highest first; the tree keeps the order of mounting.
ORDERS: Mapping[str, Callable[[TopMount], float]] = {
    "tree": lambda mount: 0.0,
    "requests": lambda mount: _number(mount.requests_per_second),
    "bytes": lambda mount: _number(mount.bytes_per_second),
    "p99": lambda mount: _number(mount.latency_us.p99 if mount.latency_us else None),
    "in flight": lambda mount: _number(mount.in_flight),
}


def table_rows(
    mounts: Sequence[TopMount], *, operations: bool, order: str = "tree"
) -> Iterator[Row]:
    """Yield a row for each mount, followed by the layers below it and, if wanted, its operations.

    ``order``: one of `ORDERS`; layers stay below their mount.
    """
    known = {one.device: one for one in mounts}
    ranked = sorted(mounts, key=ORDERS[order], reverse=True)
    for drawn, device, _ in branches(ranked, known):
        mount = known[device]
        yield Row(_mount_cells(mount), mount, mark=_mark(mount) + drawn)
        for one in mount.operations if operations else ():
            yield Row(_operation_cells(one), mount, operation=True)


def _mark(mount: TopMount) -> str:
    """Return the mark of a mount whose server may hang, empty for others."""
    if not mount.stuck:
        return ""
    # If nothing counts requests, some may have completed.
    word = "NO REPLY" if mount.counted_by in COUNTING else "waits"
    return f"{word} {mount.unanswered_seconds:.0f}s: "


def _mount_cells(mount: TopMount) -> list[str]:
    dirty, limit = mount.dirty_bytes, mount.dirty_limit_bytes
    return [
        printable(mount.path),
        _BY[mount.counted_by],
        count_text(mount.requests_per_second),
        bytes_text(mount.bytes_per_second),
        bytes_text(mount.mean_bytes),
        *_latency_cells(mount.latency_us),
        count_text(mount.in_flight),
        share_text(mount.background_limit_share),
        share_text(None if dirty is None or not limit else dirty / limit),
        share_text(mount.readahead_unused_share),
    ]


def _operation_cells(one: TopOperation) -> list[str]:
    return [
        f"  {one.operation}",
        "",
        count_text(one.requests_per_second),
        bytes_text(one.bytes_per_second),
        bytes_text(one.mean_bytes),
        *_latency_cells(one.latency_us),
        count_text(one.mean_in_flight),
        *("", "", ""),
    ]


def _latency_cells(latency: Latency | None) -> list[str]:
    if latency is None:
        return [_NONE] * 3
    return [time_text(one) for one in (latency.p50, latency.p95, latency.p99)]


def limit_line(mount: TopMount) -> str:
    """Return the limit that binds a mount, and the command that lifts it."""
    limit = mount.limit
    return f"limit {limit.knob}: {limit.command}  # {limit.reason}" if limit else ""


def source_lines(mounts: Sequence[TopMount]) -> Iterator[str]:
    """Yield each reason why requests are not counted."""
    reasons: dict[str, list[TopMount]] = {}
    for one in mounts:
        if one.why:
            reasons.setdefault(one.why, []).append(one)
    for why, having in reasons.items():
        whose = printable(having[0].path) if len(having) == 1 else f"{len(having)} mounts"
        yield f"requests of {whose} are not counted: {why}"


def lost_lines(mounts: Sequence[TopMount]) -> Iterator[str]:
    """Yield for each mount how many requests were perhaps not counted, or only counted."""
    for one in mounts:
        if one.lost:
            yield f"{printable(one.path)}: {lost_words(one.lost)}"
        if one.unrecorded:
            requests = sum(operation.requests for operation in one.operations)
            yield f"{printable(one.path)}: {recorded_words(one.unrecorded, requests)}"


def _scaled(value: float, step: float, units: str) -> str:
    """Return a number with a unit, in at most five characters except with the largest unit."""
    for unit in units[:-1]:
        if value < 9.95:
            return f"{value:.1f}{unit}".replace(".0", "")
        if value < 999.5:
            return f"{value:.0f}{unit}"
        value /= step
    return f"{value:.0f}{units[-1]}"


def count_text(value: float | None) -> str:
    """Return a number in powers of 1000, a dash for None."""
    return _NONE if value is None else _scaled(value, 1000, " kMG").replace(" ", "")


def bytes_text(value: float | None) -> str:
    """Return bytes in powers of 1024, a dash for None."""
    return _NONE if value is None else _scaled(value, 1024, "BKMGT")


def share_text(value: float | None) -> str:
    """Return a share in percent, a dash for None."""
    return _NONE if value is None else f"{value:.0%}"


def time_text(microseconds: float) -> str:
    """Return a time in us, ms or s."""
    if microseconds < 999.5:
        return f"{microseconds:.0f}us"
    if microseconds < 999_500:
        milliseconds = microseconds / 1000
        return f"{milliseconds:.1f}ms" if milliseconds < 9.95 else f"{milliseconds:.0f}ms"
    return f"{microseconds / 1e6:.3g}s"
