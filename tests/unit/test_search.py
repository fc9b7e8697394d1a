# SPDX-License-Identifier: GPL-2.0-or-later
"""The search finds what is better, proves it on fresh samples, and leaves the rest alone."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from statistics import NormalDist, fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetune.bench.intervals import (
    Interval,
    ratio_interval,
    t_probability,
    t_quantile,
    without_hiccups,
)
from fusetune.tuner.confirming import Proof
from fusetune.tuner.constants import LEAST_GAIN
from fusetune.tuner.grid import Setting
from fusetune.tuner.search import Choice, Search, Trial
from fusetune.tuner.space import Dimension

Worth = Callable[[Setting], float]

RATIO = Dimension("max_ratio", (1, 2, 5, 10, 20, 40, 70, 100), 1)
AHEAD = Dimension("read_ahead_kb", (0, *(32 << i for i in range(11))), 128)
BACKGROUND = Dimension("max_background", (12, 16, 24, 32, 48, 64, 96, 128, 256), 12)
STRICT = Dimension("strict_limit", (1, 0), 1, ordered=False)


def stock(*dimensions: Dimension) -> dict[str, int]:
    return {d.name: d.stock for d in dimensions}


def drive(
    search: Search,
    worth: Mapping[str, Worth],
    budget: int = 120,
    noise: float = 0.02,
    seed: int = 0,
    speed: Callable[[int], float] = lambda evaluation: 1.0,
) -> Choice:
    """Answer the search's questions from a simulated host until it has finished."""
    draw = random.Random(seed)
    while (setting := search.ask(budget - search.evaluations)) is not None:
        factor = speed(search.evaluations)
        search.tell(
            {n: f(setting) * factor * math.exp(draw.gauss(0, noise)) for n, f in worth.items()}
        )
    assert search.evaluations <= budget
    return search.choice()


def hump(setting: Setting) -> float:
    """Best at 2048 KiB, where it is worth 3 times the figure far off."""
    octaves = math.log2((setting["read_ahead_kb"] + 8) / (2048 + 8))
    return 1 + 2 * math.exp(-(octaves**2) / 8)


def flat(setting: Setting) -> float:
    return 100.0


# Statistics


@pytest.mark.parametrize(
    ("freedom", "error", "quantile"),
    [
        (1, 0.05, 12.706),  # two-sided 5 % and 1 % columns of the usual tables
        (2, 0.05, 4.303),
        (3, 0.01, 5.841),
        (4, 0.05, 2.776),
        (9, 0.05, 2.262),
        (10, 0.01, 3.169),
        (29, 0.05, 2.045),
        (120, 0.05, 1.980),
    ],
)
def test_t_quantile_agrees_with_the_tables(freedom: int, error: float, quantile: float) -> None:
    assert t_quantile(error, freedom) == pytest.approx(quantile, abs=6e-4)


@given(st.integers(1, 200), st.floats(1e-6, 0.999))
@settings(max_examples=50, deadline=None)
def test_t_quantile_inverts_the_probability(freedom: int, error: float) -> None:
    assert t_probability(t_quantile(error, freedom), freedom) == pytest.approx(1 - error, abs=1e-6)


def test_t_tends_to_the_normal() -> None:
    assert t_quantile(0.05, 2001) == pytest.approx(NormalDist().inv_cdf(0.975), abs=2e-3)


@pytest.mark.parametrize(("error", "freedom"), [(0.0, 3), (1.0, 3), (0.05, 0)])
def test_t_quantile_refuses_what_has_none(error: float, freedom: int) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(error, freedom)


def test_interval_of_known_differences() -> None:
    # mean 0.2, standard deviation 0.1, n = 4: half width 3.1824 * 0.1 / 2
    differences = [0.2 + 0.1 * x for x in (-1.22474487, 0, 0, 1.22474487)]
    interval = ratio_interval(differences, 0.05, noise=1.0)
    assert math.log(interval.ratio) == pytest.approx(0.2)
    assert math.log(interval.high) == pytest.approx(0.2 + 0.15912, abs=1e-4)
    assert math.log(interval.low) == pytest.approx(0.2 - 0.15912, abs=1e-4)


def test_interval_needs_two_pairs() -> None:
    with pytest.raises(ValueError, match="two pairs"):
        ratio_interval([0.1], 0.05, 1.0)


def test_interval_covers_as_often_as_it_says() -> None:
    draw = random.Random(1)
    missed = 0
    for _ in range(2000):
        differences = [
            draw.gauss(0.1, 0.05) - (0.7 if draw.random() < 0.02 else 0.0) for _ in range(8)
        ]
        interval = ratio_interval(differences, 0.05, noise=0.05)
        missed += not interval.low <= math.exp(0.1) <= interval.high
    assert missed / 2000 < 0.065  # 0.05 and three standard errors


