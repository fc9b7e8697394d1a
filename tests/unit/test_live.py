# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --live on simulated traffic: what it keeps, and which steps it risks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from fusetune.bench.intervals import Interval
from fusetune.profile.waits_program import Kind
from fusetune.tuner import live as live_module
from fusetune.tuner.live import Live
from fusetune.tuner.search import Choice
from fusetune.tuner.space import STEP, Dimension, near
from tests.unit.simulated_traffic import (
    AHEAD,
    BACKGROUND,
    MIB,
    START,
    TICK,
    Setting,
    SimulatedTraffic,
    Speeds,
    by_readahead,
    come_and_go,
    dimension,
    reader,
    searched,
)

pytestmark = pytest.mark.slow

# What is kept


@pytest.mark.parametrize("seed", range(2))
def test_it_ends_near_the_best(seed: int) -> None:
    live = searched(SimulatedTraffic(reader, seed), 600, seed)
    chosen = live.found.choice
    assert chosen.changed
    assert chosen.setting["read_ahead_kb"] == 2048  # from there on more gains nothing
    assert chosen.gain.low > 10
    assert chosen.per_workload["read"][2].ratio == pytest.approx(chosen.gain.ratio)


def test_it_ends_near_the_best_with_idle_times_between() -> None:
    live = searched(SimulatedTraffic(come_and_go), 1200)
    chosen = live.found.choice
    assert by_readahead(chosen.setting) >= 0.9 * by_readahead({"read_ahead_kb": 2048})
    assert live.found.shares.keys() == {"read", "write"}
    assert chosen.per_workload["read"][2].low > 10
    assert chosen.per_workload["write"][2].ratio == pytest.approx(1, rel=0.1)


def test_calls_without_bytes_are_no_kind_of_traffic() -> None:
    """Readers of SQLite, for example, close files that they have opened for writing."""
    traffic = SimulatedTraffic(reader)
    traffic.closing = 0.2 * TICK
    live = searched(traffic, 120)
    assert live.found.shares == {"read": 1.0}
    assert live.found.choice.setting["read_ahead_kb"] == 2048


def test_a_round_leaves_time_for_the_next_ones() -> None:
    """Four steps of four times lead to the best."""

    def deep(setting: Setting, second: float) -> Mapping[Kind, float]:
        ahead = setting["read_ahead_kb"]
        return {Kind.READ: MIB * math.sqrt(ahead / (1 + ahead / 20000)), Kind.WRITE: 5 * MIB}

    for seed in range(4):
        chosen = searched(SimulatedTraffic(deep, seed), 120, seed).found.choice
        assert chosen.setting["read_ahead_kb"] == 32768


@pytest.mark.parametrize("noise", [0.1, 0.6])
def test_noise_alone_changes_nothing_in_20_of_20(noise: float) -> None:
    speeds: Speeds = lambda setting, second: {Kind.READ: 10 * MIB, Kind.WRITE: 5 * MIB}  # noqa: E731
    for seed in range(20):
        traffic = SimulatedTraffic(speeds, seed, noise)
        live = searched(traffic, 60, seed)
        assert not live.found.choice.changed
        assert live.found.choice.setting == {}
        assert len(live.found.trials) > 3  # others were tried


def both(setting: Setting, second: float) -> Mapping[Kind, float]:
    """A reader to which max_background does nothing, and a writer to which both do nothing."""
    return {Kind.READ: by_readahead(setting), Kind.WRITE: 5 * MIB}


def test_values_of_no_use_are_put_back() -> None:
    for seed in range(8):
        chosen = searched(SimulatedTraffic(both, seed), 300, seed).found.choice
        assert chosen.setting == {"read_ahead_kb": 2048, "max_background": 12}


def test_values_of_use_are_not_put_back() -> None:
    """Each is worth 20 %, one step from the initial value."""

    def modest(setting: Setting, second: float) -> Mapping[Kind, float]:
        grown = [setting["read_ahead_kb"] > 128, setting["max_background"] > 12]
        return {Kind.READ: 10 * MIB * 1.2 ** sum(grown)}

    for seed in range(4):
        chosen = searched(SimulatedTraffic(modest, seed), 300, seed).found.choice
        assert chosen.setting["read_ahead_kb"] > 128
        assert chosen.setting["max_background"] > 12


