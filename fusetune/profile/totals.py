# SPDX-License-Identifier: GPL-2.0-or-later
"""The counts of a source so far, and the traffic between two readings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fusetune.profile.traffic import Calls, Operation, Pattern

_WORD = 1 << 64


@dataclass(frozen=True)
class Totals:
    """The counts of one operation since counting started.

    ``requests``: sent, or completed if the source counts those. ``nbytes``: their data, as far as
    recorded; ``latency``: number of requests by microseconds. ``unrecorded``: the others.
    ``largest_bytes``, ``most_in_flight``: see `Operation`, for the time since the previous reading.
    """

    requests: int
    nbytes: int = 0
    latency: Mapping[float, int] = field(default_factory=dict)
    largest_bytes: int | None = None
    most_in_flight: int | None = None
    unrecorded: int = 0


#: Totals by the name of their operation.
Counts = Mapping[str, Totals]


@dataclass(frozen=True)
class Reading:
    """The counts of a source at second ``at`` of a monotonic clock.

    ``lost``: how many requests may not have been counted.
    """

    at: float
    counts: Counts
    pattern: Pattern = field(default_factory=Pattern)
    lost: int = 0


def operations_between(before: Counts, after: Counts) -> list[Operation]:
    """Return what was counted from one reading to the next, most requests first.

    Counters wrap at 2^64. A counter that decreased otherwise was reset.
    """
    found = (_operation(name, _before(before, name, now), now) for name, now in after.items())
    return sorted((one for one in found if one.requests), key=lambda one: (-one.requests, one.name))


def unrecorded_between(before: Counts, after: Counts) -> int:
    """Return how many requests were counted without size and latency."""
    return sum(
        now.unrecorded - _before(before, name, now).unrecorded for name, now in after.items()
    )


def _before(before: Counts, name: str, now: Totals) -> Totals:
    """Return what ``now`` is compared with: nothing if the counter was reset."""
    found = before.get(name, Totals(0))
    went_back = (now.requests - found.requests) % _WORD >= _WORD // 2
    return Totals(0) if went_back or now.unrecorded < found.unrecorded else found


def _operation(name: str, before: Totals, now: Totals) -> Operation:
    requests = (now.requests - before.requests) % _WORD
    nbytes = (now.nbytes - before.nbytes) % _WORD
    if nbytes >= _WORD // 2:  # an inconsistent pair of counters wrapped
        nbytes = 0
    counts = {time: count - before.latency.get(time, 0) for time, count in now.latency.items()}
    latency = sorted((time, count) for time, count in counts.items() if count > 0)
    unrecorded = max(0, now.unrecorded - before.unrecorded)
    one = Operation(
        *(name, requests, nbytes, latency, now.largest_bytes, now.most_in_flight, unrecorded)
    )
    if not unrecorded:
        return one
    # Also estimate the bytes of unrecorded requests, as the mean of the others.
    return replace(one, nbytes=round(nbytes * one.scale) if one.ended else None)


def pattern_between(before: Pattern, after: Pattern) -> Pattern:
    """Return how files were used from one reading to the next; ``streams`` as last counted."""
    return Pattern(
        _calls_between(before.reads, after.reads),
        _calls_between(before.writes, after.writes),
        after.streams,
        None if after.page_faults is None else after.page_faults - (before.page_faults or 0),
        None
        if after.paused_seconds is None
        else after.paused_seconds - (before.paused_seconds or 0.0),
        None if after.read_bytes is None else after.read_bytes - (before.read_bytes or 0),
        after.unseen - before.unseen,
    )


def _calls_between(before: Calls | None, after: Calls | None) -> Calls | None:
    if after is None:
        return None
    then = vars(before or Calls())
    return Calls(**{name: count - then[name] for name, count in vars(after).items()})
