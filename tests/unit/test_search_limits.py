# SPDX-License-Identifier: GPL-2.0-or-later
"""The search reports what it did, keeps to its budget, and refuses bad arguments."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetune.bench.intervals import (
    Interval,
)
from fusetune.tuner.search import Search, Trial
from fusetune.tuner.space import Dimension
from tests.unit.simulated_host import AHEAD, BACKGROUND, RATIO, STRICT, Worth, drive, hump, stock

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
    assert strict.startswith("strict_limit: kept at 1, ")
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


@pytest.mark.slow
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
        ({}, "figures must be for"),
        ({"read": 1.0, "write": 1.0}, "figures must be for"),
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