def test_noise_does_not_undo_what_is_proven() -> None:
    """A proof has so many pairs that some of them always seem to contradict it."""
    for seed in range(6):
        live = searched(SimulatedTraffic(both, seed, noise=0.5), 300, seed)
        assert live.found.choice.changed


@pytest.mark.parametrize("changed_at", [20, 40, 60, 80, 100, 112])
def test_nothing_wrong_is_kept_where_the_traffic_changes_midway(changed_at: float) -> None:
    """From then on readahead slows programs down, as with random reads."""

    def changing(setting: Setting, second: float) -> Mapping[Kind, float]:
        slowed = 50 * MIB * 64 / (64 + setting["read_ahead_kb"])
        return {Kind.READ: by_readahead(setting) if second < changed_at else slowed}

    for seed in range(2):
        chosen = searched(SimulatedTraffic(changing, seed), 120, seed).found.choice
        if chosen.changed:  # the kept value is good for the last traffic
            assert chosen.setting["read_ahead_kb"] <= START["read_ahead_kb"]


def test_nothing_wrong_is_kept_where_another_kind_of_traffic_comes() -> None:
    """Readers leave, and programs that read mapped files arrive."""

    def changing(setting: Setting, second: float) -> Mapping[Kind, float]:
        if second < 80:
            return {Kind.READ: by_readahead(setting)}
        return {Kind.FAULT: 50 * MIB * 64 / (64 + setting["read_ahead_kb"])}

    for seed in range(4):
        live = searched(SimulatedTraffic(changing, seed), 120, seed)
        assert live.found.proven or live.found.reasons
        assert not live.found.choice.changed


def test_nothing_is_kept_for_traffic_that_has_gone() -> None:
    """What comes instead is 10 % slower, which a few pairs do not prove."""

    def changing(setting: Setting, second: float) -> Mapping[Kind, float]:
        if second < 45:
            return {Kind.READ: by_readahead(setting)}
        return {Kind.FAULT: 10 * MIB * (0.9 if setting["read_ahead_kb"] > 128 else 1.0)}

    for seed in range(8):
        live = searched(SimulatedTraffic(changing, seed), 60, seed)
        assert any("not kept" in reason for reason in live.found.reasons)
        assert not live.found.choice.changed


def test_the_search_begins_anew_for_another_kind_of_traffic() -> None:
    def changing(setting: Setting, second: float) -> Mapping[Kind, float]:
        return {Kind.WRITE: 5 * MIB} if second < 15 else {Kind.READ: by_readahead(setting)}

    live = searched(SimulatedTraffic(changing), 600)
    assert any("kind of traffic changed" in reason for reason in live.found.reasons)
    assert live.found.choice.changed
    assert live.found.shares == {"read": 1.0}


def test_without_traffic_nothing_counts() -> None:
    traffic = SimulatedTraffic(lambda setting, second: {})
    live = searched(traffic, 120)
    assert live.found.idle == live.found.evaluations > 0
    assert live.found.trials == []
    assert [setting for _, setting in traffic.written] == [START]
    assert live.seconds < 120


def test_a_few_calls_count_for_nothing() -> None:
    """2 per tick, so 8 in a block: too few to compare, however different their speed."""
    traffic = SimulatedTraffic(lambda setting, second: {Kind.READ: 2 * 4096 / TICK}, noise=0.01)
    live = searched(traffic, 120)
    assert live.found.trials
    assert traffic.elapsed >= live.found.evaluations * 32 / 20  # each took as long as 32 calls


@pytest.mark.parametrize(("kind", "share"), [(Kind.READ, 3), (Kind.WRITE, 1)])
def test_a_block_with_few_reads_is_longer(kind: Kind, share: int) -> None:
    """The first reads of a file wait longest."""
    traffic = SimulatedTraffic(lambda setting, second: {kind: 10 * 4096 / TICK}, noise=0.01)
    live = Live((AHEAD,), {"read_ahead_kb": 128}, traffic, traffic.set, 480)
    block, _ = live._block(live.start, [kind.name.lower()])
    assert block.calls(kind) >= 32
    assert block.seconds == pytest.approx(share * 0.4, abs=TICK)


