# SPDX-License-Identifier: GPL-2.0-or-later
"""Exploration measures the most promising points, and leaves enough budget for the proof."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from fusetune.bench.intervals import t_quantile
from fusetune.tuner import constants
from fusetune.tuner.exploring import Exploration
from fusetune.tuner.grid import Setting
from fusetune.tuner.model import Point
from fusetune.tuner.permission import Permission
from fusetune.tuner.safer import SaferValues
from fusetune.tuner.state import State
from tests.unit.simulated_host import AHEAD
from tests.unit.simulated_search import (
    POINT,
    RATIO,
    STRICT,
    Figure,
    measured,
    modelled,
    state,
)


def exploration_of(of: State) -> Exploration:
    return Exploration(of, SaferValues(of), Permission(of, lambda setting: True))


# What is proposed


def test_exploration_proposes_nothing_that_makes_a_workload_worse() -> None:
    of = state(RATIO, workloads=("read", "write"))

    def trade(s: Setting) -> dict[str, float]:
        much = s["max_ratio"] >= 10
        return {"read": 300.0 if much else 100.0, "write": 70.0 if much else 100.0}

    measured(exploration_of(of).run(), of, trade)
    assert of.model.count(POINT) + of.model.count((7,)) > 0  # such points were measured
    assert of.grid.setting(of.incumbent)["max_ratio"] < 10


@pytest.mark.parametrize(("loss", "bearable"), [(-0.1, True), (0.02, True), (0.03, False)])
def test_a_workload_may_suffer_within_its_own_doubt(loss: float, bearable: bool) -> None:
    """Of n workloads each has sqrt(n) times the deviation of their mean, here of 1.5 %."""
    of = state(RATIO, workloads=("read", "write"))

    def trade(s: Setting) -> dict[str, float]:
        much = s["max_ratio"] >= 10
        return {"read": 150.0 if much else 100.0, "write": math.exp(-loss * much)}

    modelled(of, trade, [(0,), POINT], count=2)
    assert of.contrast(POINT, (0,))[1] == pytest.approx(0.015, abs=1e-4)
    assert of.bearable(POINT) is bearable


# What is measured


def explored(points: list[Point], count: int, figure: Figure) -> Exploration:
    """An exploration of max_ratio after this many blocks of these points."""
    of = modelled(state(RATIO), figure, points, count)
    return exploration_of(of)


@pytest.mark.parametrize(("count", "beside"), [(1, True), (2, False)])
def test_a_new_incumbent_is_measured_beside_the_start_once_more(count: int, beside: bool) -> None:
    """Its only sample may be a hiccup of the host; the start itself promises nothing."""
    of = explored([(0,), POINT, (7,)], count, lambda s: {"read": 100.0 + s["max_ratio"]})
    of._state.incumbent = POINT
    candidates = of._candidates(4, constants.PROMISE)
    assert ((0,) in candidates) is beside
    assert len(candidates) == len(set(candidates)) <= 3


def test_neighbours_that_only_the_model_judged_are_measured_last() -> None:
    """The model expects nothing of a value between measured ones, where there is a peak."""
    every_other = [(i,) for i in (0, 1, 3, 4, 5, 6, 7)]
    of = modelled(
        state(RATIO), lambda s: {"read": 1.5 if s["max_ratio"] > 2 else 1}, every_other, 6
    )
    of.screened = True
    exploration = exploration_of(of)
    of.incumbent = exploration._propose()
    assert (of.incumbent, exploration._candidates(6, constants.PROMISE)) == ((3,), [])
    measured(exploration.run(), of, lambda s: {"read": 3.0 if s["max_ratio"] == 5 else 1.5})
    assert of.incumbent == (2,)


def test_a_gap_beside_a_valley_is_measured_for_a_setting_that_is_worth_its_proof() -> None:
    """The model expects nothing beside a bad value, but a peak can end there at a cliff."""
    peak = {512: 3.0, 2048: 0.5, 16384: 2.0, 32768: 2.0}

    def valley(s: Setting) -> dict[str, float]:
        return {"read": peak.get(s["read_ahead_kb"], 1.0)}

    known = [(AHEAD.values.index(value),) for value in (128, 2048, 16384, 32768)]
    of = modelled(state(AHEAD), valley, known, 6)
    of.screened = True
    exploration = exploration_of(of)
    measured(exploration.run(), of, valley)
    assert of.grid.setting(of.incumbent)["read_ahead_kb"] == 16384
    measured(exploration.refine(), of, valley)
    assert of.grid.setting(of.incumbent)["read_ahead_kb"] == 512


@pytest.mark.parametrize("gain", [0.0, 0.02, 0.05, 0.1])
def test_the_second_candidate_of_a_block_is_no_neighbour_of_the_first(gain: float) -> None:
    """A sample also informs about its neighbours, so the next one goes further away."""
    of = explored([(0,), (1,)], 1, lambda s: {"read": math.exp(gain * (s["max_ratio"] > 1))})
    (first,), (second,), *_ = of._candidates(4, constants.PROMISE)
    assert abs(first - second) > 1


THREE = (RATIO, STRICT, replace(RATIO, name="max_background"))


def screening(of: State, budget: int = 100) -> list[Point]:
    """Return what a screening asks for."""
    of.remaining = budget
    return measured(exploration_of(of)._screen(), of, lambda _: {"read": 1.0})


@pytest.mark.parametrize(("budget", "asked"), [(9, 0), (10, 2), (14, 6), (100, 6)])
def test_screening_takes_at_most_one_block_and_leaves_enough_for_a_proof(
    budget: int, asked: int
) -> None:
    of = state(*THREE)
    points = screening(of, budget)
    assert len(points) == asked
    assert {*points} <= {of.grid.start, *of.grid.points_together()}
    assert of.grid.start in points or not asked
    assert of.screened


def test_a_small_budget_has_far_values_of_two_interacting_dimensions() -> None:
    """Some gains show only with both; without them, a budget of bytes often ended too early."""
    two = (RATIO, replace(RATIO, name="other", interacts=("max_ratio",)))
    assert (7, 7) in screening(state(*two), 30)


def test_a_screening_whose_points_were_all_refused_measures_the_start() -> None:
    """Without any sample there is no model; then the neighbours of the start are candidates."""
    of = state(RATIO)
    of.refusals = [(2,)]
    assert screening(of) == [of.grid.start]
    asked = measured(exploration_of(of).run(), of, lambda _: {"read": 1.0})
    assert {*asked} == {of.grid.start, (1,)}


def test_a_step_measures_every_first_point_beside_the_start() -> None:
    of = state(*THREE, stepwise=True)
    points, wanted = screening(of), of.grid.points_alone()
    assert not any(all(point) for point in points)
    assert sorted(p for p in points if p != of.grid.start) == sorted(wanted)
    assert points.count(of.grid.start) == math.ceil(len(wanted) / (constants.BLOCK - 1))


@pytest.mark.parametrize(
    ("stepwise", "gain", "blocks"), [(True, 0.5, 1), (True, 0.1, 3), (False, 0.5, 3)]
)
def test_one_of_several_searches_ends_with_a_large_gain(
    stepwise: bool, gain: float, blocks: int
) -> None:
    """The next one is faster from there."""
    of = state(*THREE, stepwise=stepwise)

    def rising(s: Setting) -> dict[str, float]:
        return {"read": math.exp(gain * (s["max_ratio"] > 1))}

    asked = measured(exploration_of(of).run(), of, rising)
    assert of.grid.setting(of.incumbent)["max_ratio"] > 1
    first = 1 + len(of.grid.points_alone())
    assert (len(asked) == first) is (blocks == 1)
    assert blocks == 1 or len(asked) >= blocks * constants.BLOCK


def test_the_order_within_a_block_is_random() -> None:
    of = state(RATIO)
    points = [(0,), (3,), POINT, (7,)]
    orders = [measured(of.measure_block(points), of, lambda _: {"read": 1.0}) for _ in range(8)]
    assert all(sorted(order) == points for order in orders)
    assert len(set(map(tuple, orders))) > 1


# Points that are promising enough for the proof


@pytest.mark.parametrize(("gain", "promising"), [(0.005, False), (0.02, True), (-0.02, False)])
def test_a_gain_below_a_percent_is_not_put_to_the_proof(gain: float, promising: bool) -> None:
    of = modelled(
        state(RATIO), lambda s: {"read": math.exp(gain * (s["max_ratio"] > 1))}, [(0,), POINT], 6
    )
    assert of.promising(POINT) is promising
    assert not of.promising(of.grid.start)


def test_a_gain_in_doubt_is_not_put_to_the_proof() -> None:
    of = modelled(
        state(RATIO), lambda s: {"read": math.exp(0.05 * (s["max_ratio"] > 1))}, [(0,), (1,)], 1
    )
    mean, deviation = of.contrast((7,), (0,))
    assert constants.LEAST_GAIN < mean < deviation
    assert not of.promising((7,))


# Budget for the proof


@pytest.mark.parametrize(
    ("start", "incumbent", "remaining", "affordable"),
    [
        (1, 0, 9, 0),  # four pairs of two settings take eight, and a block needs two
        (1, 0, 10, 2),
        (1, 0, 50, 6),
        (10, 3, 10, 2),  # stock is the second setting
        (10, 5, 13, 0),  # the incumbent is a third
        (10, 5, 14, 2),
    ],
)
def test_the_fewest_pairs_are_left(
    start: int, incumbent: int, remaining: int, affordable: int
) -> None:
    of = state(RATIO, start={"max_ratio": start})
    of.incumbent, of.remaining = (incumbent,), remaining
    assert of.affordable(6) == affordable


@pytest.mark.parametrize(("remaining", "left"), [(20, 8), (25, 10), (30, 12), (100, 12)])
def test_more_is_left_where_an_incumbent_promises(remaining: int, left: int) -> None:
    """1.5 times as many pairs as it needs, but at most 40 % of the budget."""
    of = modelled(state(RATIO), lambda s: {"read": 99.0 + s["max_ratio"]}, [(0,), POINT])
    of.incumbent, of.evaluations, of.remaining = POINT, 0, remaining
    assert of.pairs_needed(of.incumbent) == constants.FEWEST_PAIRS
    assert of.affordable(remaining) == remaining - left


@pytest.mark.parametrize(("gain", "spare"), [(0.15, 0.0), (0.1, 0.0), (0.1, 2.0)])
def test_pairs_are_reckoned_by_the_interval_that_they_would_have(gain: float, spare: float) -> None:
    """The first analysis has half of the error; a pair has two samples' noise."""
    of = state(RATIO)
    deviation = math.sqrt(2) * of.model.noise

    def low(pairs: int) -> float:
        errors = t_quantile(constants.ERROR / 2, pairs - 1) + spare
        return gain - errors * deviation / math.sqrt(pairs)

    pairs = of.pairs_for(gain, spare, of.next_error())
    assert constants.FEWEST_PAIRS < pairs < constants.MOST_PAIRS
    assert low(pairs - 1) < 0 < low(pairs)


def test_a_smaller_gain_needs_more_pairs() -> None:
    draw = random.Random(1)

    def slightly(s: Setting) -> dict[str, float]:
        return {"read": math.exp(0.05 * (s["max_ratio"] > 1) + draw.gauss(0, 0.03))}

    of = modelled(state(RATIO), slightly, [(0,), POINT])
    assert of.pairs_needed(of.incumbent) == constants.FEWEST_PAIRS  # the start needs no proof
    of.incumbent = POINT
    assert of.pairs_needed(of.incumbent) > constants.FEWEST_PAIRS
    mean, _ = of.contrast(POINT, (0,))
    assert of.pairs_needed(of.incumbent) == of.pairs_for(mean, constants.POWER, constants.ERROR / 2)


def test_no_more_pairs_are_hoped_for_than_the_bound() -> None:
    assert state(RATIO).pairs_for(0.0, 0.0, constants.ERROR) == constants.MOST_PAIRS
