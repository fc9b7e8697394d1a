# SPDX-License-Identifier: GPL-2.0-or-later
"""The guarantees of the search, stage by stage, on simulated figures.

What each shows fails if the guarantee is dropped: the error is shared over interim analyses and
rivals, drift cancels, few pairs prove nothing, stock wins ties, no workload is sacrificed, hopeless
points are given up and not tried again, and switches are put back where a limit does as well.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from fusetune.bench.intervals import ratio_interval
from fusetune.tuner import constants
from fusetune.tuner.confirming import Blocks, Confirmation
from fusetune.tuner.exploring import Exploration
from fusetune.tuner.grid import Grid, Setting
from fusetune.tuner.model import Point
from fusetune.tuner.safer import SaferValues
from fusetune.tuner.search import Search
from fusetune.tuner.space import Dimension
from fusetune.tuner.state import State, Steps, error_of_analysis

Figure = Callable[[Setting], dict[str, float]]

RATIO = Dimension("max_ratio", (1, 2, 5, 10, 20, 40, 70, 100), 1)
STRICT = Dimension("strict_limit", (1, 0), 1, ordered=False, interacts=("max_ratio",))
STOCK, START, POINT = (0,), (3,), (5,)


def state(
    *dimensions: Dimension, start: Setting | None = None, workloads: tuple[str, ...] = ("read",)
) -> State:
    """A search's state before its first sample."""
    values = {d.name: d.stock for d in dimensions}
    made = State(Grid(dimensions, start or values), workloads, seed=0)
    made.remaining = 100
    return made


def started_elsewhere(workloads: tuple[str, ...] = ("read",)) -> State:
    """A search of max_ratio that starts at `START`, not at stock."""
    return state(RATIO, start={"max_ratio": 10}, workloads=workloads)


def measured(steps: Steps, of: State, figure: Figure) -> list[Point]:
    """Run steps to their end with these figures; return the points asked for."""
    asked: list[Point] = []
    try:
        point = next(steps)
        while True:
            asked.append(point)
            of.evaluations += 1
            of.remaining -= 1
            point = steps.send(figure(of.grid.setting(point)))
    except StopIteration:
        return asked


def blocks(
    log_ratios: dict[Point, tuple[float, ...]], count: int = 6, spread: float = 0.01
) -> Blocks:
    """Blocks with the start at 100 and points at log ratios to it, one for each workload."""
    names = ("read", "write")
    made: Blocks = []
    for n in range(count):
        wobble = spread if n % 2 else -spread
        made.append({START: dict.fromkeys(names, 100.0)})
        for point, logs in log_ratios.items():
            figures = [100 * math.exp(log + wobble) for log in logs]
            made[-1][point] = dict(zip(names, figures, strict=False))
    return made


# The error


def test_the_error_of_all_analyses_together_is_the_whole() -> None:
    shares = [error_of_analysis(number) for number in range(1, 2000)]
    assert sum(shares) == pytest.approx(constants.ERROR, rel=1e-3)
    assert sum(shares) <= constants.ERROR


def test_a_later_analysis_has_a_wider_interval() -> None:
    confirmation = Confirmation(started_elsewhere())
    widths = []
    for _ in range(3):
        confirmation.analyse(blocks({POINT: (0.2,), STOCK: (0.0,)}), POINT)
        assert confirmation.proof
        widths.append(confirmation.proof.gain.high / confirmation.proof.gain.low)
    assert widths == sorted(set(widths))


@pytest.mark.parametrize("rivals", [1, 2])
def test_rivals_of_the_start_share_the_error(rivals: int) -> None:
    """With the start at stock there is one rival, else two, each with half of the error."""
    of = started_elsewhere()
    if rivals == 1:
        of.grid.stock = START
    confirmation = Confirmation(of)
    shown = blocks({POINT: (0.2,), STOCK: (0.0,)})
    assert confirmation.analyse(shown, POINT)
    differences = [math.log(b[POINT]["read"] / b[START]["read"]) for b in shown]
    error = constants.ERROR / 2 / rivals
    noise = math.sqrt(2) * of.model.noise
    wanted = ratio_interval(differences, error, noise)
    assert confirmation.proof
    assert confirmation.proof.gain.low == pytest.approx(wanted.low)
    assert confirmation.proof.gain.high == pytest.approx(wanted.high)


# The blocks


def test_the_order_is_reversed_from_block_to_block() -> None:
    of = started_elsewhere()
    asked = measured(Confirmation(of).run(POINT), of, lambda _: {"read": 100.0})
    assert len(set(asked[:3])) == 3
    assert asked[3:6] == asked[2::-1]
    assert asked[6:9] == asked[:3]


def test_a_steady_drift_is_no_gain() -> None:
    of = state(RATIO)
    speed = iter(math.exp(0.05 * n) for n in range(1000))
    confirmation = Confirmation(of)
    measured(confirmation.run(POINT), of, lambda _: {"read": 100.0 * next(speed)})
    assert confirmation.proof is None


def test_no_gain_is_proven_by_fewer_than_four_pairs() -> None:
    """However clear it is: two pairs that agree by chance have an interval of no width."""
    of = state(RATIO)
    confirmation = Confirmation(of)
    asked = measured(confirmation.run(POINT), of, lambda s: {"read": 99.0 + s["max_ratio"]})
    assert confirmation.proof
    assert asked.count(POINT) == asked.count(of.grid.start) == 4


# The decision