# Steps that it risks


def test_each_step_of_a_knob_is_at_most_fourfold() -> None:
    """From values that were proven better; `near` has the rule."""
    traffic = SimulatedTraffic(reader)
    live = searched(traffic, 600)
    assert live.found.choice.setting["read_ahead_kb"] >= 2048
    most = START["read_ahead_kb"]
    for _, setting in traffic.written:
        assert setting["read_ahead_kb"] <= STEP * most
        if setting["read_ahead_kb"] <= 2048:  # so far each step is an improvement
            most = max(most, setting["read_ahead_kb"])
        assert setting["read_ahead_kb"] >= START["read_ahead_kb"] / STEP
    tried = {setting["read_ahead_kb"] for _, setting in traffic.written if _ < 1020}
    assert max(tried) <= STEP * START["read_ahead_kb"]


@pytest.mark.parametrize(
    ("value", "earlier", "kept"),
    [
        (128, 128, (32, 64, 128, 256, 512)),
        (0, 0, (0, 32)),
        (32, 32, (0, 32, 64, 128)),
        (64, 64, (32, 64, 128, 256)),  # not 0: that is no neighbour
        (512, 128, (256, 512, 1024, 2048)),
        (32, 128, (0, 32, 64)),
        (100, 100, (32, 64, 100, 128, 256)),
    ],
)
def test_values_within_one_step(value: int, earlier: int, kept: tuple[int, ...]) -> None:
    found = near(AHEAD, value, earlier)
    assert found
    assert found.values == kept
    assert found.stock == (128 if 128 in kept else value)


def test_a_knob_without_a_value_in_reach_is_left_out() -> None:
    assert near(Dimension("max_background", (12, 256), 12), 2000, 2000) is None


def test_a_switch_has_no_steps() -> None:
    strict = dimension("strict_limit", 1)
    assert near(strict, 1, 1) == strict


def test_a_second_step_is_looked_at_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of many rounds may err; here each of them does."""

    class Errs:
        evaluations, short = 1, False

        def __init__(
            self, dimensions: object, start: Setting, *others: object, **options: object
        ) -> None:
            self._start, self._refused = start, False

        def refuse(self) -> None:
            self._refused = True

        def ask(self, remaining: int) -> None:
            return None

        def choice(self) -> Choice:
            wrong = {**self._start, "read_ahead_kb": 2 * self._start["read_ahead_kb"]}
            reasons = ("kept",) if self._refused else ("changed",)
            return Choice(wrong, not self._refused, Interval(1.1, 1.01, 1.2), {}, reasons)

    monkeypatch.setattr(live_module, "Search", Errs)
    traffic = SimulatedTraffic(lambda setting, second: {Kind.READ: 10 * MIB})
    live = searched(traffic, 120)
    tried = {setting["read_ahead_kb"] for _, setting in traffic.written}
    assert tried == {128, 256, 512}  # the first step is left to the proof, which refuses it
    assert not live.found.choice.changed
    said = "read_ahead_kb=512 max_background=12: not kept; its gain was not confirmed"
    assert said in live.found.reasons
    assert live.found.of_round == ["kept"]


@pytest.mark.parametrize(("low", "looks"), [(1.01, True), (1.05, False)])
def test_a_step_whose_gain_is_beyond_doubt_is_not_looked_at_again(low: float, looks: bool) -> None:
    traffic = SimulatedTraffic(reader)
    live = Live((AHEAD, BACKGROUND), START, traffic, traffic.set, 120)
    live.found.incumbent = {**START, "read_ahead_kb": 256}
    live.found.shares = {"read": 1.0}
    assert live._step_holds({**START, "read_ahead_kb": 512}, Interval(1.1, low, 1.2))
    assert bool(traffic.written) is looks
