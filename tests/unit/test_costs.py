# SPDX-License-Identifier: GPL-2.0-or-later
"""What settings cost: ratios of CPU time, ties, limits, and gains that are not worth it."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from fusetune.bench.intervals import Interval
from fusetune.bench.usage import Cpu, Usage
from fusetune.bench.workloads import WORKLOADS
from fusetune.tuner.confirming import Blocks, Confirmation
from fusetune.tuner.costs import UNKNOWN, UNLIMITED, Cost, Costs, Limits
from fusetune.tuner.grid import Setting
from fusetune.tuner.model import Point
from fusetune.tuner.safer import SaferValues
from fusetune.tuner.search import Choice, Search
from tests.unit.simulated_host import AHEAD, BACKGROUND, RATIO, drive, stock
from tests.unit.simulated_search import measured, modelled, state

A, B, C = (0,), (1,), (2,)


def costs(
    seconds: dict[Point, float], limits: Limits = UNLIMITED, count: int = 4, spread: float = 0.05
) -> Costs:
    """Samples that scatter by ``spread`` around these CPU times."""
    made = Costs(A, limits)
    for point, mean in seconds.items():
        for n in range(count):
            made.add(point, Cost(mean * math.exp(spread if n % 2 else -spread), int(100 * mean)))
    return made


def test_a_cost_is_the_weighted_geometric_mean_over_the_workloads() -> None:
    one = Usage(False, 1.0, Cpu(1), Cpu(1), 7)
    other = Usage(True, 2.0, Cpu(8), Cpu(8), 5)
    workloads = [WORKLOADS["mixed"], replace(WORKLOADS["metadata"], weight=3.0)]
    cost = Cost.of({"mixed": one, "metadata": other}, workloads)
    assert cost.cpu_seconds == pytest.approx((2 * 8**3) ** 0.25)
    assert cost.memory_bytes == 7
    for unknown in (replace(other, server=None), replace(other, work=0.0)):
        assert Cost.of({"mixed": one, "metadata": unknown}, workloads).cpu_seconds is None
    lacking = {"mixed": one, "metadata": replace(other, memory_bytes=None)}
    assert Cost.of(lacking, workloads).memory_bytes is None


def test_less_than_a_clock_tick_of_cpu_time_is_not_unknown() -> None:
    tick = 1 / os.sysconf("SC_CLK_TCK")
    for client in (Cpu(), Cpu(user=tick / 2)):
        idle = Usage(True, 2.0, client, Cpu(), 5)
        cost = Cost.of({"metadata": idle}, [WORKLOADS["metadata"]])
        assert cost.cpu_seconds == pytest.approx(tick / 2.0)
        Limits(cpu_ratio=2.0).check(cost)


def test_the_ratio_of_cpu_times_has_an_interval() -> None:
    ratio = costs({A: 1.0, B: 2.0}).ratio(B, A)
    assert ratio
    assert ratio.ratio == pytest.approx(2.0)
    # The pooled deviation of 8 samples of 2 points, and Student's t for 6 degrees of freedom.
    half = 2.4469 * 0.05 * math.sqrt(8 / 6) * math.sqrt(2 / 4)
    assert ratio.low == pytest.approx(2 * math.exp(-half), rel=1e-4)
    assert ratio.high == pytest.approx(2 * math.exp(half), rel=1e-4)


def test_the_scatter_of_all_settings_serves_one_with_a_single_sample() -> None:
    of = costs({A: 1.0, B: 2.0})
    of.add(C, Cost(0.5))
    assert of.cheaper(C, A)
    assert not of.cheaper(A, C)


def test_a_hiccup_of_the_host_counts_for_nothing() -> None:
    of, without = costs({A: 1.0, B: 2.0}), costs({A: 1.0, B: 2.0})
    of.add(B, Cost(90.0))
    assert of.ratio(B, A) == without.ratio(B, A)
    of.add(C, Cost(9.0))
    of.add(C, Cost(900.0))  # which of them is an outlier is not known
    assert of.ratio(C, A) is None


def test_without_samples_nothing_is_known() -> None:
    assert costs({A: 1.0}).ratio(B, A) is None
    assert costs({A: 1.0, B: 9.0}, count=2).ratio(B, A) is None  # two degrees of freedom
    of = Costs(A, UNLIMITED)
    of.add(A, UNKNOWN)
    assert of.ratio(A, A) is None
    assert not of.cheaper(A, A)


@pytest.mark.parametrize(
    ("seconds", "cheapest"),
    [
        ({A: 1.0, B: 1.0, C: 1.0}, A),
        ({A: 1.0, B: 0.95, C: 0.92}, A),  # too little
        ({A: 1.0, B: 0.5, C: 0.5}, B),
        ({A: 1.0, B: 0.5, C: 0.2}, C),
    ],
)
def test_the_first_of_equals_unless_another_is_cheaper(
    seconds: dict[Point, float], cheapest: Point
) -> None:
    assert costs(seconds, spread=0.01).cheapest([A, B, C]) == cheapest


def test_what_may_be_chance_is_not_cheaper() -> None:
    assert not costs({A: 1.0, B: 0.85}, spread=0.2).cheaper(B, A)


@pytest.mark.parametrize(
    ("ratio", "gain", "spread", "dear"),
    [
        (2.1, 1.03, 0.05, True),
        (2.1, 1.09, 0.05, True),
        (2.1, 1.11, 0.05, False),
        (1.9, 1.03, 0.05, False),
        (2.1, 1.03, 0.9, False),  # not proven to cost more at all
    ],
)
def test_a_small_gain_is_not_worth_twice_the_cpu_time(
    ratio: float, gain: float, spread: float, dear: bool
) -> None:
    of = costs({A: 1.0, B: ratio}, spread=spread)
    why = of.why_too_dear(B, A, Interval(gain, gain, gain))
    assert (why is not None) == dear
    if why:
        assert why.startswith(f"a gain of {gain:.2f} [")
        assert " is not worth 2.10 [" in why


def test_limits_are_broken_by_what_is_proven_or_seen() -> None:
    of = costs({A: 1.0, B: 2.0}, Limits(cpu_ratio=1.5))
    assert "needs 2.00 [" in str(of.over_limit(B, proven=False))
    assert of.over_limit(A, proven=True) is None
    within = costs({A: 1.0, B: 2.0}, Limits(cpu_ratio=1.95))  # it may be below
    assert within.over_limit(B, proven=True) is None
    of = costs({A: 1.0, B: 2.0}, Limits(memory_bytes=199))
    assert "--max-memory" in str(of.over_limit(B, proven=False))
    assert costs({A: 1.0, B: 2.0}, Limits(memory_bytes=200)).over_limit(B, proven=True) is None


@pytest.mark.parametrize("limits", [Limits(cpu_ratio=9.0), Limits(memory_bytes=1 << 40)])
def test_what_is_not_known_breaks_a_limit_only_once_it_is_proven(limits: Limits) -> None:
    of = costs({A: 1.0}, limits)
    assert of.over_limit(B, proven=False) is None
    assert of.over_limit(B, proven=True) == "its cost is unknown"
    assert costs({A: 1.0}).over_limit(B, proven=True) is None


def test_the_start_breaks_no_limit() -> None:
    assert costs({A: 9.0}, Limits(memory_bytes=1)).over_limit(A, proven=True) is None


# In the search


def cpu(seconds: Callable[[Setting], float], memory: int | None = 5) -> Callable[[Setting], Cost]:
    draw = random.Random(4)
    return lambda setting: Cost(seconds(setting) * math.exp(draw.gauss(0, 0.02)), memory)


def plateau(setting: Setting) -> float:
    return 200.0 if setting["max_ratio"] >= 5 else 100.0


def test_of_equal_values_the_cheaper_wins_over_the_smaller() -> None:
    def half_above_ten(setting: Setting) -> float:
        return 0.5 if setting["max_ratio"] > 10 else 1.0

    of = modelled(state(RATIO), lambda s: {"read": plateau(s)}, [(i,) for i in range(8)])
    assert of.grid.setting(SaferValues(of).than((7,))) == {"max_ratio": 5}
    for i in range(8):
        for spread in (-0.02, 0.02, 0.0):
            seconds = half_above_ten(of.grid.setting((i,))) * math.exp(spread)
            of.costs.add((i,), Cost(seconds))
    for best in (2, 7):
        assert of.grid.setting(SaferValues(of).than((best,))) == {"max_ratio": 20}
    of.rejected.add((4,))
    assert of.grid.setting(SaferValues(of).than((7,))) == {"max_ratio": 40}


@pytest.mark.parametrize(("factor", "wanted"), [(1.0, 12), (0.5, 96), (2.0, 12)])
def test_a_change_that_gains_nothing_stays_if_it_is_cheaper(factor: float, wanted: int) -> None:
    of = state(RATIO, BACKGROUND)
    points = [(i, j) for i in (0, 4) for j in (0, 6)]
    modelled(of, lambda s: {"read": 100.0 + s["max_ratio"]}, points)
    for point in points:
        for spread in (-0.02, 0.02, 0.0):
            of.costs.add(point, Cost((factor if point[1] else 1.0) * math.exp(spread)))
    chosen = of.grid.setting(SaferValues(of).than((4, 6)))
    assert chosen == {"max_ratio": 20, "max_background": wanted}


@pytest.mark.parametrize(("factor", "back"), [(1.0, False), (2.5, True)])
def test_a_change_that_gains_a_little_goes_back_if_it_costs_much(factor: float, back: bool) -> None:
    of = state(RATIO, BACKGROUND)
    points = [(i, j) for i in (0, 4) for j in (0, 6)]
    modelled(of, lambda s: {"read": plateau(s) * (1.05 if s["max_background"] > 12 else 1)}, points)
    for point in points:
        for spread in (-0.02, 0.02, 0.0):
            of.costs.add(point, Cost((factor if point[1] else 1.0) * math.exp(spread)))
    assert (SaferValues(of).than((4, 6))[1] == 0) == back
    assert ((4, 6) in of.rejected) == back


def test_a_gain_that_may_be_greater_is_not_rejected() -> None:
    of = state(RATIO, BACKGROUND)
    points = [(i, j) for i in (0, 4) for j in (0, 6)]
    draw = random.Random(1)

    def noisy(setting: Setting) -> dict[str, float]:
        gain = 1.11 if setting["max_background"] > 12 else 1.0
        return {"read": plateau(setting) * gain * math.exp(draw.gauss(0, 0.03))}

    modelled(of, noisy, points)
    for point in points:
        for spread in (-0.02, 0.02, 0.0):
            of.costs.add(point, Cost((2.5 if point[1] else 1.0) * math.exp(spread)))
    gain = of.ratio((4, 6), (4, 0))
    assert gain.ratio < 1.1 < gain.high
    SaferValues(of).than((4, 6))
    assert not of.rejected


def test_what_turns_out_too_dear_is_proven_no_longer() -> None:
    of = state(RATIO)
    confirmation, point = Confirmation(of), (5,)
    blocks: Blocks = [
        {(0,): {"read": 100.0}, point: {"read": by}} for by in (105.0, 105.2, 104.8, 105.1)
    ]
    assert confirmation.analyse(blocks, point)
    assert confirmation.proof
    for p, seconds in (((0,), 1.0), (point, 2.5)):
        for spread in (-0.02, 0.02, 0.0):
            of.costs.add(p, Cost(seconds * math.exp(spread)))
    assert confirmation.analyse(blocks, point)  # and it is hopeless
    assert confirmation.proof is None
    assert point in of.rejected


@pytest.mark.parametrize(("cheaper", "wanted"), [(None, 1), ("stock", 1), ("point", 40)])
def test_stock_wins_where_as_good_unless_the_point_is_cheaper(
    cheaper: str | None, wanted: int
) -> None:
    of = state(RATIO, start={"max_ratio": 10})
    confirmation = Confirmation(of)
    point = (5,)
    for p, name in (((0,), "stock"), (point, "point"), ((3,), "start")):
        for spread in (-0.02, 0.02, 0.0):
            of.costs.add(p, Cost((0.5 if name == cheaper else 1.0) * math.exp(spread)))
    measured(confirmation.run(point), of, lambda s: {"read": 50.0 if s["max_ratio"] == 10 else 100})
    assert confirmation.proof
    assert of.grid.setting(confirmation.proof.point) == {"max_ratio": wanted}


def searched(
    gain: float, seconds: float, limits: Limits = UNLIMITED, memory: int | None = 5
) -> tuple[Choice, Search]:
    """Search if every higher max_ratio has this gain and this additional cost."""
    search = Search([RATIO], stock(RATIO), ["write"], limits=limits)

    def cost(setting: Setting) -> float:
        return seconds if setting["max_ratio"] > 1 else 1.0

    worth = {"write": lambda s: gain * 100.0 if s["max_ratio"] > 1 else 100.0}
    return drive(search, worth, noise=0.01, cost=cpu(cost, memory)), search


@pytest.mark.parametrize(
    ("gain", "seconds", "changed"),
    [(1.05, 1.0, True), (1.05, 2.5, False), (1.05, 1.5, True), (1.5, 2.5, True)],
)
def test_a_small_gain_that_doubles_the_cpu_time_is_not_taken(
    gain: float, seconds: float, changed: bool
) -> None:
    choice, search = searched(gain, seconds)
    assert choice.changed == changed
    assert len(search.refused) == (not changed)
    for setting, why in search.refused:
        assert setting["max_ratio"] > 1
        assert why.startswith("a gain of 1.0")


@pytest.mark.parametrize(
    ("limits", "memory", "changed"),
    [
        (Limits(cpu_ratio=2.0), 5, False),
        (Limits(cpu_ratio=3.0), 5, True),
        (Limits(memory_bytes=4), 5, False),
        (Limits(memory_bytes=5), 5, True),
        (Limits(memory_bytes=5), None, False),
    ],
)
def test_a_great_gain_that_breaks_a_limit_is_not_taken(
    limits: Limits, memory: int | None, changed: bool
) -> None:
    choice, search = searched(3.0, 2.5, limits, memory)
    assert choice.changed == changed
    assert bool(search.refused) == (not changed)


def test_a_smaller_value_within_the_limit_is_found() -> None:
    search = Search([AHEAD], stock(AHEAD), ["read"], limits=Limits(cpu_ratio=2.0))
    cost = cpu(lambda s: 4.0 if s["read_ahead_kb"] > 1024 else 1.0)
    choice = drive(search, {"read": lambda s: (s["read_ahead_kb"] + 8) ** 0.5}, cost=cost)
    assert 128 < choice.setting["read_ahead_kb"] <= 1024
    assert search.refused
    assert all(setting["read_ahead_kb"] > 1024 for setting, _ in search.refused)
