# SPDX-License-Identifier: GPL-2.0-or-later
"""top: what it makes of two readings of a mount, in a tree in place of /sys and /proc."""

import time
from collections.abc import Callable, Iterator

import pytest

from fusetune.mounts.bdi import DirtyPages, bdi_statistics, dirty_pages
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from fusetune.profile.counted import LiveCounts
from fusetune.profile.program import Abilities, live_program
from fusetune.profile.sampling import Sample, Sampled
from fusetune.profile.totals import Totals, lost_between, operations_between
from fusetune.profile.traffic import Calls, Operation, Pattern
from fusetune.report.documents.top import Top, TopMount, top_frame
from fusetune.top.watching import MOST_TRACED, Watching
from tests import schemas
from tests.unit.conftest import STOCK, Tree, process

CONTROL = "sys/fs/fusetuned/connections/41"
WAITING = "sys/fs/fuse/connections/40/waiting"
DEBUG = "sys/kernel/debug/bdi/0:40/stats"
STATISTICS = (
    "READ count {reads} errors 0 sent_bytes 0 received_bytes {received} time_ns 0 "
    "latency_us 0 0 {reads}\n"
    "WRITE count 5 errors 0 sent_bytes 4296 received_bytes 0 time_ns 0 latency_us 0 5 0\n"
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let so many seconds pass; no others do."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def passing(seconds: float) -> None:
        now[0] += seconds

    return passing


def _statistics(tree: Tree, reads: int) -> None:
    text = STATISTICS.format(reads=reads, received=reads * 4096)
    tree.write(f"{CONTROL}/statistics", text)


def _bdi(tree: Tree, dirty: int, written: int = 0) -> None:
    tree.write(
        DEBUG,
        f"BdiWriteback: {dirty // 2} kB\nBdiReclaimable: {dirty - dirty // 2} kB\n"
        "BdiDirtyThresh: 1000 kB\nDirtyThresh: 4000 kB\nBackgroundThresh: 2000 kB\n"
        f"BdiDirtied: 7 kB\nBdiWritten: {written} kB\nBdiWriteBandwidth: 0 kBps\nstate: 1\n",
    )


def _shown(sample: Sample) -> TopMount:
    (shown,) = _checked(top_frame([sample], None, 1.7e9, 2.0)).mounts
    return shown


def _checked(frame: Top) -> Top:
    schemas.check(frame)
    assert frame.as_line().count("\n") == 1
    return frame


# Rates


def test_rates_are_those_between_two_readings(
    tree: Tree, by_module: Mount, clock: Callable[[float], None]
) -> None:
    _statistics(tree, 100)
    sampled = Sampled(tree.host, by_module, STOCK, "untraced")
    clock(2.0)
    _statistics(tree, 300)
    shown = _shown(sampled.take(STOCK))
    assert (shown.counted_by, shown.why, shown.seconds, shown.lost) == ("module", None, 2.0, 0)
    assert (shown.requests_per_second, shown.bytes_per_second) == (100.0, 409600.0)
    assert (shown.mean_bytes, shown.in_flight) == (4096.0, 0)
    (read,) = shown.operations
    assert (read.operation, read.requests, read.requests_per_second) == ("READ", 200, 100.0)
    assert read.latency_us is not None
    assert (read.latency_us.p50, read.mean_in_flight) == (3.0, 0.0)
    clock(1.0)
    assert _shown(sampled.take(STOCK)).operations == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (Totals(5, 50, {1.0: 5}), Totals(7, 80, {1.0: 6, 3.0: 1}), (2, 30, [(1.0, 1), (3.0, 1)])),
        (Totals(2**64 - 2, 2**64 - 9), Totals(3, 1), (5, 10, [])),  # past its largest
        (Totals(5, 50, {1.0: 5}), Totals(3, 9, {1.0: 3}), (3, 9, [(1.0, 3)])),  # begun anew
        (Totals(5, 50), Totals(6, 40), (1, 0, [])),  # bytes are read after requests
    ],
)
def test_counters_that_wrap_or_begin_anew(
    before: Totals, after: Totals, expected: tuple[int, int, list[tuple[float, int]]]
) -> None:
    (found,) = operations_between({"READ": before}, {"READ": after})
    assert (found.requests, found.nbytes, found.latency) == expected


def test_what_is_lost_is_estimated_by_the_rest() -> None:
    before = {"READ": Totals(10, 100, {1.0: 10})}
    after = {"READ": Totals(30, 200, {1.0: 20}, lost=10)}
    assert operations_between(before, after) == [Operation("READ", 20, 200, [(1.0, 10)])]
    assert lost_between(before, after) == 10


def test_statistics_that_cannot_be_read_leave_the_rest(tree: Tree, by_module: Mount) -> None:
    sampled = Sampled(tree.host, by_module, STOCK, "untraced")
    shown = _shown(sampled.take(STOCK))
    assert shown.counted_by == "fusectl"
    assert (shown.why or "").startswith(f"cannot read /{CONTROL}/statistics")
    assert (shown.requests_per_second, shown.in_flight) == (None, 0)