def test_stock_wins_where_it_is_as_good_as_the_incumbent() -> None:
    confirmation = Confirmation(started_elsewhere())
    assert confirmation.analyse(blocks({POINT: (0.203,), STOCK: (0.2,)}), POINT)
    assert confirmation.proof
    assert confirmation.proof.point == STOCK


def test_the_incumbent_wins_where_it_is_better_than_stock() -> None:
    confirmation = Confirmation(started_elsewhere())
    assert confirmation.analyse(blocks({POINT: (0.25,), STOCK: (0.2,)}), POINT)
    assert confirmation.proof
    assert confirmation.proof.point == POINT


def test_a_point_that_makes_a_workload_worse_is_given_up() -> None:
    """Its mean gain is 1.2, but writes fall: no proof, and no more samples."""
    confirmation = Confirmation(started_elsewhere(("read", "write")))
    assert confirmation.analyse(blocks({POINT: (0.5, -0.1), STOCK: (0.0, 0.0)}), POINT)
    assert confirmation.proof is None


def test_what_is_neither_proven_nor_hopeless_goes_on() -> None:
    confirmation = Confirmation(started_elsewhere())
    shown = blocks({POINT: (0.05,), STOCK: (0.0,)}, count=4, spread=0.06)
    assert not confirmation.analyse(shown, POINT)
    assert confirmation.proof is None


def test_exploration_proposes_nothing_that_makes_a_workload_worse() -> None:
    of = state(RATIO, workloads=("read", "write"))

    def trade(s: Setting) -> dict[str, float]:
        much = s["max_ratio"] >= 10
        return {"read": 300.0 if much else 100.0, "write": 70.0 if much else 100.0}

    measured(Exploration(of, SaferValues(of)).run(), of, trade)
    assert of.model.count(POINT) + of.model.count((7,)) > 0  # such points were measured
    assert of.grid.setting(of.incumbent)["max_ratio"] < 10


# Giving up


def test_no_gain_is_given_up_long_before_the_budget_is_spent() -> None:
    of = state(RATIO)
    of.remaining = 400
    draw = random.Random(5)
    confirmation = Confirmation(of)
    asked = measured(
        confirmation.run(POINT), of, lambda _: {"read": 100 * math.exp(draw.gauss(0, 0.02))}
    )
    assert confirmation.proof is None
    assert len(asked) < 60


def test_a_gain_too_small_for_the_pairs_left_is_futile() -> None:
    of = started_elsewhere()
    shown = blocks({POINT: (0.02,), STOCK: (0.0,)}, count=4)
    of.remaining = 300
    assert not Confirmation(of).is_futile(shown, POINT)
    of.remaining = 3
    assert Confirmation(of).is_futile(shown, POINT)
    of.remaining = 300
    assert Confirmation(of).is_futile(blocks({POINT: (-0.02,), STOCK: (0.0,)}), POINT)


def test_a_point_that_failed_the_proof_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[Point] = []

    def prove_nothing(self: Confirmation, point: Point) -> Steps:
        assert point not in failed
        failed.append(point)
        yield from ()

    monkeypatch.setattr(Confirmation, "run", prove_nothing)
    search = Search([RATIO], {"max_ratio": 1}, ["read"])
    while (setting := search.ask(120 - search.evaluations)) is not None:
        search.tell({"read": 100.0 + setting["max_ratio"]})
    assert len(failed) > 1
    assert not search.choice().changed


# Safer values


def modelled(of: State, figure: Figure, points: Sequence[Point]) -> State:
    """Give the model three blocks of the points, without noise, and fit it."""
    for _ in range(3):
        measured(of.measure_block(points), of, figure)
    of.model.fit()
    return of


def test_a_switch_is_put_back_where_a_limit_does_as_well() -> None:
    def either(s: Setting) -> dict[str, float]:
        return {"read": 200.0 if s["max_ratio"] >= 10 or not s["strict_limit"] else 100.0}

    of = state(RATIO, STRICT)
    every = [(i, j) for i in range(8) for j in range(2)]
    modelled(of, either, every)
    safer = of.grid.setting(SaferValues(of).than((0, 1)))
    assert safer == {"max_ratio": 10, "strict_limit": 1}


def test_a_switch_stays_where_no_limit_does_as_well() -> None:
    def switch(s: Setting) -> dict[str, float]:
        return {"read": 200.0 if not s["strict_limit"] else 100.0 + s["max_ratio"] / 10}

    of = modelled(state(RATIO, STRICT), switch, [(i, j) for i in range(8) for j in range(2)])
    assert of.grid.setting(SaferValues(of).than((7, 1))) == {"max_ratio": 1, "strict_limit": 0}


def test_the_safest_of_equal_values_is_taken_and_not_what_was_rejected() -> None:
    def plateau(s: Setting) -> dict[str, float]:
        return {"read": 200.0 if s["max_ratio"] >= 5 else 100.0}

    of = modelled(state(RATIO), plateau, [(i,) for i in range(8)])
    assert SaferValues(of).than((7,)) == (2,)
    of.rejected.add((2,))
    assert SaferValues(of).than((7,)) == (3,)


def test_a_change_without_effect_goes_back_to_the_start() -> None:
    other = replace(RATIO, name="max_background")
    of = state(RATIO, other)
    points = [(i, j) for i in (0, 3, 7) for j in (0, 3, 7)]
    modelled(of, lambda s: {"read": 100.0 + 10 * s["max_ratio"]}, points)
    assert SaferValues(of).than((7, 7)) == (7, 0)
