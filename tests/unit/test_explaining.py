# SPDX-License-Identifier: GPL-2.0-or-later
"""The reasons say what the model found, with its intervals."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from fusetune.bench.intervals import Interval
from fusetune.tuner.explaining import _verdict, reasons, why_not
from tests.unit.simulated_search import RATIO, STRICT, modelled, state


@pytest.mark.parametrize(
    ("best", "worst", "verdict"),
    [
        (Interval(0.98, 0.97, 0.999), 0.5, "other values are worse"),
        (Interval(0.99, 0.98, 1.0), 0.97, "no effect found"),
        (Interval(1.0, 0.98, 1.02), 0.99, "no effect found"),
        (Interval(1.0, 0.98, 1.02), 0.96, "no better value found"),
        (Interval(1.0, 0.97, 1.03), 1.0, "not decided within the budget"),
        (Interval(1.05, 0.9, 1.2), 1.0, "not decided within the budget"),
    ],
)
def test_what_the_other_values_show(best: Interval, worst: float, verdict: str) -> None:
    """A value that is certainly within 3 % of the current one has no effect."""
    assert _verdict([best, Interval(worst, worst, worst)], best) == verdict


def test_a_reason_gives_the_ratio_and_its_interval() -> None:
    """Chosen value relative to the old one, or best other value relative to the kept one."""
    of = state(replace(RATIO, values=(1, 40)))
    draw = random.Random(1)
    modelled(of, lambda s: {"read": s["max_ratio"] * math.exp(draw.gauss(0, 0.1))}, [(0,), (1,)])
    mean, deviation = of.contrast((1,), (0,))
    ratio, low, high = (math.exp(mean + d * 1.96 * deviation) for d in (0, -1, 1))
    assert low < 0.99 * ratio
    words = f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
    assert reasons(of, (1,)) == (f"max_ratio: 1 -> 40, {words} times the figure with 1",)
    (stays,) = reasons(of, (0,))
    assert stays == f"max_ratio: kept at 1, not decided within the budget (40: {words})"
    of.refusals.append((1,))
    (stays,) = reasons(of, (0,))
    assert stays == f"max_ratio: kept at 1, what may be better was refused (40: {words})"


def test_a_value_without_others_is_said_to_be_the_only_one() -> None:
    of = modelled(state(replace(RATIO, values=(1,)), STRICT), lambda _: {"read": 1.0}, [(0, 0)])
    assert reasons(of, (0, 0))[0] == "max_ratio: kept at 1, it has no other value"


@pytest.mark.parametrize(
    ("log_ratio", "deviation", "verdict"),
    [
        (-0.1, 0.01, "it is slower (0.90 [0.89, 0.92])"),
        (0.0, 0.01, "no gain found (1.00 [0.98, 1.02])"),
        (0.0, 0.02, "not decided within the budget (1.00 [0.96, 1.04])"),
        (0.3, 0.01, "not decided within the budget (1.35 [1.32, 1.38])"),
    ],
)
def test_what_was_found_on_a_point_that_was_not_chosen(
    log_ratio: float, deviation: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = modelled(state(RATIO), lambda _: {"read": 1.0}, [(0,), (1,)])
    contrasts = {((1,), (0,)): (log_ratio, deviation)}
    monkeypatch.setattr(of, "contrast", lambda *points: contrasts[points])
    assert why_not(of, (0,), (1,)) == verdict


def test_nothing_is_found_without_a_sample() -> None:
    assert why_not(state(RATIO), (0,), (1,)) == "nothing was measured"
