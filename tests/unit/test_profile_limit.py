# SPDX-License-Identifier: GPL-2.0-or-later
"""Which limit binds the observed traffic, and which workloads represent it."""

from dataclasses import replace

import pytest

from fusetune.bench.workloads import WORKLOADS, chosen
from fusetune.desired.profiles import profile_path, save_profile, sets_for
from fusetune.errors import FusetuneError, UsageError
from fusetune.mounts.bdi import DirtyPages
from fusetune.mounts.mount import Mount
from fusetune.profile.limit import limit_of
from fusetune.profile.shares import shares_of
from fusetune.profile.traffic import Calls, Operation, Pattern, Traffic
from tests.unit.conftest import STOCK, Tree

# The limit

READS = Operation("READ", 100, 100 << 17, [(50_000.0, 100)], 1 << 17, 12)
#: 13 of them at any time.
SLOW = replace(READS, latency=[(1_300_000.0, 100)], most_in_flight=20)
SEQUENTIAL = Pattern(reads=Calls(total=100, sequential=99))


def seen(*operations: Operation, pattern: Pattern = SEQUENTIAL, waiting: float = 0.0) -> Traffic:
    """Ten seconds of traffic; on average half a READ is in flight."""
    return Traffic(10.0, "bpftrace", "time", 0, operations, pattern, waiting)


#: Programs read half of the bytes of READS.
WASTING = Pattern(Calls(total=100), page_faults=0, read_bytes=50 << 17)


def with_pages(pages: DirtyPages) -> Traffic:
    """Traffic from a source without the time for which writers were paused."""
    return replace(seen(pattern=Pattern(paused_seconds=None)), dirty=pages)


@pytest.mark.parametrize(
    ("traffic", "values", "expected"),
    [
        (seen(READS), {}, ("read_ahead_kb", 256)),
        (seen(READS), {"read_ahead_kb": 4096}, ("max_pages", None)),
        (seen(READS), {"read_ahead_kb": 4096, "max_pages": 32}, ("max_pages", 64)),
        (seen(READS, waiting=2.0), {}, ("max_background", 24)),
        (seen(READS, waiting=2.0), {"max_background": 13}, ("read_ahead_kb", 256)),
        # All 12 were at the server, but a tenth of them was recorded.
        (
            seen(replace(READS, latency=[(1_200_000.0, 10)], unrecorded=90), waiting=12.0),
            {},
            ("read_ahead_kb", 256),
        ),
        (replace(seen(SLOW), queued=True), {}, ("max_background", 24)),
        (replace(seen(SLOW), queued=True), {"max_background": 14}, ("read_ahead_kb", 256)),
        (seen(replace(READS, latency=[(9_000.0, 100)])), {}, None),
        (seen(READS, pattern=Pattern(reads=Calls(100, 50, 50))), {}, None),
        (seen(READS, pattern=Pattern(reads=Calls(100, 99, direct=100))), {}, None),
        (seen(READS, pattern=Pattern()), {}, None),
        (seen(READS, pattern=replace(SEQUENTIAL, paused_seconds=1.0)), {}, ("max_ratio", 2)),
        (
            seen(READS, pattern=replace(SEQUENTIAL, paused_seconds=0.9)),
            {},
            ("read_ahead_kb", 256),
        ),
        (seen(pattern=Pattern(paused_seconds=9.0)), {"max_ratio": 100}, None),
        (with_pages(DirtyPages(80, 100, 75, 0)), {}, ("max_ratio", 2)),
        (with_pages(DirtyPages(80, 100, 75, 0)), {"strict_limit": 0}, None),
        (with_pages(DirtyPages(70, 100, 75, 0)), {}, None),
        (with_pages(DirtyPages(0, 0, 0, 0)), {}, None),
        (seen(replace(READS, name="WRITE")), {}, ("max_pages", None)),
        (seen(replace(READS, name="WRITE", largest_bytes=4096)), {}, None),
        (seen(replace(READS, name="WRITE", nbytes=50 << 17)), {}, None),
        (seen(), {}, None),
    ],
)
def test_the_first_limit_that_binds(
    traffic: Traffic, values: dict[str, int], expected: tuple[str, int | None] | None
) -> None:
    found = limit_of(traffic, {**STOCK, **values})
    assert (found and (found.knob, found.value)) == expected


