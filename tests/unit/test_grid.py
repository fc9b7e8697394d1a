# SPDX-License-Identifier: GPL-2.0-or-later
"""The search space: values of each dimension, their similarity, and the first points."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fusetune.tuner import constants
from fusetune.tuner.grid import Grid
from fusetune.tuner.space import Dimension
from tests.unit.simulated_search import RATIO, STRICT


@pytest.mark.parametrize(
    ("values", "ordered", "places"),
    [
        ((10, 20, 40), True, (10, 15, 20, 30, 40)),
        ((40, 20, 10), True, (40, 30, 20, 15, 10)),  # the smallest is not the safest of all knobs
        ((1, 0), False, (30, 15, 1, 0)),
    ],
)
def test_stock_and_start_have_their_place_among_the_values(
    values: tuple[int, ...], ordered: bool, places: tuple[int, ...]
) -> None:
    grid = Grid([Dimension("k", values, 15, ordered)], {"k": 30})
    assert grid.values == [places]
    assert (grid.setting(grid.stock), grid.setting(grid.start)) == ({"k": 15}, {"k": 30})


def test_what_is_between_the_start_and_an_end() -> None:
    mode = Dimension("mode", (0, 1, 2), 0, ordered=False)
    grid = Grid([RATIO, STRICT, mode], {"max_ratio": 5, "strict_limit": 1, "mode": 0})
    assert grid.start == (2, 0, 0)
    assert grid.is_between((2, 0, 0), (6, 1, 2))
    assert grid.is_between((6, 1, 2), (6, 1, 2))
    assert grid.is_between((4, 0, 2), (6, 1, 2))
    assert grid.is_between((1, 0, 0), (0, 0, 0))
    assert not grid.is_between((4, 0, 1), (6, 1, 2))  # another category
    assert not grid.is_between((7, 0, 0), (6, 1, 2))
    assert not grid.is_between((1, 0, 0), (6, 1, 2))


@pytest.mark.parametrize(("count", "reach"), [(3, 2), (12, 4)])
def test_values_a_third_of_the_grid_apart_perform_alike(count: int, reach: int) -> None:
    """By a mean of Matern 3/2 and the exponential at their reach, of at least two steps."""
    grid = Grid([Dimension("k", tuple(range(count)), 0), STRICT], {"k": 0, "strict_limit": 1})
    ordered, category = grid.kernels()
    smooth, abrupt = (1 + math.sqrt(3)) * math.exp(-math.sqrt(3)), math.exp(-1)
    share = constants.ABRUPT
    assert ordered[0][reach] == pytest.approx((1 - share) * smooth + share * abrupt)
    assert category == [[1.0, 0.0], [0.0, 1.0]]


def test_neighbours_are_a_step_away_or_any_other_category() -> None:
    mode = Dimension("mode", (0, 1, 2), 0, ordered=False)
    grid = Grid([RATIO, mode], {"max_ratio": 1, "mode": 0})
    assert grid.neighbours((0, 1)) == [(1, 1), (0, 0), (0, 2)]
    assert grid.neighbours((3, 0)) == [(2, 0), (4, 0), (3, 1), (3, 2)]


@pytest.mark.parametrize(
    ("known", "middles"),
    [
        ({0, 7}, [3]),
        ({0, 3, 7}, [1, 5]),
        ({0, 2, 4, 6}, []),  # single values
        ({0, 5}, [2, 6]),  # the last values are a gap too
    ],
)
def test_the_middle_of_adjacent_unknown_values_is_a_gap(
    known: set[int], middles: list[int]
) -> None:
    """Of a dimension that the point changes; not of a category, however many are unknown."""
    mode = Dimension("mode", (0, 1, 2, 3), 0, ordered=False)
    grid = Grid(
        [RATIO, replace(RATIO, name="other"), mode], {"max_ratio": 1, "other": 1, "mode": 0}
    )
    found = grid.gaps((7, 0, 3), lambda point: point[0] in known and point[1:] == (0, 3))
    assert found == [(middle, 0, 3) for middle in middles]


@pytest.mark.parametrize(
    ("start", "points"),
    [
        (1, [(7,), (4,)]),  # the far end and the middle; stock is the start
        (10, [(7,), (0,), (5,), (1,)]),  # also stock, and half way down
        (70, [(7,), (0,), (3,)]),  # there is only one step up
        (100, [(0,), (4,), (3,)]),  # down to the far end
    ],
)
def test_the_first_points_of_one_dimension(start: int, points: list[tuple[int]]) -> None:
    grid = Grid([RATIO], {"max_ratio": start})
    assert grid.points_together() == points
    assert sorted(grid.points_alone()) == sorted(points)


def test_the_first_points_of_several_dimensions() -> None:
    """The far end, the middle, and the far end without one of the changes."""
    other = replace(RATIO, name="other")
    grid = Grid([RATIO, STRICT, other], {"max_ratio": 1, "strict_limit": 1, "other": 10})
    points = [(7, 1, 7), (0, 0, 0), (4, 1, 5), (0, 1, 7), (7, 0, 7), (7, 1, 3), (0, 0, 1)]
    assert grid.points_together() == points


def test_the_first_points_with_one_change_each() -> None:
    """Far ones first, and both changes of interacting dimensions, but never all at once."""
    other, mode = replace(RATIO, name="other"), Dimension("mode", (0, 1, 2), 0, ordered=False)
    start = {"max_ratio": 1, "strict_limit": 1, "other": 1, "mode": 0}
    points = Grid([RATIO, STRICT, other, mode], start).points_alone()
    far = [(7, 0, 0, 0), (0, 1, 0, 0), (0, 0, 7, 0), (0, 0, 0, 2), (7, 1, 0, 0)]
    assert points == [*far, (4, 0, 0, 0), (0, 0, 4, 0), (0, 0, 0, 1)]


def test_near_are_the_lines_and_coarse_steps_of_interacting_dimensions() -> None:
    other = replace(RATIO, name="other", values=(1, 2))
    grid = Grid([RATIO, STRICT, other], {"max_ratio": 1, "strict_limit": 1, "other": 1})
    lines = {*((i, 0, 0) for i in range(8)), (3, 1, 0), (3, 0, 1)}
    joint = {(i, j, 0) for i in (0, 2, 4, 5, 7) for j in (0, 1)}  # a step, a third, the ends
    assert set(grid.near((3, 0, 0))) == lines | joint