# bpftrace

EVERY = Abilities(pauses=True, faults=True, calls=True)


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
        mark=5.5,
    )
    _take(counts, '"@requests": {"15": 101}', '"@most": {"15": 2}', mark=5.75)
    second = counts.reading()
    assert first
    assert second
    assert (first.at, second.at, first.counts) == (5.0, 5.75, {})
    (read,) = operations_between(first.counts, second.counts)
    assert (read.requests, read.nbytes, read.most_in_flight) == (101, 1010, 7)
    # Of 101, 90 ended and 2 are in flight.
    assert lost_between(first.counts, second.counts) == 9
    assert second.pattern == Pattern(Calls(80, 80), None, 0, None, 0.5)
    _take(counts, '"@most": {"15": 2}', mark=6.0)
    third = counts.reading()
    assert third
    assert third.counts["READ"].most_in_flight == 2


def test_a_request_that_ends_while_maps_are_printed_is_not_lost() -> None:
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
    assert lost_between(before.counts, after.counts) == 0


@pytest.mark.parametrize("able", [EVERY, Abilities(pauses=False, faults=False, calls=False)])
def test_the_live_program_prints_what_it_has(able: Abilities) -> None:
    text = live_program(41, "0:41", 2, able, 0.25)
    assert "interval:ms:250 /@ready/" in text
    for name in ("requests", "net", "latency", "bytes", "most", "largest"):
        assert f"print(@{name});" in text
    # An entry of @sent may go while it is printed.
    assert "print(@sent)" not in text
    assert "END {" not in text
    assert ("sys_enter_read " in text, "sys_enter_write " in text) == (able.calls, False)


# A mount whose server does not reply


def test_a_mount_without_replies_is_marked(
    tree: Tree, mounted: Mount, clock: Callable[[float], None]
) -> None:
    tree.write(WAITING, "14\n")
    sampled = Sampled(tree.host, mounted, STOCK, "untraced")
    clock(1.9)
    shown = _shown(sampled.take(STOCK))
    assert (shown.unanswered_seconds, shown.stuck) == (1.9, False)
    assert shown.background_limit_share == 1.0
    assert shown.limit
    assert shown.limit.command == "fusetune set /mnt/one max_background=24"
    clock(0.1)
    shown = _shown(sampled.take(STOCK))
    assert (shown.unanswered_seconds, shown.stuck, shown.limit) == (2.0, True, None)
    assert (shown.in_flight, shown.counted_by) == (14, "fusectl")


@pytest.mark.parametrize("waiting", [13, 0])
def test_fewer_that_wait_are_a_reply(
    tree: Tree, mounted: Mount, clock: Callable[[float], None], waiting: int
) -> None:
    tree.write(WAITING, "14\n")
    sampled = Sampled(tree.host, mounted, STOCK, "untraced")
    clock(5.0)
    tree.write(WAITING, f"{waiting}\n")
    assert not _shown(sampled.take(STOCK)).stuck
    clock(1.0)
    assert _shown(sampled.take(STOCK)).unanswered_seconds == (1.0 if waiting else 0.0)


def test_what_ended_is_a_reply(
    tree: Tree, by_module: Mount, clock: Callable[[float], None]
) -> None:
    _statistics(tree, 100)
    tree.write(f"{CONTROL}/waiting", "1\n")
    sampled = Sampled(tree.host, by_module, STOCK, "untraced")
    clock(5.0)
    _statistics(tree, 101)
    assert _shown(sampled.take(STOCK)).unanswered_seconds == 0
    clock(5.0)
    assert _shown(sampled.take(STOCK)).stuck


# The background limit and dirty pages


def test_the_share_of_looks_at_the_background_limit(tree: Tree, mounted: Mount) -> None:
    sampled = Sampled(tree.host, mounted, STOCK, "untraced")  # a look, and take() is another
    for waiting in (12, 20):
        tree.write(WAITING, f"{waiting}\n")
        sampled.look()
    tree.write(WAITING, "3\n")
    shown = _shown(sampled.take(STOCK))
    assert (shown.background_limit_share, shown.mean_in_flight) == (0.5, 35 / 4)
    assert (shown.in_flight, shown.max_background) == (3, 12)


