# SPDX-License-Identifier: GPL-2.0-or-later
"""Which limit holds back a mount's traffic, by a documented rule."""

from collections.abc import Mapping
from dataclasses import dataclass

from fusetune.profile.traffic import Operation, Traffic

#: Share of the time above which throttled writers are limited by dirty memory.
_PAUSED = 0.1
#: Requests in the kernel per request at the server, above which they wait for a slot.
_QUEUED = 1.25
#: Share of the samples with max_background requests above which the limit applies.
_AT_LIMIT = 0.5
#: Average number of an operation's requests at the server below which nothing waits for it.
_BUSY = 0.5
#: Mean size divided by largest size above which requests are considered split.
_FULL = 0.9
#: Sizes at which the kernel splits requests: 32 pages without max_pages, 256 with it
#: (fs/fuse/file.c).
_CUTS = (32 * 4096, 256 * 4096)
#: Share of sequential reads above which readahead helps a reader.
_SEQUENTIAL = 0.8
#: Share of direct reads above which readahead does not matter.
_DIRECT = 0.2
#: Share of the data fetched by READ but read by no program, above which readahead is too large.
_WASTED = 0.5
#: With a smaller read_ahead_kb nothing is read ahead.
_PAGE_KB = 4


@dataclass(frozen=True)
class Limit:
    """A limit that applies: the knob that lifts it, a value to try, and why.

    ``value``: twice or half the current one; None if a remount is needed.
    """

    knob: str
    value: int | None
    reason: str


def limit_of(traffic: Traffic, values: Mapping[str, int]) -> Limit | None:
    """Return the limit that applies, None if none does; ``values``: the mount's live knobs.

    The first of these that holds:

    1. dirty: the kernel throttled writers for at least 10 % of the time -> max_ratio. If pauses are
       not counted: a mount with a strict limit has as many dirty pages as trigger throttling.
    2. wasted readahead: a READ is at the server at least half of the time, and programs did not
       read half of what READ fetched. Two windows per stream are not counted, because a sequential
       reader may still read them -> read_ahead_kb, halved.
    3. background: the kernel has at least 1.25 requests for each one at the server, and as many
       READs and WRITEs as max_background were at the server at once -> max_background. If waiting
       requests count as being at the server: as many on average. If no operation is known: in half
       of the samples, that many requests waited.
    4. request size: at least half a READ or WRITE is always at the server, and the mean request has
       90 % of the largest size, which is one at which the kernel splits requests -> max_pages.
    5. readahead: a READ is at the server at least half of the time, and 80 % of the reads are
       sequential and use the page cache -> read_ahead_kb.
    """
    return (
        _dirty(traffic, values)
        or _wasted(traffic, values)
        or _background(traffic, values)
        or _request_size(traffic, values)
        or _readahead(traffic, values)
    )


def _in_flight(traffic: Traffic, one: Operation) -> float:
    """Return how many requests of an operation were at the server, on average."""
    return one.seconds / traffic.seconds if traffic.seconds else 0.0


def _dirty(traffic: Traffic, values: Mapping[str, int]) -> Limit | None:
    paused, pages = traffic.pattern.paused_seconds, traffic.dirty
    if paused is None:
        if pages is None or not values.get("strict_limit", 1):
            return None
        if not pages.dirty or pages.dirty < pages.pausing:  # a new mount has limits of 0
            return None
        said = (
            f"{pages.dirty >> 10} KiB are dirty, and writers are throttled above "
            f"{pages.pausing >> 10} KiB"
        )
    elif paused < _PAUSED * traffic.seconds:
        return None
    else:
        said = f"the kernel throttled writers for {paused:.1f} s because of dirty pages"
    ratio = values.get("max_ratio")
    if ratio is None or ratio >= 100:
        return None
    return Limit("max_ratio", min(100, max(1, ratio * 2)), said)


def _wasted(traffic: Traffic, values: Mapping[str, int]) -> Limit | None:
    one, reads, unread = traffic.operation("READ"), traffic.pattern.reads, traffic.unread_bytes
    window = values.get("read_ahead_kb")
    if not one or not reads or not unread or not window or _in_flight(traffic, one) < _BUSY:
        return None
    on_its_way = 2 * (window << 10) * max(1, traffic.pattern.streams or 0)
    if not one.nbytes or unread < _WASTED * one.nbytes or unread <= on_its_way:
        return None
    if reads.direct > reads.total * _DIRECT:
        return None
    # The kernel begins with small windows, so the largest READ may be smaller than the present one.
    largest = one.largest_bytes
    used = window if not largest or largest in _CUTS else min(window, largest >> 10)
    value = max(_PAGE_KB, used // 2)
    said = f"programs did not read {unread / one.nbytes:.0%} of what READ fetched"
    return Limit("read_ahead_kb", value, said) if value < window else None


def _background(traffic: Traffic, values: Mapping[str, int]) -> Limit | None:
    places = values.get("max_background")
    if not places:
        return None
    if not traffic.tells_operations:
        return _background_by_looks(traffic, places)
    data = [one for one in traffic.operations if one.name in ("READ", "WRITE")]
    known = [one.most_in_flight for one in data if one.most_in_flight is not None]
    counting = traffic.operations if known else data
    with_server = sum(_in_flight(traffic, one) for one in counting)
    if sum(known) < places if known else not traffic.queued:
        return None
    if traffic.queued:
        binds = with_server >= places
        said = f"on average, {with_server:.1f} requests were at the server or waited for a slot"
    else:
        waiting = traffic.waiting or 0.0
        binds = waiting >= max(1.0, _QUEUED * with_server)
        said = f"on average, {waiting:.1f} requests waited, {with_server:.1f} of them at the server"
    return Limit("max_background", _doubled(places), said) if binds else None


def _background_by_looks(traffic: Traffic, places: int) -> Limit | None:
    """Return the limit if requests cannot be told apart."""
    if (traffic.at_background or 0.0) < _AT_LIMIT:
        return None
    return Limit(
        "max_background",
        _doubled(places),
        f"in {traffic.at_background:.0%} of the samples {places} or more requests waited, in the "
        "background or not",
    )


def _doubled(value: int) -> int:
    return min(65535, value * 2)


def _request_size(traffic: Traffic, values: Mapping[str, int]) -> Limit | None:
    for name in ("READ", "WRITE"):
        one = traffic.operation(name)
        if not one or not one.nbytes or not one.largest_bytes or _in_flight(traffic, one) < _BUSY:
            continue
        full = one.nbytes >= _FULL * one.largest_bytes * one.requests
        # Readahead also splits at its own size.
        readahead = name == "READ" and values.get("read_ahead_kb", 0) * 1024 <= one.largest_bytes
        if full and not readahead and one.largest_bytes in _CUTS:
            pages = values.get("max_pages")
            return Limit(
                "max_pages",
                _doubled(pages) if pages else None,
                f"{name} requests are split at {one.largest_bytes >> 10} KiB",
            )
    return None


def _readahead(traffic: Traffic, values: Mapping[str, int]) -> Limit | None:
    one, reads = traffic.operation("READ"), traffic.pattern.reads
    window = values.get("read_ahead_kb")
    if not one or not reads or window is None or _in_flight(traffic, one) < _BUSY:
        return None
    sequential = reads.sequential_share
    if sequential is None or sequential < _SEQUENTIAL or reads.direct > reads.total * _DIRECT:
        return None
    return Limit(
        "read_ahead_kb",
        max(128, window * 2),
        f"{sequential:.0%} of the reads are sequential, and a READ was at the server "
        f"{min(1.0, _in_flight(traffic, one)):.0%} of the time",
    )
