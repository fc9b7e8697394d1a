# SPDX-License-Identifier: GPL-2.0-or-later
"""The proof of a gain: what it takes, what it costs, and when it is given up.

Each test fails if its guarantee is removed: the error is shared among interim analyses and rivals,
drift and hiccups cancel, few pairs prove nothing, stock wins ties, no workload is sacrificed, and
hopeless points are given up and not tried again.
"""

from __future__ import annotations

import math
import random

import pytest

from fusetune.bench.intervals import ratio_interval
from fusetune.tuner import constants
from fusetune.tuner.confirming import Blocks, Confirmation
from fusetune.tuner.grid import Setting
from fusetune.tuner.model import Point
from fusetune.tuner.search import Search
from fusetune.tuner.state import State, Steps, error_of_analysis
from tests.unit.simulated_search import POINT, RATIO, STOCK, measured, modelled, state

START = (3,)


def started_elsewhere(workloads: tuple[str, ...] = ("read",)) -> State:
    """A search of max_ratio that starts at `START`, not at stock."""
    return state(RATIO, start={"max_ratio": 10}, workloads=workloads)


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
    assert constants.ERROR + constants.LAST_ERROR <= 0.05


def test_an_analysis_at_the_end_of_the_budget_has_an_error_of_its_own_once() -> None:
    of = started_elsewhere()
    confirmation = Confirmation(of)
    shown = blocks({POINT: (0.2,)})
    differences = [math.log(b[POINT]["read"] / b[START]["read"]) for b in shown]
    for number, error in enumerate(
        [constants.ERROR / 2, constants.LAST_ERROR, 1 / 12 * constants.ERROR]
    ):
        assert confirmation.analyse(shown, POINT, last=number > 0)
        wanted = ratio_interval(differences, error, math.sqrt(2) * of.model.noise)
        assert confirmation.proof
        assert confirmation.proof.gain.low == pytest.approx(wanted.low)


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
    """Where stock is not measured there is one rival; otherwise each of two has half the error."""
    of = started_elsewhere()
    confirmation = Confirmation(of)
    effects: dict[Point, tuple[float, ...]] = {POINT: (0.2,), STOCK: (0.0,)}
    shown = blocks({p: effects[p] for p in [POINT, STOCK][:rivals]})
    assert confirmation.analyse(shown, POINT)
    differences = [math.log(b[POINT]["read"] / b[START]["read"]) for b in shown]
    error = constants.ERROR / 2 / rivals
    noise = math.sqrt(2) * of.model.noise
    wanted = ratio_interval(differences, error, noise)
    assert confirmation.proof
    assert confirmation.proof.gain.low == pytest.approx(wanted.low)
    assert confirmation.proof.gain.high == pytest.approx(wanted.high)


@pytest.mark.parametrize(("worth", "rival"), [(50.0, False), (119.0, True)])
def test_stock_is_no_rival_where_exploration_showed_it_to_be_worse(
    worth: float, rival: bool
) -> None:
    def figure(s: Setting) -> dict[str, float]:
        return {"read": {1: worth, 10: 100.0}.get(s["max_ratio"], 120.0)}

    of = modelled(started_elsewhere(), figure, [STOCK, START, POINT])
    assert (STOCK in of.contestants(POINT)) is rival
    assert (STOCK in measured(Confirmation(of).run(POINT), of, figure)) is rival


# The blocks


def test_the_order_of_the_first_block_is_random() -> None:
    """So no setting is always first, when an idle server may be faster."""
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
    """However clear the gain: two pairs that agree by chance have an interval of zero width."""
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


@pytest.mark.parametrize(
    ("whole", "dropped", "proven"), [(3, False, False), (4, False, True), (4, True, False)]
)
def test_a_budget_that_ends_during_a_block_leaves_the_blocks_before_it(
    whole: int, dropped: bool, proven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time may end suddenly, before the analysis that the blocks were measured for."""
    monkeypatch.setattr(State, "pairs_needed", lambda of, point: 8)
    of = started_elsewhere()
    confirmation = Confirmation(of)
    steps = confirmation.run(POINT)
    point = next(steps)
    for _ in range(3 * whole + 1):
        point = steps.send({"read": 99.0 + of.grid.setting(point)["max_ratio"]})
    assert not confirmation.proof
    if dropped:
        confirmation.drop()
    confirmation.end()
    assert bool(confirmation.proof) == proven


def test_interim_analyses_become_rarer() -> None:
    """Each uses a share of the error; the next one follows after half as many blocks again."""

    class Undecided(Confirmation):
        at: tuple[int, ...] = ()
        lasts: tuple[bool, ...] = ()

        def analyse(self, blocks: Blocks, point: Point, *, last: bool = False) -> bool:
            self.at += (len(blocks),)
            self.lasts += (last,)
            return False

        def is_futile(self, blocks: Blocks, point: Point) -> bool:
            return False

    of = state(RATIO)
    confirmation = Undecided(of)
    measured(confirmation.run(POINT), of, lambda _: {"read": 100.0})
    assert confirmation.at == (4, 6, 9, 14, 21, 32, 48, 50)  # the last one when nothing is left
    assert confirmation.lasts == (*[False] * 7, True)


# The decision


@pytest.mark.parametrize(("hiccup", "counts"), [(0.3, False), (0.26, True)])
def test_a_hiccup_of_the_host_is_no_gain(hiccup: float, counts: bool) -> None:
    """A hiccup is off by four standard deviations of a pair, here 4 * sqrt(2) * 5 %."""
    confirmation = Confirmation(started_elsewhere())
    shown = blocks({POINT: (0.2,), STOCK: (0.0,)}, spread=0.001)
    shown[2][POINT]["read"] *= math.exp(hiccup)
    proof = confirmation._compare(shown, POINT, constants.ERROR)
    mean = 0.2 + (hiccup - 0.001) / 6 if counts else 0.2
    for interval in (proof.gain, proof.per_workload["read"][2]):
        assert math.log(interval.ratio) == pytest.approx(mean, abs=1e-3)
    before, after, ratio = proof.per_workload["read"]
    assert after / before == pytest.approx(ratio.ratio)


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


@pytest.mark.parametrize(("gain", "futile"), [(-0.1, False), (-0.2, True)])
def test_a_few_unlucky_pairs_are_not_futile(gain: float, futile: bool) -> None:
    """Pairs that scatter by 0.1 round a loss of 0.1 may still belong to a gain."""
    of = started_elsewhere()
    of.remaining = 300
    shown = blocks({POINT: (gain,), STOCK: (0.0,)}, count=4, spread=0.1)
    assert Confirmation(of).is_futile(shown, POINT) == futile


@pytest.mark.parametrize("spent", [False, True])
def test_the_error_kept_for_the_end_lets_a_proof_go_on(spent: bool) -> None:
    of = started_elsewhere()
    of.analyses, of.remaining = 4, 120
    of.last_error = 0.0 if spent else constants.LAST_ERROR
    shown = blocks({POINT: (0.02,), STOCK: (0.0,)}, count=4, spread=0.01)
    assert Confirmation(of).is_futile(shown, POINT) == spent


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
