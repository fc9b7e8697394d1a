# SPDX-License-Identifier: GPL-2.0-or-later
"""top by bpftrace: its repeated output, and a mount without it."""

import re
from collections.abc import Callable
from io import BytesIO

import pytest

from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from fusetune.profile.calls import by_system_calls
from fusetune.profile.counted import LiveCounts
from fusetune.profile.program import FAULTS, Abilities, live_program
from fusetune.profile.sampling import Sampled
from fusetune.profile.totals import Reading, Totals, operations_between, unrecorded_between
from fusetune.profile.traffic import Calls, Pattern
from tests.unit.conftest import STOCK, Tree
from tests.unit.sampled import FakeTracing, shown_of

EVERY = Abilities(pauses=True, faults=FAULTS, calls=by_system_calls([], "x86_64"))


def _take(counts: LiveCounts, *maps: str, mark: float) -> None:
    for one in maps:
        counts.take(b'{"type": "map", "data": {%s}}' % one.encode())
    counts.take(b'{"type": "printf", "data": "mark %d\\n"}' % round(mark * 1e9))


def test_bpftrace_is_read_mark_by_mark() -> None:
    counts = LiveCounts(EVERY)
    assert counts.reading() is None
    _take(counts, mark=5.0)
    first = counts.reading()
    _take(
        counts,
        '"@requests": {"15": 100}',
        '"@net": {"15": 18446744073709551614, "79": 4}',  # two of this CPU's ended on the other
        '"@latency": {"15,3": 90}',
        '"@bytes": {"15": 900}',
        '"@most": {"15": 7}',
        '"@reads": {"1": 80}',
        '"@paused_ms": 500',
        '"@asked": 4096',
        '"@unseen": 1',
        '"@faults": 2',
        mark=5.5,
    )
    _take(counts, '"@requests": {"15": 101}', '"@most": {"15": 2}', mark=5.75)
    second = counts.reading()
    assert first
    assert second
    assert (first.at, second.at, first.counts) == (5.0, 5.75, {})
    (read,) = operations_between(first.counts, second.counts)
    # Of 101, 90 ended and 2 are in flight.
    assert (read.requests, read.nbytes, read.most_in_flight) == (101, 990, 7)
    assert unrecorded_between(first.counts, second.counts) == 9
    assert second.pattern == Pattern(Calls(80, 80), None, 0, 2, 0.5, 4096, 1)
    _take(counts, '"@most": {"15": 2}', mark=6.0)
    third = counts.reading()
    assert third
    assert third.counts["READ"].most_in_flight == 2


def test_a_request_that_ends_while_maps_are_printed_has_a_record() -> None:
    counts = LiveCounts(EVERY)
    _take(counts, '"@requests": {"15": 10}', '"@net": {"15": 3}', '"@latency": {"15,3": 7}', mark=1)
    before = counts.reading()
    _take(counts, '"@net": {"15": 3}', '"@latency": {"15,3": 8}', mark=2)
    _take(
        counts, '"@requests": {"15": 12}', '"@net": {"15": 2}', '"@latency": {"15,3": 10}', mark=3
    )
    after = counts.reading()
    assert before
    assert after
    assert unrecorded_between(before.counts, after.counts) == 0
    # Nor does it hide earlier requests without one.
    _take(counts, '"@requests": {"15": 22}', '"@latency": {"15,3": 15}', mark=4)
    before = counts.reading()
    _take(
        counts, '"@requests": {"15": 24}', '"@net": {"15": 3}', '"@latency": {"15,3": 17}', mark=5
    )
    after = counts.reading()
    assert before
    assert after
    assert unrecorded_between({}, before.counts) == 5
    assert unrecorded_between(before.counts, after.counts) == 0
    assert operations_between(before.counts, after.counts)[0].requests == 2


@pytest.mark.parametrize("able", [EVERY, Abilities(pauses=False, faults="", calls=None)])
def test_the_live_program_prints_what_it_has(able: Abilities) -> None:
    text = live_program(41, "0:41", 2, able, 0.25)
    assert "interval:ms:250 /@tracked/" in text
    for name in ("requests", "net", "latency", "bytes", "most", "largest"):
        assert f"print(@{name});" in text
    # An entry of @sent may disappear while it is printed.
    assert "print(@sent)" not in text
    assert "END {" not in text
    assert ("@reads" in text, "@writes" in text) == (able.calls is not None, False)
    printed = [f"print(@{name})" in text for name in ("asked", "unseen", "faults", "paused_ms")]
    assert printed == [able.pauses] * 4


@pytest.fixture
def traced(tree: Tree, mounted: Mount) -> Callable[..., Sampled]:
    """Make a mount that is watched by a `FakeTracing`, from its first reading on."""

    def make(*readings: Reading | FusetuneError | None) -> Sampled:
        sampled = Sampled(tree.host, mounted, STOCK, "untraced")
        sampled.tracing = FakeTracing(*readings)  # type: ignore[assignment]
        sampled.begin(STOCK)
        return sampled

    return make


def test_bpftrace_counts_between_its_own_marks(traced: Callable[..., Sampled]) -> None:
    counts = {"READ": Totals(8, 800, {3.5: 6}, unrecorded=2)}
    shown = shown_of(traced(Reading(5.0, {}, lost=1), Reading(7.0, counts, lost=4)).take(STOCK))
    assert (shown.counted_by, shown.why, shown.seconds) == ("bpftrace", None, 2.0)
    assert (shown.lost, shown.unrecorded) == (3, 2)
    assert (shown.requests_per_second, shown.mean_bytes) == (4.0, 133.375)


def test_bpftrace_that_attaches_or_is_silent_counts_nothing(
    traced: Callable[..., Sampled],
) -> None:
    shown = shown_of(traced(None, Reading(5.0, {})).take(STOCK))
    assert (shown.counted_by, shown.requests_per_second) == ("fusectl", None)
    sampled = traced(Reading(5.0, {}))
    shown = shown_of(sampled.take(STOCK))
    assert (shown.counted_by, shown.why) == (
        *("fusectl",),
        "bpftrace printed nothing in this interval",
    )


@pytest.mark.parametrize("told", [True, False])
def test_bpftrace_that_ends_leaves_the_rest(traced: Callable[..., Sampled], told: bool) -> None:
    sampled = traced(Reading(5.0, {}), FusetuneError("it took too long"))
    tracing = sampled.tracing
    assert isinstance(tracing, FakeTracing)
    if told:
        sampled.read(BytesIO())
    shown = shown_of(sampled.take(STOCK))
    assert shown.why == ("bpftrace ended" if told else "it took too long")
    assert shown.counted_by == "fusectl"
    assert tracing.closed
    assert sampled.tracing is None


def test_why_bpftrace_cannot_begin_is_said(tree: Tree, mounted: Mount) -> None:
    sampled = Sampled(tree.host, mounted, STOCK, "untraced")
    sampled.trace(0.25)
    assert not sampled.attaching
    why = shown_of(sampled.take(STOCK)).why or ""
    assert re.search("run fusetune as root|bpftrace is not installed|tracefs is not mounted", why)
