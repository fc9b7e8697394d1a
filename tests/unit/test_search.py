# SPDX-License-Identifier: GPL-2.0-or-later
"""The search finds better values, proves them with new samples, and leaves the rest alone."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from fusetune.bench.intervals import (
    Interval,
)
from fusetune.tuner.confirming import Proof
from fusetune.tuner.constants import BLOCK, LEAST_GAIN
from fusetune.tuner.grid import Setting
from fusetune.tuner.search import Search
from fusetune.tuner.space import Dimension
from tests.unit.simulated_host import AHEAD, BACKGROUND, RATIO, STRICT, Worth, drive, hump, stock

pytestmark = pytest.mark.slow


def flat(setting: Setting) -> float:
    return 100.0


# What is found


def test_unimodal_optimum_is_found() -> None:
    choice = drive(Search([AHEAD, RATIO], stock(AHEAD, RATIO), ["read"]), {"read": hump})
    assert choice.changed
    assert choice.setting["read_ahead_kb"] in {1024, 2048, 4096}
    assert choice.setting["max_ratio"] == 1
    assert choice.gain.low > 1
    truth = hump(choice.setting) / hump(stock(AHEAD))
    assert choice.gain.low <= truth <= choice.gain.high


def test_category_is_found() -> None:
    """And the other dimension, which has no effect, is mostly left alone."""
    alone = 0
    for seed in range(20):
        search = Search([STRICT, RATIO], stock(STRICT, RATIO), ["write"], seed)
        worth = {"write": lambda s: 1.3 if s["strict_limit"] == 0 else 1.0}
        choice = drive(search, worth, seed=seed)
        assert choice.setting["strict_limit"] == 0
        alone += choice.setting["max_ratio"] == 1
    assert alone >= 13


def test_two_that_only_help_together_are_found() -> None:
    ahead = Dimension(AHEAD.name, AHEAD.values, 128, interacts=("max_background",))

    def narrowest(s: Setting) -> float:
        return min(4.0, s["max_background"] / 12, max(s["read_ahead_kb"], 128) / 128)

    search = Search([ahead, BACKGROUND], stock(ahead, BACKGROUND), ["read"])
    choice = drive(search, {"read": narrowest})
    assert narrowest(choice.setting) >= 0.98 * 4.0


def test_cliff_is_not_crossed() -> None:
    def cliff(s: Setting) -> float:
        return (0.4 if s["max_ratio"] > 40 else 1.0) * (2 - 1 / s["max_ratio"])

    choice = drive(Search([RATIO], stock(RATIO), ["write"]), {"write": cliff}, noise=0.05)
    assert 5 <= choice.setting["max_ratio"] <= 40


def test_smaller_of_equal_values_wins() -> None:
    def plateau(s: Setting) -> float:
        return 2.0 if s["max_ratio"] >= 10 else 1.0

    for seed in range(5):
        search = Search([RATIO], stock(RATIO), ["write"], seed)
        choice = drive(search, {"write": plateau}, noise=0.005, seed=seed)
        assert choice.setting["max_ratio"] == 10


def test_a_gain_as_small_as_the_noise_is_found() -> None:
    """With the budget that is left once something is worth its proof; chance decides some."""

    def steps(s: Setting) -> float:
        return (2.0 if s["max_ratio"] >= 10 else 1.0) * (1.02 if s["max_ratio"] >= 70 else 1.0)

    found = 0
    for seed in range(60):
        search = Search([RATIO], stock(RATIO), ["write"], seed)
        found += drive(search, {"write": steps}, noise=0.02, seed=seed).setting["max_ratio"] >= 70
    assert found >= 51


def test_a_limit_is_preferred_to_a_switch() -> None:
    """Both gain the same: the switch is unchanged if the samples leave a doubt."""

    def either(s: Setting) -> float:
        return 2.0 if s["max_ratio"] >= 10 or not s["strict_limit"] else 1.0

    kept = 0
    for seed in range(16):
        search = Search([RATIO, STRICT], stock(RATIO, STRICT), ["write"], seed)
        chosen = drive(search, {"write": either}, noise=0.05, seed=seed).setting
        assert either(chosen) == 2.0
        kept += chosen["strict_limit"]
    assert kept >= 13


def test_stock_is_taken_where_it_beats_the_start() -> None:
    """Chance decides now and then: 2 % of memory is nearly as good as stock's 1 %."""

    def shy(s: Setting) -> float:
        return 1 / (1 + abs(math.log2((s["read_ahead_kb"] + 8) / 136)) / 9 + s["max_ratio"] / 300)

    taken = 0
    for seed in range(20):
        search = Search([AHEAD, RATIO], {"read_ahead_kb": 32768, "max_ratio": 100}, ["read"], seed)
        choice = drive(search, {"read": shy}, seed=seed)
        taken += choice.setting == stock(AHEAD, RATIO)
        assert choice.gain.low > 1
    assert taken >= 19