def test_one_hiccup_in_five_is_left_out_and_two_are_not() -> None:
    calm = [0.10, 0.11, 0.09, 0.10, 0.12, 0.10, 0.08, 0.11]
    assert without_hiccups([*calm, -0.6], noise=0.02) == calm
    shaken = [0.10, 0.11, 0.09, -0.6, 0.8]
    assert without_hiccups(shaken, noise=0.02) == shaken


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.floats(0.001, 0.5))
@settings(max_examples=100, deadline=None)
def test_interval_holds_its_own_ratio(differences: list[float], noise: float) -> None:
    interval = ratio_interval(differences, 0.05, noise)
    assert 0 < interval.low <= interval.ratio <= interval.high
    wider = ratio_interval(differences, 0.01, noise)
    assert wider.low <= interval.low
    assert wider.high >= interval.high


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
    search = Search([STRICT, RATIO], stock(STRICT, RATIO), ["write"])
    choice = drive(search, {"write": lambda s: 1.3 if s["strict_limit"] == 0 else 1.0})
    assert choice.setting == {"strict_limit": 0, "max_ratio": 1}


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


def test_a_limit_is_preferred_to_a_switch() -> None:
    """Both bring the same: the switch stays where the samples leave it in doubt."""

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
    search = Search([AHEAD, RATIO], {"read_ahead_kb": 32768, "max_ratio": 100}, ["read"])

    def shy(s: Setting) -> float:
        return 1 / (1 + abs(math.log2((s["read_ahead_kb"] + 8) / 136)) / 9 + s["max_ratio"] / 300)

    choice = drive(search, {"read": shy})
    assert choice.setting == stock(AHEAD, RATIO)
    assert choice.gain.low > 1


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
    assert evaluations / 67 < 30  # settled early where the host is quiet


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
        search = Search([RATIO], stock(RATIO), ["write"])
        drive(search, {"write": lambda s: 1.25 if s["max_ratio"] >= 10 else 1.0}, 150, noise)
        return search.evaluations

    assert evaluations(0.15) > 1.5 * evaluations(0.01)


# What is reported


def test_gain_comes_from_fresh_samples_of_each_workload() -> None:
    worth: dict[str, Worth] = {"read": hump, "write": lambda s: hump(s) ** 0.5}
    search = Search([AHEAD], stock(AHEAD), list(worth))
    choice = drive(search, worth)
    assert set(choice.per_workload) == {"read", "write"}
    logs = []
    for before, after, ratio in choice.per_workload.values():
        assert after / before == pytest.approx(ratio.ratio, rel=0.02)
        assert ratio.low <= ratio.ratio <= ratio.high
        logs.append(math.log(ratio.ratio))
    assert math.log(choice.gain.ratio) == pytest.approx(fmean(logs), abs=0.01)
    chosen = next(t for t in search.trials if t.setting == choice.setting)
    before, after, _ = choice.per_workload["read"]
    pooled = math.exp(fmean(math.log(s["read"]) for s in chosen.samples))
    assert after != pytest.approx(pooled, rel=1e-9)  # exploration's samples are not among them


def test_reasons_name_each_dimension_and_what_became_of_it() -> None:
    search = Search([AHEAD, STRICT], stock(AHEAD, STRICT), ["read"])
    before = search.choice().reasons
    assert all("nothing was measured" in reason for reason in before)
    choice = drive(search, {"read": lambda s: hump(s) * (0.5 if s["strict_limit"] == 0 else 1.0)})
    ahead, strict = choice.reasons
    assert ahead.startswith(f"read_ahead_kb: 128 -> {choice.setting['read_ahead_kb']}, ")
    assert strict.startswith("strict_limit: left at 1, ")
    assert "worse" in strict


def test_trials_hold_every_sample_in_order() -> None:
    search = Search([RATIO], stock(RATIO), ["write"])
    told: list[tuple[dict[str, int], float]] = []
    while (setting := search.ask(20 - search.evaluations)) is not None:
        told.append((setting, 1.0 + len(told)))
        search.tell({"write": told[-1][1]})
    for trial in search.trials:
        assert isinstance(trial, Trial)
        expected = tuple({"write": figure} for s, figure in told if s == trial.setting)
        assert trial.samples == expected
    assert sum(len(t.samples) for t in search.trials) == search.evaluations == len(told)


# Budget and interruption


