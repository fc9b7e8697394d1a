# SPDX-License-Identifier: GPL-2.0-or-later
"""top: its figures from two readings of a mount, in a tree instead of /sys and /proc."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fusetune.mounts.bdi import DirtyPages, bdi_statistics, dirty_pages
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from fusetune.profile.limit import limit_of
from fusetune.profile.sampling import Sample, Sampled
from fusetune.profile.totals import Totals, operations_between, unrecorded_between
from fusetune.profile.traffic import Calls, Operation, Pattern, Traffic
from fusetune.report.documents.profile import profiled
from fusetune.report.documents.top import Top
from fusetune.report.documents.top_mount import top_mount
from fusetune.top.watching import MOST_TRACED, Watching
from tests.unit.conftest import STOCK, Tree, process
from tests.unit.sampled import FakeTracing, checked, shown_of

CONTROL = "sys/fs/fusetuned/connections/41"
WAITING = "sys/fs/fuse/connections/40/waiting"
DEBUG = "sys/kernel/debug/bdi/{}/stats"
STATISTICS = (
    "READ count {reads} errors 0 sent_bytes 0 received_bytes {received} time_ns 0 "
    "latency_us 0 0 {reads}\n"
    "WRITE count 5 errors 0 sent_bytes 4296 received_bytes 0 time_ns 0 latency_us 0 5 0\n"
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let this many seconds pass on a simulated clock."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def passing(seconds: float) -> None:
        now[0] += seconds

    return passing


def _statistics(tree: Tree, reads: int) -> None:
    text = STATISTICS.format(reads=reads, received=reads * 4096)
    tree.write(f"{CONTROL}/statistics", text)


def _bdi(tree: Tree, dirty: int, written: int = 0, bdi: str | None = "0:40") -> None:
    tree.write(
        DEBUG.format(bdi),
        f"BdiWriteback: {dirty // 2} kB\nBdiReclaimable: {dirty - dirty // 2} kB\n"
        "BdiDirtyThresh: 1000 kB\nDirtyThresh: 4000 kB\nBackgroundThresh: 2000 kB\n"
        f"BdiDirtied: 7 kB\nBdiWritten: {written} kB\nBdiWriteBandwidth: 0 kBps\nstate: 1\n",
    )


# Rates


def test_rates_are_those_between_two_readings(
    tree: Tree, by_module: Mount, clock: Callable[[float], None]
) -> None:
    _statistics(tree, 100)
    sampled = Sampled(tree.host, by_module, STOCK, "untraced")
    clock(2.0)
    _statistics(tree, 300)
    shown = shown_of(sampled.take(STOCK))
    assert (shown.counted_by, shown.why, shown.seconds, shown.lost) == ("module", None, 2.0, 0)
    assert (shown.requests_per_second, shown.bytes_per_second) == (100.0, 409600.0)
    assert (shown.mean_bytes, shown.in_flight) == (4096.0, 0)
    (read,) = shown.operations
    assert (read.operation, read.requests, read.requests_per_second) == ("READ", 200, 100.0)
    assert read.latency_us is not None
    assert (read.latency_us.p50, read.mean_in_flight) == (3.0, 0.0)
    clock(1.0)
    assert shown_of(sampled.take(STOCK)).operations == []


def test_what_is_written_back_is_of_the_whole_interval(
    tree: Tree, by_module: Mount, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """bpftrace's readings may lie closer together."""
    _statistics(tree, 100)
    _bdi(tree, 0, 0, by_module.bdi)
    sampled = Sampled(tree.host, by_module, STOCK, "untraced")
    first = sampled._before
    assert first
    monkeypatch.setattr(sampled, "_read", lambda: replace(first, at=first.at + 0.75))
    clock(1.0)
    _bdi(tree, 0, 300, by_module.bdi)
    shown = shown_of(sampled.take(STOCK))
    assert (shown.seconds, shown.written_back_bytes_per_second) == (0.75, 300 * 1024)


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


def test_what_is_unrecorded_is_estimated_by_the_rest() -> None:
    before = {"READ": Totals(10, 100, {1.0: 10})}
    after = {"READ": Totals(30, 200, {1.0: 20}, unrecorded=10)}
    expected = Operation("READ", 20, 200, [(1.0, 10)], unrecorded=10)
    assert operations_between(before, after) == [expected]
    assert expected.seconds == pytest.approx(20e-6)
    assert unrecorded_between(before, after) == 10