def test_drift_is_not_taken_for_a_gain() -> None:
    for seed in range(3):
        search = Search([AHEAD, RATIO], stock(AHEAD, RATIO), ["read"], seed)
        choice = drive(search, {"read": flat}, seed=seed, speed=lambda n: 1 + 0.01 * n)
        assert not choice.changed


def test_gain_is_found_through_drift() -> None:
    search = Search([AHEAD], stock(AHEAD), ["read"])
    choice = drive(
        search, {"read": hump}, speed=lambda n: (0.7 if n > 20 else 1.0) * math.exp(-0.004 * n)
    )
    assert hump(choice.setting) > 0.97 * 3
    truth = hump(choice.setting) / hump(stock(AHEAD))
    assert choice.gain.low <= truth <= choice.gain.high


# What is left alone


def test_flat_is_left_alone() -> None:
    changes = evaluations = 0
    for seed in range(200):
        noise = (0.02, 0.05, 0.15)[seed % 3]
        search = Search([RATIO], stock(RATIO), ["write"], seed)
        choice = drive(search, {"write": flat}, budget=40, noise=noise, seed=seed)
        changes += choice.changed
        evaluations += search.evaluations if noise == 0.02 else 0
    assert changes <= 2
    assert evaluations / 67 < 30  # ended early where the host is quiet


def test_gain_that_costs_another_workload_is_refused() -> None:
    worth: dict[str, Worth] = {
        "read": lambda s: 2.0 if s["max_ratio"] >= 10 else 1.0,
        "write": lambda s: 0.8 if s["max_ratio"] >= 10 else 1.0,
    }
    choice = drive(Search([RATIO], stock(RATIO), list(worth)), worth)
    assert choice.setting["max_ratio"] < 10


def test_gain_below_a_percent_moves_nothing() -> None:
    search = Search([STRICT], stock(STRICT), ["write"])
    choice = drive(
        search, {"write": lambda s: 1.004 if s["strict_limit"] == 0 else 1.0}, noise=0.001
    )
    assert not choice.changed


@pytest.mark.parametrize(
    ("gain", "write", "proven"),
    [
        (Interval(1.2, 1.1, 1.3), Interval(1.1, 0.9, 1.3), True),
        (Interval(1.2, 0.99, 1.4), Interval(1.1, 0.9, 1.3), False),  # may be no gain
        (Interval(1.005, 1.002, 1.008), Interval(1.0, 0.9, 1.1), False),  # not worth it
        (Interval(math.exp(LEAST_GAIN), 1.001, 1.02), Interval(1.0, 0.9, 1.1), True),
        (Interval(1.2, 1.1, 1.3), Interval(0.9, 0.81, 0.99), False),  # one workload loses
    ],
)
def test_proof_needs_a_sure_gain_that_hurts_no_workload(
    gain: Interval, write: Interval, proven: bool
) -> None:
    assert Proof((0,), gain, {"write": (1.0, 1.0, write)}).holds() is proven


def test_screening_holds_stock_and_joint_points() -> None:
    ahead = Dimension(AHEAD.name, AHEAD.values, 128, interacts=("max_background",))
    start = {"read_ahead_kb": 512, "max_background": 24, "max_ratio": 1}
    search = Search([ahead, BACKGROUND, RATIO], start, ["read"])
    for _ in range(14):
        search.ask(120 - search.evaluations)
        search.tell({"read": 1.0})
    tried = [t.setting for t in search.trials]
    assert stock(AHEAD, BACKGROUND, RATIO) in tried[:6]
    joint = [s for s in tried if s["read_ahead_kb"] > 512 and s["max_background"] > 24]
    assert any(s["max_ratio"] == 1 for s in joint)


def test_noisy_host_is_measured_more_often() -> None:
    def evaluations(noise: float) -> int:
        searches = [Search([RATIO], stock(RATIO), ["write"], seed) for seed in range(8)]
        for search in searches:
            drive(search, {"write": lambda s: 1.25 if s["max_ratio"] >= 10 else 1.0}, 150, noise)
        return sum(search.evaluations for search in searches)

    assert evaluations(0.15) > 1.5 * evaluations(0.01)


# Asking for permission before a proof


@pytest.mark.parametrize("seed", range(4))
def test_only_the_value_that_is_not_permitted_moves_back(seed: int) -> None:
    """Both values gain; together they were refused again and again, each time with one smaller."""
    search = Search([AHEAD, BACKGROUND], stock(AHEAD, BACKGROUND), ["read"], seed)
    draw, asked = random.Random(seed), []

    def permit(setting: Setting) -> bool:
        asked.append(setting)
        return setting["read_ahead_kb"] <= 512

    def speed(setting: Setting) -> float:
        return math.sqrt(setting["read_ahead_kb"]) * math.cbrt(setting["max_background"])

    search.permit = permit
    while (setting := search.ask(120 - search.evaluations)) is not None:
        search.tell({"read": (speed(setting) or 1.0) * math.exp(draw.gauss(0, 0.02))})
    chosen = search.choice().setting
    assert chosen["read_ahead_kb"] == 512
    assert chosen["max_background"] >= 128
    assert len(asked) <= 7