@given(st.integers(0, 60), st.sampled_from([0.02, 0.15]), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_budget_is_respected(budget: int, noise: float, seed: int) -> None:
    search = Search([AHEAD, STRICT], stock(AHEAD, STRICT), ["read"], seed)
    choice = drive(search, {"read": hump}, budget, noise, seed)
    assert search.ask(0) is None
    if choice.changed:
        assert choice.gain.low > 1


def test_twelve_evaluations_can_be_enough() -> None:
    search = Search([RATIO], stock(RATIO), ["write"])
    choice = drive(search, {"write": lambda s: 3.0 if s["max_ratio"] > 1 else 1.0}, budget=12)
    assert choice.changed


def test_interrupted_anywhere_only_the_proven_is_chosen() -> None:
    full = Search([AHEAD, STRICT], stock(AHEAD, STRICT), ["read"])
    draw = random.Random(3)
    seen_change = False
    while (setting := full.ask(60 - full.evaluations)) is not None:
        full.tell({"read": hump(setting) * math.exp(draw.gauss(0, 0.02))})
        choice = full.choice()
        if choice.changed:
            seen_change = True
            assert choice.gain.low > 1
        else:
            assert choice.setting == stock(AHEAD, STRICT)
            assert choice.gain == Interval(1.0, 1.0, 1.0)
            assert choice.per_workload == {}
    assert seen_change
    confirming = [len(t.samples) for t in full.trials if t.setting == full.choice().setting]
    assert confirming[0] >= 4


def test_budget_that_shrinks_and_grows() -> None:
    search = Search([AHEAD], stock(AHEAD), ["read"])
    draw = random.Random(4)
    sizes = [100, 50, 0, 80, 3, 0, 60]
    answered = 0
    for size in sizes * 20:
        setting = search.ask(size)
        assert size > 0 or setting is None
        if setting is not None:
            search.tell({"read": hump(setting) * math.exp(draw.gauss(0, 0.02))})
            answered += 1
    assert search.evaluations == answered > 0


def test_asking_again_gives_the_same_setting() -> None:
    search = Search([AHEAD], stock(AHEAD), ["read"])
    assert search.ask(50) == search.ask(50) is not None


def test_same_seed_same_run_and_other_seed_another() -> None:
    def settings_asked(seed: int) -> list[dict[str, int]]:
        search = Search([AHEAD, BACKGROUND], stock(AHEAD, BACKGROUND), ["read"], seed)
        asked = []
        while (setting := search.ask(40 - search.evaluations)) is not None:
            asked.append(setting)
            search.tell({"read": hump(setting)})
        return asked

    assert settings_asked(1) == settings_asked(1)
    assert settings_asked(1) != settings_asked(2)


# Bad arguments


def test_start_and_stock_join_the_candidates() -> None:
    search = Search([Dimension("k", (10, 20, 40), 15)], {"k": 30}, ["read"])
    drive(search, {"read": lambda s: 2.0 if s["k"] == 15 else 1.0})
    assert {t.setting["k"] for t in search.trials} <= {10, 15, 20, 30, 40}
    assert search.choice().setting == {"k": 15}


def test_interaction_with_what_is_not_searched_is_ignored() -> None:
    dimension = Dimension("k", (1, 2), 1, interacts=("elsewhere",))
    assert Search([dimension], {"k": 1}, ["read"]).ask(20) is not None


@pytest.mark.parametrize(
    ("dimensions", "start", "workloads", "message"),
    [
        ([RATIO], {}, ["read"], "start must name"),
        ([RATIO], {"max_ratio": 1, "other": 2}, ["read"], "start must name"),
        ([RATIO, RATIO], {"max_ratio": 1}, ["read"], "named twice"),
        ([RATIO], {"max_ratio": 1}, [], "workloads"),
        ([RATIO], {"max_ratio": 1}, ["read", "read"], "workloads"),
        ([Dimension("k", (), 1)], {"k": 1}, ["read"], "values of k"),
        ([Dimension("k", (1, 1), 1)], {"k": 1}, ["read"], "values of k"),
        ([Dimension("k", (1, 2), 1, interacts=("k",))], {"k": 1}, ["read"], "itself"),
    ],
)
def test_bad_arguments(
    dimensions: list[Dimension], start: dict[str, int], workloads: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Search(dimensions, start, workloads)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"read": 0.0}, "above 0"),
        ({"read": -1.0}, "above 0"),
        ({"read": math.nan}, "above 0"),
        ({"read": math.inf}, "above 0"),
        ({}, "figures wanted"),
        ({"read": 1.0, "write": 1.0}, "figures wanted"),
    ],
)
def test_bad_figures(figures: dict[str, float], message: str) -> None:
    search = Search([RATIO], stock(RATIO), ["read"])
    search.ask(50)
    with pytest.raises(ValueError, match=message):
        search.tell(figures)


def test_tell_without_ask() -> None:
    search = Search([RATIO], stock(RATIO), ["read"])
    with pytest.raises(ValueError, match="needs an ask"):
        search.tell({"read": 1.0})
    search.ask(50)
    search.tell({"read": 1.0})
    with pytest.raises(ValueError, match="needs an ask"):
        search.tell({"read": 1.0})
