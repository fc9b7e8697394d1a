# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --live: what a block counts, how it is judged, and when pairs of blocks prove a gain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from fusetune.bench.worker import Interrupted
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from fusetune.profile import waits
from fusetune.profile.program import bucket_middle
from fusetune.profile.waits import Mark, Marks, Of, Waited
from fusetune.profile.waits_program import Kind, waits_program
from fusetune.tuner.blocks import LEAD, LEAST_CALLS, Block, Reference
from fusetune.tuner.pairs import Pairs
from tests.unit.conftest import Tree

SINCE = 100.0
MIB = 1 << 20


def mark(
    at: float,
    kind: Kind = Kind.WRITE,
    *,
    seconds: float = 0.0,
    calls: int = LEAST_CALLS,
    nbytes: int = MIB,
    failed: int = 0,
    opened: float = 0.0,
    waiting: Sequence[tuple[Of, float]] = (),
) -> Mark:
    waited = Waited(seconds, calls, nbytes, failed, Counter({1e6: calls}))
    return Mark(at, {(kind, opened): waited} if calls else {}, waiting)


def block(*marks: Mark) -> Block:
    """A block of these marks, which begins at the end of the lead."""
    made = Block(SINCE)
    made.take(Mark(SINCE + LEAD, {}, []))
    for one in marks:
        made.take(one)
    return made


def speed(figure: float, *, calls: int = LEAST_CALLS, failed: int = 0) -> Block:
    """A block of one second with this many MiB written per second of waiting."""
    nbytes = int(figure * MIB)
    return block(mark(101.2, seconds=1.0, nbytes=nbytes, calls=calls, failed=failed))


# What counts


def test_a_block_begins_after_the_lead() -> None:
    made = Block(SINCE)
    made.take(mark(SINCE + LEAD / 2, seconds=0.1))
    made.take(mark(SINCE + LEAD, seconds=0.1))
    assert made.figures() == {}
    made.take(mark(SINCE + LEAD + 0.1, seconds=0.5, nbytes=3 * MIB))
    assert made.figures() == {"write": 6 * MIB}
    assert made.seconds == pytest.approx(0.1)