SMALL_READS = replace(READS, nbytes=100 << 14, largest_bytes=1 << 14)


@pytest.mark.parametrize(
    ("one", "pattern", "window", "expected"),
    [
        (READS, WASTING, 128, 64),
        (READS, WASTING, 4096, None),  # it may all be on its way
        (READS, WASTING, 1024, 512),
        (READS, replace(WASTING, streams=4), 1024, None),
        (READS, replace(WASTING, read_bytes=51 << 17), 128, None),
        (
            READS,
            replace(WASTING, read_bytes=200 << 17),
            128,
            None,
        ),  # read again from the page cache
        (READS, replace(WASTING, page_faults=1), 128, None),
        (READS, replace(WASTING, page_faults=None), 128, None),
        (READS, replace(WASTING, unseen=1), 128, None),
        (READS, replace(WASTING, reads=Calls(total=100, direct=21)), 128, None),
        (replace(READS, latency=[(9_000.0, 100)]), WASTING, 128, None),
        (
            SMALL_READS,
            replace(WASTING, read_bytes=0),
            512,
            8,
        ),  # the kernel does not read ahead more here
        (replace(SMALL_READS, largest_bytes=None), replace(WASTING, read_bytes=0), 512, 256),
        (replace(SMALL_READS, largest_bytes=4096), replace(WASTING, read_bytes=0), 4, None),
    ],
)
def test_readahead_in_vain(
    one: Operation, pattern: Pattern, window: int, expected: int | None
) -> None:
    found = limit_of(seen(one, pattern=pattern), {**STOCK, "read_ahead_kb": window})
    assert (found.value if found and found.knob == "read_ahead_kb" else None) == expected


def test_how_much_was_not_read() -> None:
    shares = [
        seen(*operations, pattern=pattern).unread_share
        for operations, pattern in (
            *(([READS], replace(WASTING, read_bytes=blocks << 17)) for blocks in (0, 25, 100, 101)),
            ([], WASTING),
            ([READS], replace(WASTING, unseen=1)),
            ([READS], Pattern()),
        )
    ]
    assert shares == [1.0, 0.75, 0.0, 0.0, None, None, None]


@pytest.mark.parametrize(
    ("traffic", "expected"),
    [
        # The module does not know how many the server had at once; these are 13 on average.
        (replace(seen(replace(SLOW, most_in_flight=None)), queued=True), "max_background"),
        (seen(replace(SLOW, most_in_flight=None), waiting=99.0), "read_ahead_kb"),
        (replace(seen(replace(READS, most_in_flight=None)), queued=True), "read_ahead_kb"),
        (replace(seen(replace(SLOW, name="LOOKUP", most_in_flight=None)), queued=True), None),
        # fusectl alone.
        (Traffic(9.0, "fusectl", "time", 0, [], at_background=0.5), "max_background"),
        (Traffic(9.0, "fusectl", "time", 0, [], at_background=0.49), None),
        (Traffic(9.0, "bpftrace", "time", 0, [], at_background=1.0), None),
    ],
)
def test_what_is_known_less_well(traffic: Traffic, expected: str | None) -> None:
    found = limit_of(traffic, STOCK)
    assert (found and found.knob) == expected


# The workloads that represent it


def taking(name: str, seconds: float, requests: int = 100, nbytes: int = 0) -> Operation:
    return Operation(name, requests, nbytes, [(seconds * 1e6 / requests, requests)])


FSYNC = taking("FSYNC", 3, 50)
SMALL, LARGE = taking("WRITE", 1, 100, 100 << 12), taking("WRITE", 1, 100, 100 << 17)


