# SPDX-License-Identifier: GPL-2.0-or-later
"""Which limit holds a mount's traffic back, by one stated rule."""

from collections.abc import Mapping
from dataclasses import dataclass

from fusetune.profile.traffic import Operation, Traffic

#: Share of the time from which on writers that are paused are held back by the dirty limit.
_PAUSED = 0.1
#: Requests in the kernel for each one that the server has, from which on they wait for a place.
_QUEUED = 1.25
#: Share of the looks from which on as many requests as max_background are many.
_AT_LIMIT = 0.5
#: Requests of an operation with the server, on average, below which nothing waits for it.
_BUSY = 0.5
#: Share of the largest request that the mean one has where requests are cut at a largest size.
_FULL = 0.9
#: Where the kernel cuts requests: 32 pages without max_pages, 256 with it (fs/fuse/file.c).
_CUTS = (32 * 4096, 256 * 4096)
#: Share of reads from which on a reader is one that readahead serves.
_SEQUENTIAL = 0.8
#: Share of direct reads from which on readahead does not matter.
_DIRECT = 0.2
#: Share of the data of READ from which on too much of it is read by nobody.
_WASTED = 0.5
#: With a smaller read_ahead_kb nothing is read ahead.
_PAGE_KB = 4


@dataclass(frozen=True)
class Limit:
    """A limit that binds: the knob that lifts it, a value to try, and why.

    ``value``: twice or half the present one; None where a new mount is needed.
    """

    knob: str
    value: int | None
    reason: str


def limit_of(traffic: Traffic, values: Mapping[str, int]) -> Limit | None:
    """Return the limit that binds, None if none does; ``values``: the live knobs of the mount.

    The first of these that holds:

    1. dirty: the kernel paused writers for at least 10 % of the time -> max_ratio. Where pauses
       are not counted: as many pages of a mount with a strict limit are dirty as it pauses at.
    2. readahead in vain: a READ is with the server at least half of the time, and programs did not
       read half of what READ fetched, which is more than two windows for each stream: so much may
       be on its way to a sequential reader -> read_ahead_kb, halved.
    3. background: for each request that the server has there are 1.25 or more in the kernel, and
       as many READs and WRITEs as max_background were with the server at once -> max_background.
       If those that wait for a place count as with it: as many as that on average. Where no
       operation is known: at half of the looks as many requests waited.
    4. request size: of READ or WRITE at least half a request is always with the server, and the
       mean request has 90 % of the largest, which is a size at which the kernel cuts requests
       -> max_pages.
    5. readahead: a READ is with the server at least half of the time, and 80 % of the reads are
       sequential and go through the page cache -> read_ahead_kb.
    """
    return (
        _dirty(traffic, values)
        or _wasted(traffic, values)
        or _background(traffic, values)
        or _request_size(traffic, values)
        or _readahead(traffic, values)
    )


def _in_flight(traffic: Traffic, one: Operation) -> float:
    """Return how many requests of an operation were with the server, on average."""
    return one.seconds / traffic.seconds if traffic.seconds else 0.0


def _dirty(traffic: Traffic, values: Mapping[str, int]) -> Limit | None:
    paused, pages = traffic.pattern.paused_seconds, traffic.dirty
    if paused is None:
        if pages is None or not values.get("strict_limit", 1):
            return None
        if not pages.dirty or pages.dirty < pages.pausing:  # a mount just made has limits of 0
            return None
        said = (
            f"{pages.dirty >> 10} KiB are dirty, and writers are paused from "
            f"{pages.pausing >> 10} KiB on"
        )
    elif paused < _PAUSED * traffic.seconds:
        return None
    else:
        said = f"the kernel paused writers for {paused:.1f} s because of dirty pages"
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
    if unread < _WASTED * one.nbytes or unread <= on_its_way:
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
        said = f"{with_server:.1f} requests were with the server or waited for a place on average"
    else:
        waiting = traffic.waiting or 0.0
        binds = waiting >= max(1.0, _QUEUED * with_server)
        said = (
            f"{waiting:.1f} requests waited on average, of which the server had {with_server:.1f}"
        )
    return Limit("max_background", _doubled(places), said) if binds else None


def _background_by_looks(traffic: Traffic, places: int) -> Limit | None:
    """Return the limit where nothing tells one request from another."""
    if (traffic.at_background or 0.0) < _AT_LIMIT:
        return None
    return Limit(
        "max_background",
        _doubled(places),
        f"at {traffic.at_background:.0%} of the looks {places} or more requests waited, in the "
        "background or not",
    )


def _doubled(value: int) -> int:
    return min(65535, value * 2)


def _request_size(traffic: Traffic, values: Mapping[str, int]) -> Limit | None:
    for name in ("READ", "WRITE"):
        one = traffic.operation(name)
        if not one or not one.largest_bytes or _in_flight(traffic, one) < _BUSY:
            continue
        full = one.nbytes >= _FULL * one.largest_bytes * one.requests
        # Readahead cuts at its own size, too.
        readahead = name == "READ" and values.get("read_ahead_kb", 0) * 1024 <= one.largest_bytes
        if full and not readahead and one.largest_bytes in _CUTS:
            pages = values.get("max_pages")
            return Limit(
                "max_pages",
                _doubled(pages) if pages else None,
                f"{name} requests are cut at {one.largest_bytes >> 10} KiB",
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
        f"{sequential:.0%} of the reads are sequential, and a READ was with the server "
        f"{min(1.0, _in_flight(traffic, one)):.0%} of the time",
    )
