# SPDX-License-Identifier: GPL-2.0-or-later
"""Among equal settings the safest wins: small or unchanged values, unchanged switches."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fusetune.tuner import constants
from fusetune.tuner.grid import Setting
from fusetune.tuner.model import Point
from fusetune.tuner.safer import SaferValues
from tests.unit.simulated_search import POINT, RATIO, STRICT, measured, modelled, state


def test_a_switch_is_put_back_where_a_limit_does_as_well() -> None:
    def either(s: Setting) -> dict[str, float]:
        return {"read": 200.0 if s["max_ratio"] >= 10 or not s["strict_limit"] else 100.0}

    of = state(RATIO, STRICT)
    every = [(i, j) for i in range(8) for j in range(2)]
    modelled(of, either, every)
    safer = of.grid.setting(SaferValues(of).than((0, 1)))
    assert safer == {"max_ratio": 10, "strict_limit": 1}


def test_a_limit_is_not_replaced_by_a_switch_that_does_as_well() -> None:
    def either(s: Setting) -> dict[str, float]:
        return {"read": 200.0 if s["max_ratio"] >= 10 or not s["strict_limit"] else 100.0}

    of = modelled(state(RATIO, STRICT), either, [(i, j) for i in range(8) for j in range(2)])
    assert of.grid.setting(SaferValues(of).than((3, 0))) == {"max_ratio": 10, "strict_limit": 1}


def test_a_switch_stays_where_no_limit_does_as_well() -> None:
    def switch(s: Setting) -> dict[str, float]:
        return {"read": 200.0 if not s["strict_limit"] else 100.0 + s["max_ratio"] / 10}

    of = modelled(state(RATIO, STRICT), switch, [(i, j) for i in range(8) for j in range(2)])
    assert of.grid.setting(SaferValues(of).than((7, 1))) == {"max_ratio": 1, "strict_limit": 0}


def test_a_switch_is_put_back_where_a_limit_that_it_does_not_interact_with_does_as_well() -> None:
    alone = replace(STRICT, interacts=())

    def either(s: Setting) -> dict[str, float]:
        return {"read": 200.0 if s["max_ratio"] >= 10 or not s["strict_limit"] else 100.0}

    of = modelled(state(RATIO, alone), either, [(i, j) for i in range(8) for j in range(2)])
    assert SaferValues(of).than((0, 1))[1] == 0


def test_a_change_stays_whose_removal_was_never_measured() -> None:
    """Little is known about the rest, so it is measured beside the change instead."""
    alone = replace(STRICT, interacts=())
    of = state(RATIO, alone, replace(alone, name="other"))

    def joint(s: Setting) -> dict[str, float]:
        every = s["max_ratio"] >= 10 and not s["strict_limit"] and not s["other"]
        return {"read": 200.0 if every else 100.0}

    modelled(of, joint, [(0, 0, 0), (0, 1, 0), (0, 0, 1), (3, 0, 0), (3, 1, 1)])
    gain, deviation = of.contrast((3, 1, 1), (3, 0, 1))
    assert 0.3 < gain < constants.SWITCH_DOUBT * deviation
    assert SaferValues(of).than((3, 1, 1)) == (3, 1, 1)
    of.incumbent = (3, 1, 1)
    assert {(3, 0, 1), (3, 1, 0)} <= set(SaferValues(of)._rivals())


def test_the_start_is_measured_beside_a_change_that_is_in_doubt() -> None:
    other = replace(RATIO, name="max_background")
    of = state(RATIO, other)
    points = [(0, 0), (0, 7), (7, 7)]
    modelled(of, lambda s: {"read": 100.0 + 10 * s["max_ratio"]}, points, count=1)
    of.incumbent = (7, 7)
    assert of.contrast((7, 7), (7, 0))[1] > constants.WALKABLE
    assert (7, 0) in SaferValues(of)._rivals()
    assert (0, 7) not in SaferValues(of)._rivals()


def test_the_safest_of_equal_values_is_taken_and_not_what_was_rejected() -> None:
    def plateau(s: Setting) -> dict[str, float]:
        return {"read": 200.0 if s["max_ratio"] >= 5 else 100.0}

    of = modelled(state(RATIO), plateau, [(i,) for i in range(8)])
    assert SaferValues(of).than((7,)) == (2,)
    of.rejected.add((2,))
    assert SaferValues(of).than((7,)) == (3,)


@pytest.mark.parametrize(("count", "index"), [(1, 5), (6, 3)])
def test_a_smaller_value_must_be_known_to_lose_little(count: int, index: int) -> None:
    def plateau(s: Setting) -> dict[str, float]:
        return {"read": 200.0 if s["max_ratio"] >= 10 else 100.0}

    of = modelled(state(RATIO), plateau, [(0,), (3,), (5,)], count)
    assert SaferValues(of).than((5,)) == (index,)


def test_a_change_without_effect_goes_back_to_the_start() -> None:
    other = replace(RATIO, name="max_background")
    of = state(RATIO, other)
    points = [(i, j) for i in (0, 3, 7) for j in (0, 3, 7)]
    modelled(of, lambda s: {"read": 100.0 + 10 * s["max_ratio"]}, points)
    assert SaferValues(of).than((7, 7)) == (7, 0)


def test_one_of_several_searches_doubts_a_change_twice_as_much() -> None:
    """Wrong changes of each add up."""

    def doubt(*, stepwise: bool) -> float:
        of = modelled(
            state(RATIO, stepwise=stepwise), lambda _: {"read": 1.0}, [(0,), POINT], count=3
        )
        return SaferValues(of)._doubt(POINT, (0,), switch=False)[1]

    assert doubt(stepwise=True) == pytest.approx(2 * doubt(stepwise=False))


@pytest.mark.parametrize(("loss", "worth"), [(0.08, True), (0.3, False)])
def test_a_limit_is_measured_beside_a_switch_unless_it_is_clearly_worse(
    loss: float, worth: bool
) -> None:
    """By two standard deviations of the model; a middle value may be just as good."""

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


def test_a_newly_adopted_value_is_measured_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    of = modelled(state(RATIO), lambda s: {"read": 99.0 + s["max_ratio"]}, [(0,), (3,), (7,)])
    of.incumbent = (7,)
    safer = SaferValues(of)
    adopted = iter([(7,), (7,), (7,), *[(5,)] * 4])
    monkeypatch.setattr(safer, "than", lambda best: next(adopted))
    monkeypatch.setattr(safer, "_rivals", lambda: [(3,)])
    asked = measured(safer.walk_back(), of, lambda s: {"read": 99.0 + s["max_ratio"]})
    assert sorted(asked) == [(3,)] * 6 + [(5,)] * 3 + [(7,)] * 3
    assert of.incumbent == (5,)


@pytest.mark.parametrize(("remaining", "adopted"), [(2, (7,)), (100, (5,))])
def test_a_value_that_cannot_be_measured_is_not_adopted(
    monkeypatch: pytest.MonkeyPatch, remaining: int, adopted: Point
) -> None:
    of = modelled(state(RATIO), lambda s: {"read": 99.0 + s["max_ratio"]}, [(0,), (3,), (7,)])
    of.incumbent, of.remaining = (7,), remaining
    safer = SaferValues(of)
    monkeypatch.setattr(safer, "than", lambda best: (5,))
    monkeypatch.setattr(safer, "_rivals", lambda: [(3,)])
    measured(safer.walk_back(), of, lambda s: {"read": 99.0 + s["max_ratio"]})
    assert of.incumbent == adopted