@pytest.mark.parametrize(
    ("operations", "pattern", "expected"),
    [
        ([], Pattern(), {}),
        ([taking("READ", 1)], SEQUENTIAL, {"seq-read": 1.0}),
        ([taking("READ", 1)], replace(SEQUENTIAL, streams=8), {"many-streams": 1.0}),
        ([taking("READ", 1)], Pattern(Calls(100, 75, 25)), {"seq-read": 0.75, "rand-read": 0.25}),
        ([taking("READ", 1)], Pattern(Calls(100, 75, direct=51)), {"large-read": 1.0}),
        ([taking("READ", 1)], replace(SEQUENTIAL, page_faults=10**6), {"mmap-read": 1.0}),
        ([taking("READ", 1, 100, 100 << 17)], Pattern(), {"seq-read": 1.0}),
        ([taking("READ", 1, 100, 100 << 12)], Pattern(), {"rand-read": 1.0}),
        ([SMALL, FSYNC], Pattern(writes=Calls(100, appends=51)), {"log-append": 1.0}),
        ([SMALL, FSYNC], Pattern(writes=Calls(100, appends=50)), {"database": 1.0}),
        ([SMALL, taking("FSYNC", 1, 24)], Pattern(), {"small-write": 1.0}),
        ([LARGE, taking("GETXATTR", 1)], Pattern(), {"seq-write": 1.0}),
        ([SMALL], Pattern(writes=Calls(100, 0, 99)), {"rand-write": 1.0}),
        ([taking("GETXATTR", 1), taking("RELEASE", 9)], Pattern(), {"open-storm": 1.0}),
        ([taking("LOOKUP", 1), taking("CREATE", 1)], Pattern(), {"metadata": 1.0}),
        (
            [taking("READ", 6, 100, 100 << 17), LARGE, taking("OPEN", 3), taking("STATFS", 0.1)],
            Pattern(),
            {"seq-read": 6 / 10.1, "open-storm": 3.1 / 10.1, "seq-write": 1 / 10.1},
        ),
        ([taking("READ", 96, 100, 100 << 17), SMALL], Pattern(), {"seq-read": 1.0}),
    ],
)
def test_workloads_stand_for_the_traffic(
    operations: list[Operation], pattern: Pattern, expected: dict[str, float]
) -> None:
    found = shares_of(seen(*operations, pattern=pattern))
    assert list(found) == list(expected)
    assert found == pytest.approx(expected)
    assert found.keys() <= WORKLOADS.keys()


def test_a_saved_profile_is_a_set_of_workloads(tree: Tree, mounted: Mount) -> None:
    save_profile(tree.host, mounted, {"rand-read": 0.75, "log-append": 0.25}, 60.0)
    sets = sets_for(tree.host, mounted, ("profile",))
    workloads = chosen(("profile",), sets)
    assert [(one.name, one.weight) for one in workloads] == [
        *(("rand-read", 0.75), ("log-append", 0.25))
    ]
    assert sets["profile"].text.startswith("its traffic during 60 s until ")
    both = chosen(("profile", "rand-read"), sets)
    assert [one.weight for one in both] == [1.75, 0.25]
    assert "profile" not in sets_for(tree.host, mounted, ("rand-read",))


def test_without_a_saved_profile(tree: Tree, mounted: Mount) -> None:
    with pytest.raises(FusetuneError, match=r"create one with 'fusetune profile /mnt/one'$"):
        sets_for(tree.host, mounted, ("profile",))
    with pytest.raises(UsageError, match="needs a mount"):
        sets_for(tree.host, None, ("profile",))


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", '{"shares": [1], "time": 1, "seconds": 1}'),
        '{"schema": 1, "shares": {"no-such": 1}, "time": 1, "seconds": 1}',
        '{"schema": 2, "shares": {"rand-read": 1}, "time": 1, "seconds": 1}',
        '{"schema": 1, "shares": {}, "time": 1, "seconds": 1}',
        '{"shares": {"rand-read": 1}, "time": 1, "seconds": 1}',
        '{"schema": 1, "shares": {"rand-read": -1}, "time": 1, "seconds": 1}',
    ],
)
def test_a_profile_that_cannot_be_used(tree: Tree, mounted: Mount, text: str) -> None:
    save_profile(tree.host, mounted, {"rand-read": 1.0}, 60.0)
    profile_path(tree.host, mounted).write_text(text)
    with pytest.raises(FusetuneError, match=r"create it again with 'fusetune profile /mnt/one'$"):
        sets_for(tree.host, mounted, ("profile",))