def test_without_a_connection_nothing_is_made_up(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.live(connection=None)
    shown = _shown(Sampled(tree.host, tree.only(), {}, "untraced").take({}))
    assert shown.counted_by == "bdi"
    assert (shown.in_flight, shown.mean_in_flight, shown.background_limit_share) == (None,) * 3


def test_dirty_pages(tree: Tree, mounted: Mount) -> None:
    assert dirty_pages(tree.host, mounted) is None
    _bdi(tree, 600, written=8)
    # Background 500, limit 1000: writers are paused from the middle on.
    kib = 1024
    assert dirty_pages(tree.host, mounted) == DirtyPages(
        *(600 * kib, 1000 * kib, 750 * kib, 8 * kib)
    )
    tree.write(DEBUG, "BdiDirtied: 12 kB\nother words\n")
    assert bdi_statistics(tree.host, mounted) == {"BdiDirtied": 12 * kib}
    assert dirty_pages(tree.host, mounted) is None


@pytest.mark.parametrize(
    ("dirty", "values", "expected"),
    [
        (749, STOCK, None),
        (750, STOCK, "max_ratio"),
        (1000, STOCK | {"strict_limit": 0}, None),
        (1000, STOCK | {"max_ratio": 100}, None),
    ],
)
def test_the_dirty_limit(
    tree: Tree,
    mounted: Mount,
    clock: Callable[[float], None],
    dirty: int,
    values: dict[str, int],
    expected: str | None,
) -> None:
    _bdi(tree, 0, written=100)
    sampled = Sampled(tree.host, mounted, values, "untraced")
    clock(2.0)
    _bdi(tree, dirty, written=300)
    shown = _shown(sampled.take(values))
    assert (shown.dirty_bytes, shown.dirty_limit_bytes) == (dirty * 1024, 1000 * 1024)
    assert shown.written_back_bytes_per_second == 100 * 1024
    assert (shown.limit.knob if shown.limit else None) == expected


# Which mounts


@pytest.fixture
def watching(tree: Tree, mounted: Mount) -> Iterator[Callable[..., Watching]]:
    """Make what watches the mounts of the tree."""
    made: list[Watching] = []

    def make(named: Mount | None = None, *, trace: bool = False) -> Watching:
        made.append(Watching(tree.host, named, 1.0, trace=trace))
        return made[-1]

    yield make
    for one in made:
        one.close()


def _paths(frame: Top) -> list[str]:
    return [one.path for one in _checked(frame).mounts]


def test_new_mounts_appear_and_gone_ones_go(tree: Tree, watching: Callable[..., Watching]) -> None:
    found = watching()
    assert _paths(found.frame()) == ["/mnt/one"]
    tree.mount("/mnt/two", device="0:47")
    tree.live("0:47", "47")
    assert _paths(found.frame()) == ["/mnt/one"]
    assert _paths(found.frame()) == ["/mnt/one", "/mnt/two"]
    lines = tree.read("proc/self/mountinfo").splitlines(keepends=True)
    tree.write("proc/self/mountinfo", "".join(one for one in lines if "/mnt/one" not in one))
    assert _paths(found.frame()) == ["/mnt/two"]
    assert not found.gone


def test_another_mount_with_the_same_number_begins_anew(
    tree: Tree, mounted: Mount, watching: Callable[..., Watching]
) -> None:
    found, named = watching(), watching(mounted)
    bdi = tree.root / "sys/class/bdi/0:40"
    bdi.rename(bdi.with_name("gone"))
    tree.live()
    assert _paths(found.frame()) == []
    assert _paths(found.frame()) == ["/mnt/one"]
    named.frame()
    assert named.gone


def test_a_named_mount_comes_with_what_it_lies_on(
    tree: Tree, watching: Callable[..., Watching]
) -> None:
    for number, (point, below) in enumerate((("/mnt/top", "/mnt/one"), ("/mnt/other", "/")), 47):
        tree.mount(point, device=f"0:{number}", source=below)
        tree.live(f"0:{number}", str(number))
        process(tree, number, "mirrorfs", below, point, fds={3: str(number)})
    mounts = {one.path: one for one in _checked(watching().frame()).mounts}
    assert [one.path for one in mounts["/mnt/top"].below] == ["/mnt/one"]
    assert mounts["/mnt/other"].below == []
    top = find(tree.host, "/mnt/top")
    assert _paths(watching(top).frame()) == ["/mnt/top", "/mnt/one"]


def test_bpftrace_is_for_a_named_mount_or_a_few(
    tree: Tree, mounted: Mount, watching: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    traced: list[str] = []

    def trace(sampled: Sampled, every: float) -> None:
        traced.append(sampled.mount.path)
        assert every == 0.25
        sampled.tracing = FakeTracing()  # type: ignore[assignment]

    monkeypatch.setattr(Sampled, "trace", trace)
    for number in range(60, 70):
        tree.mount(f"/mnt/{number}", device=f"0:{number}")
        tree.live(f"0:{number}", str(number))
    frame = watching().frame()
    assert traced == []
    assert {one.why for one in frame.mounts} == {"name the mount, or use --trace"}
    watching(mounted)
    assert traced == ["/mnt/one"]
    traced.clear()
    frame = watching(trace=True).frame()
    assert len(traced) == MOST_TRACED
    assert [one.why for one in frame.mounts][MOST_TRACED:] == [
        "bpftrace watches 8 mounts at most"
    ] * 3


class FakeTracing:
    """A bpftrace that prints nothing."""

    ready, queued, streams = True, False, ()

    def reading(self) -> None:
        return None

    def close(self) -> None:
        pass
