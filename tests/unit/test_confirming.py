# SPDX-License-Identifier: GPL-2.0-or-later
"""The guarantees of the search, stage by stage, on simulated figures.

What each shows fails if the guarantee is dropped: the error is shared over interim analyses and
rivals, drift cancels, few pairs prove nothing, stock wins ties, no workload is sacrificed, hopeless
points are given up and not tried again, switches are put back where a limit does as well, and the
reasons say what the model found.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from fusetune.bench.intervals import Interval, ratio_interval
from fusetune.tuner import constants
from fusetune.tuner.confirming import Blocks, Confirmation
from fusetune.tuner.explaining import _verdict, reasons
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
    *dimensions: Dimension,
    start: Setting | None = None,
    workloads: tuple[str, ...] = ("read",),
    seed: int = 0,
) -> State:
    """A search's state before its first sample."""
    values = {d.name: d.stock for d in dimensions}
    made = State(Grid(dimensions, start or values), workloads, seed)
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


def modelled(of: State, figure: Figure, points: Sequence[Point], count: int = 3) -> State:
    """Give the model so many blocks of the points, and fit it."""
    for _ in range(count):
        measured(of.measure_block(points), of, figure)
    of.model.fit()
    return of


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


def test_the_order_of_the_first_block_is_random() -> None:
    """So no setting always has the first place, which an idle server may serve faster."""
    first = set()
    for seed in range(8):
        of = state(RATIO, seed=seed)
        first.add(next(Confirmation(of).run(POINT)))
    assert first == {POINT, of.grid.start}


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


def test_a_proof_may_take_the_last_evaluation() -> None:
    of = started_elsewhere()
    of.remaining = 12  # four blocks of three
    confirmation = Confirmation(of)
    asked = measured(confirmation.run(POINT), of, lambda s: {"read": 99.0 + s["max_ratio"]})
    assert (len(asked), of.remaining) == (12, 0)
    assert confirmation.proof


def test_interim_analyses_become_rarer() -> None:
    """Each takes a share of the error; the next one comes after half as many blocks again."""

    class Undecided(Confirmation):
        at: tuple[int, ...] = ()

        def analyse(self, blocks: Blocks, point: Point) -> bool:
            self.at += (len(blocks),)
            return False

        def is_futile(self, blocks: Blocks, point: Point) -> bool:
            return False

    of = state(RATIO)
    confirmation = Undecided(of)
    measured(confirmation.run(POINT), of, lambda _: {"read": 100.0})
    assert confirmation.at == (4, 6, 9, 14, 21, 32, 48, 50)  # the last one when nothing is left


# The decision


@pytest.mark.parametrize(("hiccup", "counts"), [(0.3, False), (0.26, True)])
def test_a_hiccup_of_the_host_is_no_gain(hiccup: float, counts: bool) -> None:
    """A hiccup is four standard deviations of a pair, here 4 * sqrt(2) * 5 %, off the others."""
    confirmation = Confirmation(started_elsewhere())
    shown = blocks({POINT: (0.2,), STOCK: (0.0,)}, spread=0.001)
    shown[2][POINT]["read"] *= math.exp(hiccup)
    proof = confirmation._compare(shown, POINT, constants.ERROR)
    mean = 0.2 + (hiccup - 0.001) / 6 if counts else 0.2
    for interval in (proof.gain, proof.per_workload["read"][2]):
        assert math.log(interval.ratio) == pytest.approx(mean, abs=1e-3)


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


@pytest.mark.parametrize(("loss", "bearable"), [(-0.1, True), (0.02, True), (0.03, False)])
def test_a_workload_may_suffer_within_its_own_doubt(loss: float, bearable: bool) -> None:
    """Of n workloads each has sqrt(n) times the deviation of their mean, here of 1.5 %."""
    of = state(RATIO, workloads=("read", "write"))

    def trade(s: Setting) -> dict[str, float]:
        much = s["max_ratio"] >= 10
        return {"read": 150.0 if much else 100.0, "write": math.exp(-loss * much)}

    modelled(of, trade, [(0,), POINT], count=2)
    assert of.contrast(POINT, (0,))[1] == pytest.approx(0.015, abs=1e-4)
    assert Exploration(of, SaferValues(of))._bearable(POINT) is bearable


# What is explored


def explored(points: list[Point], count: int, figure: Figure) -> Exploration:
    """An exploration of max_ratio after so many blocks of these points."""
    of = modelled(state(RATIO), figure, points, count)
    return Exploration(of, SaferValues(of))


@pytest.mark.parametrize(("count", "beside"), [(1, True), (2, False)])
def test_a_new_incumbent_is_measured_beside_the_start_once_more(count: int, beside: bool) -> None:
    """Its one sample may be a hiccup of the host; the start by itself promises nothing."""
    of = explored([(0,), POINT, (7,)], count, lambda s: {"read": 100.0 + s["max_ratio"]})
    of._state.incumbent = POINT
    candidates = of._candidates(4)
    assert ((0,) in candidates) is beside
    assert len(candidates) == len(set(candidates)) <= 3


@pytest.mark.parametrize("gain", [0.0, 0.02, 0.05, 0.1])
def test_the_second_candidate_of_a_block_is_no_neighbour_of_the_first(gain: float) -> None:
    """A sample tells of its neighbours too, so the next one goes where it tells less."""
    of = explored([(0,), (1,)], 1, lambda s: {"read": math.exp(gain * (s["max_ratio"] > 1))})
    (first,), (second,), *_ = of._candidates(4)
    assert abs(first - second) > 1


