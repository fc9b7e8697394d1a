# SPDX-License-Identifier: GPL-2.0-or-later
"""Intervals agree with statistical tables, and have the stated coverage."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetune.bench.intervals import (
    ratio_interval,
    t_probability,
    t_quantile,
    without_hiccups,
)


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


def test_one_hiccup_in_three_is_left_out_and_two_in_five_are_not() -> None:
    calm = [0.10, 0.11, 0.09, 0.10, 0.12, 0.10]
    assert without_hiccups([-0.6, *calm, 0.8, -0.5], noise=0.02) == [1, 2, 3, 4, 5, 6]
    shaken = [0.10, 0.11, 0.09, -0.6, 0.8]
    assert without_hiccups(shaken, noise=0.02) == [*range(len(shaken))]


def test_two_hiccups_in_nine_pairs_do_not_hide_a_gain() -> None:
    differences = [0.35, 0.37, -0.3, 0.36, 0.34, 1.1, 0.36, 0.35, 0.37]
    interval = ratio_interval(differences, 0.0025, noise=0.03)
    assert interval.low > 1.3


@pytest.mark.parametrize("share", [0.0, 0.03, 0.1])
def test_equal_settings_are_seldom_proven_different_by_hiccups(share: float) -> None:
    draw = random.Random(2)

    def sample() -> float:
        slow = math.log(draw.uniform(1.5, 2.5)) if draw.random() < share else 0.0
        return draw.gauss(0, 0.02) - slow

    wrong = 0
    for _ in range(1000):
        interval = ratio_interval([sample() - sample() for _ in range(9)], 0.05, 0.02 * 2**0.5)
        wrong += not interval.low <= 1 <= interval.high
    assert wrong / 1000 < 0.07  # 0.05 and three standard errors


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.floats(0.001, 0.5))
@settings(max_examples=100, deadline=None)
def test_interval_holds_its_own_ratio(differences: list[float], noise: float) -> None:
    interval = ratio_interval(differences, 0.05, noise)
    assert 0 < interval.low <= interval.ratio <= interval.high
    wider = ratio_interval(differences, 0.01, noise)
    assert wider.low <= interval.low
    assert wider.high >= interval.high