def test_too_few_calls_count_for_nothing() -> None:
    assert block(mark(101, seconds=0.1, calls=LEAST_CALLS - 1)).figures() == {}
    few = mark(101, seconds=0.1, calls=LEAST_CALLS // 2)
    assert block(few, few).figures() == {"write": 10 * MIB}


@pytest.mark.parametrize(
    ("kind", "opened", "counts"),
    [
        (Kind.READ, 0.0, False),  # not known when
        (Kind.READ, SINCE - 0.1, False),
        (Kind.READ, SINCE, True),
        (Kind.WRITE, 0.0, True),
        (Kind.FAULT, 0.0, True),
    ],
)
def test_reads_count_on_files_opened_since(kind: Kind, opened: float, counts: bool) -> None:
    """Others have the readahead of the values before."""
    found = block(mark(101, kind, seconds=0.5, opened=opened)).figures()
    assert found == ({kind.name.lower(): 2 * MIB} if counts else {})


def test_calls_that_wait_count_as_long_as_the_block_lasts() -> None:
    """One began before the block and ends in it; one begins in it and goes on."""
    early, late = ((Kind.WRITE, 0.0), SINCE), ((Kind.WRITE, 0.0), 100.7)
    made = Block(SINCE)
    made.take(Mark(SINCE + LEAD, {}, [early]))
    made.take(mark(101.2, seconds=0.5, waiting=[late]))  # 0.2 of them before the block
    assert made.waited(Kind.WRITE) == pytest.approx(0.5 - 0.2 + 0.5)


# What aborts a block


@pytest.fixture
def reference() -> Reference:
    """Blocks at 10 MiB a second of waiting, give or take a tenth."""
    made = Reference()
    for figure in (9, 10, 11, 10, 9, 11):
        made.add(speed(figure))
    return made


@pytest.mark.parametrize(("figure", "worse"), [(10, False), (7.5, False), (5, True)])
def test_much_slower_than_chance_explains(reference: Reference, figure: float, worse: bool) -> None:
    assert bool(reference.why_worse(speed(figure))) is worse


def test_20_percent_alone_are_not_enough() -> None:
    """If blocks differ by more, or if there are few of them, they prove nothing."""
    loose, few = Reference(), Reference()
    for figure in (2, 10, 30, 5, 20, 8):
        loose.add(speed(figure))
    for _ in range(3):
        few.add(speed(10))
    assert loose.why_worse(speed(3)) is None
    assert few.why_worse(speed(3)) is None


def test_significance_alone_is_not_enough() -> None:
    steady = Reference()
    for figure in (10, 10.01, 10, 10.01, 10):
        steady.add(speed(figure))
    assert steady.why_worse(speed(8.3)) is None
    assert steady.why_worse(speed(7.9)) == "write fell to 0.79 of its speed"


def test_a_block_is_not_judged_by_its_first_moments(reference: Reference) -> None:
    assert reference.why_worse(speed(5), least=2.0) is None
    assert reference.why_worse(speed(5), least=1.0)


def test_a_rising_error_rate(reference: Reference) -> None:
    assert reference.why_worse(speed(10, failed=2, calls=1000)) is None
    for _ in range(6):
        reference.add(speed(10, calls=1000))
    assert reference.why_worse(speed(10, failed=2, calls=1000)) is None
    assert reference.why_worse(speed(10, failed=10, calls=1000)) == (
        "10 of 1000 calls failed, compared with 0 of 6192 before"
    )
    for _ in range(12):
        reference.add(speed(10, failed=10, calls=1000))
    assert reference.why_worse(speed(10, failed=12, calls=1000)) is None


def test_a_stall(reference: Reference) -> None:
    def after(seconds: float) -> Block:
        return block(Mark(101.2, {}, [((Kind.WRITE, 0.0), 101.2 - seconds)]))

    assert reference.why_worse(after(4.9)) is None
    assert reference.why_worse(after(5.1)) == "a write waited for 5.1 s"
    reference.add(block(Mark(101.2, {}, [((Kind.WRITE, 0.0), 99.2)])))
    assert reference.why_worse(after(7.9)) is None  # they wait for long with the values before, too
    assert reference.why_worse(after(8.1))


# Pairs


def pairs(ratios: Sequence[float], name: str = "read", into: Pairs | None = None) -> Pairs:
    made = into or Pairs({"read": 0.9, "write": 0.1})
    for ratio in ratios:
        made.add({name: 100.0}, {name: 100.0 * ratio})
    return made


def test_a_gain_is_proven_by_four_pairs_at_least() -> None:
    assert not pairs([2, 2.1, 2]).holds()
    assert pairs([2, 2.1, 2, 2.1]).holds()
    assert not pairs([2, 0.5, 2, 2.1]).holds()


def test_no_workload_may_be_proven_worse() -> None:
    """The last pairs prove nothing, but all pairs do."""
    made = pairs([2, 2.1, 2, 2.1])
    assert pairs([1.3, 0.7] * 4, "write", made).holds()
    assert pairs([*([0.8] * 40), *([1.3, 0.7] * 4)], "write", made).why_lost(most=1) is None
    assert str(made.why_not()).startswith("write: 0.8")
    assert not made.holds()


def test_a_loss_that_nobody_feels_is_borne() -> None:
    """A hundred pairs also prove 3 %."""
    made = pairs([2, 2.1] * 50)
    pairs([0.97, 0.98] * 50, "write", made)
    assert made.per_workload()["write"][2].high < 1
    assert made.holds()


def test_the_means_are_those_of_the_pairs_with_both() -> None:
    """The ratio follows from them."""
    pairs = Pairs({"read": 0.5, "write": 0.5})
    for number in range(8):
        late = {"read": 1.0} if number < 4 else {}
        pairs.add({"read": 100.0, "write": 1000.0}, {"write": 2000.0, **late})
        pairs.add({"write": 1000.0}, {"read": 9.0, "write": 2000.0})
    before, after, ratio = pairs.per_workload()["read"]
    assert (before, after) == pytest.approx((100.0, 1.0))
    assert ratio.ratio == pytest.approx(after / before)


def test_the_gain_is_weighted() -> None:
    made = pairs([2] * 4)
    gain = pairs([1] * 4, "write", made).gain()
    assert gain
    assert gain.ratio == pytest.approx(2**0.9)


@pytest.mark.parametrize("bad", [4, 5])
def test_the_last_pairs_count_most(bad: int) -> None:
    """Forty good pairs do not outweigh the current traffic."""
    made = pairs([3, 3.1] * 20)
    assert made.holds()
    assert pairs([0.6, 0.62, 0.6, 0.62, 0.6][:bad], into=made).why_lost()
    gain = made.gain()
    assert gain
    assert gain.low > 1
    assert not made.holds()


@pytest.mark.parametrize(("others", "holds"), [(2, True), (3, False)])
def test_a_gain_of_traffic_that_has_gone_does_not_count(others: int, holds: bool) -> None:
    """Even if that which has come instead does not suffer."""
    made = pairs([1.0] * others, "fault", pairs([3, 3.1] * 20))
    assert made.holds() is holds


def test_a_small_loss_of_the_last_pairs_counts_at_the_end_alone() -> None:
    made = pairs([*([3, 3.1] * 20), 0.9, 0.91, 0.9, 0.91])
    assert made.why_lost() is None
    assert not made.holds()


# What bpftrace prints

LINES = b"""{"type": "attached_probes", "data": {"probes": 37}}
{"type": "map", "data": {"@waiting": {"12": 66000000000000, "13": 66100000000000, "14": 0}}}
{"type": "map", "data": {"@waiting_for": {"12": 2645245, "14": 2}}}
{"type": "map", "data": {"@sleeping": {"15": 0, "14": 66150000000000}}}
{"type": "map", "data": {"@waited": {"2645245": 250000000, "2": 1000000, "3": 2000000}}}
{"type": "map", "data": {"@calls": {"2645245": 28, "2": 3, "3": 4}}}
{"type": "map", "data": {"@bytes": {"2645245": 3670016, "3": 4096}}}
{"type": "map", "data": {"@failed": {"2": 1}}}
{"type": "map", "data": {"@latency": {"2645245,72": 12, "2645245,20": 16}}}
{"type": "printf", "data": "mark 66200000000000\\n"}
"""


def test_what_bpftrace_prints_becomes_marks() -> None:
    marks = Marks()
    for line in LINES.splitlines():
        marks.take(line)
    (found,) = marks.taken
    assert found.at == 66200.0
    read = found.ended[Kind.READ, 66131.1]
    assert (read.seconds, read.calls, read.nbytes, read.failed) == (0.25, 28, 3670016, 0)
    assert read.latency == {1000 * bucket_middle(72): 12, 1000 * bucket_middle(20): 16}
    assert found.ended[Kind.WRITE, 0.0] == Waited(0.001, 3, 0, 1)
    assert found.ended[Kind.FAULT, 0.0].nbytes == 4096
    # The call of 13 is unknown, because it began between two prints. 14 has ended.
    assert found.waiting == [((Kind.READ, 66131.1), 66000.0), ((Kind.FAULT, 0.0), 66150.0)]


def test_a_mark_has_nothing_of_the_one_before() -> None:
    marks = Marks()
    for line in (*LINES.splitlines(), LINES.splitlines()[-1]):
        marks.take(line)
    assert marks.taken[1].ended == {}
    assert marks.taken[1].waiting == []


@pytest.mark.parametrize(
    "line",
    [
        b"no JSON",
        b'{"type": "printf", "data": "ready\\n"}',
        b'{"type": "printf", "data": "mark x\\n"}',
        b'{"type": "map"}',
        b'{"type": "map", "data": {"@calls": {"a": "b"}}}',
    ],
)
def test_other_output_is_an_error(line: bytes) -> None:
    with pytest.raises(FusetuneError, match="bpftrace printed unexpected output"):
        Marks().take(line)


@pytest.mark.parametrize("faults", [True, False])
def test_the_program_differs_in_the_device_alone(faults: bool) -> None:
    texts = [waits_program(device, faults=faults) for device in (4099, 7340077)]
    assert texts[0] == texts[1].replace("7340077", "4099")
    assert not re.search("DEVICE|LOOKED|TICK|KEY|NAME|BODY|DESCRIPTOR|LATENCY|SLOTS", texts[0])
    assert ("mm_filemap_fault" in texts[0]) is faults


def test_a_signal_ends_the_wait_for_the_first_mark(
    tree: Tree, mounted: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bpftrace may take minutes to attach its probes on a busy host."""
    slow = tmp_path / "bpftrace"
    slow.write_text("#!/bin/sh\nexec sleep 100\n")
    slow.chmod(0o755)
    monkeypatch.setattr(waits, "bpftrace_path", lambda: str(slow))
    monkeypatch.setattr(waits, "traces_faults", lambda host: True)
    asked: list[None] = []

    def check() -> None:
        asked.append(None)
        if len(asked) > 1:
            raise Interrupted("interrupted")

    with pytest.raises(Interrupted), waits.Waits(tree.host, mounted, check):
        pass