def test_what_is_in_flight_is_no_part_of_the_estimate() -> None:
    (found,) = operations_between({}, {"READ": Totals(40, 100, {1.0: 10}, unrecorded=10)})
    assert found.nbytes == 200
    assert found.seconds == pytest.approx(20e-6)


def test_an_operation_without_a_record_has_unknown_bytes(mounted: Mount) -> None:
    counts = {"READ": Totals(5, 0, unrecorded=5), "WRITE": Totals(2, 800, {1.0: 2})}
    operations = operations_between({}, counts)
    traffic = Traffic(2.0, "bpftrace", "time", 0, operations, Pattern(Calls(), read_bytes=0))
    shown = top_mount(Sample(mounted, STOCK, traffic, None, 0, None, 0.0), None, ())
    assert (shown.bytes_per_second, shown.mean_bytes) == (None, None)
    read, write = shown.operations
    assert (read.bytes, read.bytes_per_second, read.mean_bytes) == (None, None, None)
    assert (read.latency_us, read.mean_in_flight) == (None, None)
    assert (write.bytes, write.mean_bytes, write.mean_in_flight) == (800, 400, 0)
    assert traffic.unread_share is None
    assert limit_of(traffic, STOCK) is None
    (row, *_) = profiled(mounted, traffic, STOCK, {}).operations
    assert (row.operation, row.bytes) == ("READ", None)


def test_statistics_that_cannot_be_read_leave_the_rest(tree: Tree, by_module: Mount) -> None:
    sampled = Sampled(tree.host, by_module, STOCK, "untraced")
    shown = shown_of(sampled.take(STOCK))
    assert shown.counted_by == "fusectl"
    assert (shown.why or "").startswith(f"cannot read /{CONTROL}/statistics")
    assert (shown.requests_per_second, shown.in_flight) == (None, 0)
    _statistics(tree, 100)
    sampled.take(STOCK)
    assert shown_of(sampled.take(STOCK)).why is None


# A mount whose server does not reply


def test_a_mount_without_replies_is_marked(
    tree: Tree, mounted: Mount, clock: Callable[[float], None]
) -> None:
    tree.write(WAITING, "14\n")
    sampled = Sampled(tree.host, mounted, STOCK, "untraced")
    clock(1.9)
    shown = shown_of(sampled.take(STOCK))
    assert (shown.unanswered_seconds, shown.stuck) == (1.9, False)
    assert shown.background_limit_share == 1.0
    assert shown.limit
    assert shown.limit.command == "fusetune set /mnt/one max_background=24"
    clock(0.1)
    shown = shown_of(sampled.take(STOCK))
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
    assert not shown_of(sampled.take(STOCK)).stuck
    clock(1.0)
    assert shown_of(sampled.take(STOCK)).unanswered_seconds == (1.0 if waiting else 0.0)


def test_what_ended_is_a_reply(
    tree: Tree, by_module: Mount, clock: Callable[[float], None]
) -> None:
    _statistics(tree, 100)
    tree.write(f"{CONTROL}/waiting", "1\n")
    sampled = Sampled(tree.host, by_module, STOCK, "untraced")
    clock(5.0)
    _statistics(tree, 101)
    assert shown_of(sampled.take(STOCK)).unanswered_seconds == 0
    clock(5.0)
    assert shown_of(sampled.take(STOCK)).stuck


# The background limit and dirty pages


def test_the_share_of_looks_at_the_background_limit(tree: Tree, mounted: Mount) -> None:
    sampled = Sampled(tree.host, mounted, STOCK, "untraced")  # a look, and take() is another
    for waiting in (12, 20):
        tree.write(WAITING, f"{waiting}\n")
        sampled.look()
    tree.write(WAITING, "3\n")
    shown = shown_of(sampled.take(STOCK))
    assert (shown.background_limit_share, shown.mean_in_flight) == (0.5, 35 / 4)
    assert (shown.in_flight, shown.max_background) == (3, 12)


def test_without_a_connection_nothing_is_made_up(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.live(connection=None)
    shown = shown_of(Sampled(tree.host, tree.only(), {}, "untraced").take({}))
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
    tree.write(DEBUG.format("0:40"), "BdiDirtied: 12 kB\nother words\n")
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
    shown = shown_of(sampled.take(values))
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
    return [one.path for one in checked(frame).mounts]


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
    mounts = {one.path: one for one in checked(watching().frame()).mounts}
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
        sampled.tracing = FakeTracing(None)  # type: ignore[assignment]

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
        "bpftrace observes at most 8 mounts"
    ] * 3