@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_permitted_is_measured_in_the_first_block_only(seed: int) -> None:
    search = Search([AHEAD, BACKGROUND], stock(AHEAD, BACKGROUND), ["read"], seed)
    search.permit = lambda setting: setting["read_ahead_kb"] <= 512
    draw, refused = random.Random(seed), 0
    while (setting := search.ask(120 - search.evaluations)) is not None:
        refused += setting["read_ahead_kb"] > 512
        assert setting["read_ahead_kb"] <= 512 or search.evaluations < BLOCK
        speed = math.sqrt(setting["read_ahead_kb"]) * math.cbrt(setting["max_background"])
        search.tell({"read": (speed or 1.0) * math.exp(draw.gauss(0, 0.02))})
    assert refused > 0
    assert search.evaluations > 2 * BLOCK


def test_only_what_is_blamed_moves_back_after_a_proof() -> None:
    search = Search([AHEAD, BACKGROUND], stock(AHEAD, BACKGROUND), ["read"])
    draw, refusals = random.Random(0), 0
    while refusals < 3:
        while (setting := search.ask(150 - search.evaluations)) is not None:
            speed = math.sqrt(setting["read_ahead_kb"] or 1) * math.cbrt(setting["max_background"])
            search.tell({"read": speed * math.exp(draw.gauss(0, 0.02))})
        chosen = search.choice().setting
        if chosen["read_ahead_kb"] <= 512:
            break
        refusals += 1
        search.refuse(["read_ahead_kb", "max_ratio"])
        without_the_other = search._grid.point(chosen | {"max_background": 12})
        assert without_the_other
        assert search._state.refused(without_the_other)
    assert refusals > 0
    assert chosen["max_background"] >= 96


# Passing over a setting that was not measured to its end


def test_what_is_passed_over_is_not_asked_for_again() -> None:
    search = Search([AHEAD], {"read_ahead_kb": 128}, ["read"])
    draw, passed, asked = random.Random(0), 0, 0
    while (setting := search.ask(120 - search.evaluations)) is not None:
        asked += 1
        if setting["read_ahead_kb"] > 512:
            passed += 1
            search.pass_over()
            continue
        speed = {128: 1.0, 256: 1.5, 512: 2.0}.get(setting["read_ahead_kb"], 0.5)
        search.tell({"read": speed * math.exp(draw.gauss(0, 0.02))})
    assert 1 <= passed <= 3  # each is nearer to the start than the one before
    assert asked == search.evaluations + passed
    assert search.choice().setting == {"read_ahead_kb": 512}


def test_what_the_last_search_passed_over_is_not_asked_for() -> None:
    passed = [{"read_ahead_kb": 1024}, {"read_ahead_kb": 1000}, {"max_background": 64}]
    search = Search([AHEAD], {"read_ahead_kb": 128}, ["read"], passed_over=passed)
    draw, asked = random.Random(0), set()
    while (setting := search.ask(60 - search.evaluations)) is not None:
        asked.add(setting["read_ahead_kb"])
        speed = 100 + setting["read_ahead_kb"]
        search.tell({"read": speed * math.exp(draw.gauss(0, 0.02))})
    assert max(asked) == 512
    assert search.choice().setting == {"read_ahead_kb": 512}


def test_stock_that_was_passed_over_is_left_out_of_the_proof() -> None:
    search = Search([AHEAD], {"read_ahead_kb": 512}, ["read"])
    draw, passed = random.Random(0), 0
    while (setting := search.ask(120 - search.evaluations)) is not None:
        if setting["read_ahead_kb"] <= 128:
            passed += 1
            search.pass_over()
            continue
        speed = 2.0 if setting["read_ahead_kb"] >= 2048 else 1.0
        search.tell({"read": speed * math.exp(draw.gauss(0, 0.02))})
    assert passed == 1  # stock, which is measured first
    assert search.choice().changed


def test_a_screening_that_was_broken_off_goes_on() -> None:
    """It has learnt enough from its points, so other points come first."""
    search = Search([AHEAD, BACKGROUND], stock(AHEAD, BACKGROUND), ["read"])
    asked: Counter[tuple[int, ...]] = Counter()
    while sum(asked.values()) < 6:
        setting = search.ask(120 - search.evaluations)
        assert setting
        if setting != stock(AHEAD, BACKGROUND):
            asked[tuple(setting.values())] += 1
        if setting != stock(AHEAD, BACKGROUND) and sum(asked.values()) == 4:
            search.pass_over()
        else:
            search.tell({"read": hump(setting)})
    assert max(asked.values()) == 1


def test_the_start_cannot_be_passed_over() -> None:
    search = Search([AHEAD], {"read_ahead_kb": 128}, ["read"])
    with pytest.raises(ValueError, match="needs an ask"):
        search.pass_over()
    while search.ask(20) != {"read_ahead_kb": 128}:
        search.tell({"read": 1.0})
    with pytest.raises(ValueError, match="another setting than the start"):
        search.pass_over()