def test_each_screening_point_is_measured_once_beside_the_start() -> None:
    of = state(RATIO, STRICT, replace(RATIO, name="max_background"))
    wanted = of.grid.screening_points()
    asked = measured(Exploration(of, SaferValues(of))._screen(), of, lambda _: {"read": 1.0})
    assert len(wanted) > constants.BLOCK
    assert sorted(p for p in asked if p != of.grid.start) == sorted(wanted)
    assert asked.count(of.grid.start) == math.ceil(len(wanted) / (constants.BLOCK - 1))


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


def test_a_hiccup_is_no_hope() -> None:
    of = started_elsewhere()
    shown = blocks({POINT: (-0.01,), STOCK: (0.0,)}, spread=0.001)
    shown[2][POINT]["read"] *= math.exp(0.3)
    assert Confirmation(of).is_futile(shown, POINT)


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


@pytest.mark.parametrize(("loss", "worth"), [(0.08, True), (0.3, False)])
def test_a_limit_is_measured_beside_a_switch_unless_it_is_clearly_worse(
    loss: float, worth: bool
) -> None:
    """By two standard deviations of the model; the limit that may be as good is a middle value."""

    def either(s: Setting) -> dict[str, float]:
        limit = 200 * math.exp(-loss) if s["max_ratio"] >= 10 else 100.0
        return {"read": limit if s["strict_limit"] else 200.0}

    points = [(i, j) for i in (0, 3, 7) for j in range(2)]
    of = modelled(state(RATIO, STRICT), either, points, count=2)
    of.incumbent = (0, 1)
    assert SaferValues(of)._rivals() == [(4, 0)] * worth


def test_the_smallest_value_that_may_be_as_good_is_measured_beside_the_incumbent() -> None:
    of = modelled(
        state(RATIO),
        lambda s: {"read": 100.0 + 100 * (s["max_ratio"] >= 5)},
        [(i,) for i in range(8)],
    )
    of.incumbent = (7,)
    assert SaferValues(of)._rivals() == [(2,)]
    of.rejected.add((2,))
    assert SaferValues(of)._rivals() == [(3,)]


def test_a_value_that_the_search_left_at_the_start_is_not_made_smaller() -> None:
    other = replace(RATIO, name="max_background")
    of = state(RATIO, other, start={"max_ratio": 10, "max_background": 1})
    points = [(i, j) for i in (0, 3, 7) for j in (0, 3, 7)]
    modelled(of, lambda s: {"read": 100.0 + 100 * (s["max_background"] >= 10)}, points)
    of.incumbent = (3, 7)
    assert SaferValues(of)._rivals() == [(3, 3)]


def test_safer_values_are_measured_in_three_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    of = modelled(state(RATIO), lambda s: {"read": 99.0 + s["max_ratio"]}, [(0,), (3,), (7,)])
    of.incumbent = (7,)
    safer = SaferValues(of)
    monkeypatch.setattr(safer, "_rivals", lambda: [(3,)])
    asked = measured(safer.walk_back(), of, lambda s: {"read": 99.0 + s["max_ratio"]})
    assert sorted(asked) == [(3,)] * 3 + [(7,)] * 3


# Reasons


@pytest.mark.parametrize(
    ("best", "worst", "verdict"),
    [
        (Interval(0.98, 0.97, 0.999), 0.5, "other values are worse"),
        (Interval(0.99, 0.98, 1.0), 0.97, "no effect found"),
        (Interval(1.0, 0.98, 1.02), 0.99, "no effect found"),
        (Interval(1.0, 0.98, 1.02), 0.96, "no better value found"),
        (Interval(1.0, 0.97, 1.03), 1.0, "not settled within the budget"),
        (Interval(1.05, 0.9, 1.2), 1.0, "not settled within the budget"),
    ],
)
def test_what_the_other_values_show(best: Interval, worst: float, verdict: str) -> None:
    """A value that is sure to be within 3 % of the present one has no effect."""
    assert _verdict([best, Interval(worst, worst, worst)], best) == verdict


def test_a_reason_gives_the_ratio_and_its_interval() -> None:
    """Of the chosen value to the one before, or of the best other value to the one that stays."""
    of = state(replace(RATIO, values=(1, 40)))
    draw = random.Random(1)
    modelled(of, lambda s: {"read": s["max_ratio"] * math.exp(draw.gauss(0, 0.1))}, [(0,), (1,)])
    mean, deviation = of.contrast((1,), (0,))
    ratio, low, high = (math.exp(mean + d * 1.96 * deviation) for d in (0, -1, 1))
    assert low < 0.99 * ratio
    words = f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
    assert reasons(of, (1,)) == (f"max_ratio: 1 -> 40, {words} times the figure with 1",)
    (stays,) = reasons(of, (0,))
    assert stays == f"max_ratio: left at 1, not settled within the budget (40: {words})"


def test_a_value_without_others_is_said_to_be_the_only_one() -> None:
    of = modelled(state(replace(RATIO, values=(1,)), STRICT), lambda _: {"read": 1.0}, [(0, 0)])
    assert reasons(of, (0, 0))[0] == "max_ratio: left at 1, it has no other value"
