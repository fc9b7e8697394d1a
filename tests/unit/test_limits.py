# SPDX-License-Identifier: GPL-2.0-or-later
"""Which layer of a stack is the bottleneck, from figures with a known cause.

A stack is defined by the cost of each layer; the figures simulate measurements at its mounts.
"""

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.bench.limits import Limits, limits
from fusetune.bench.measure import Measurement, summarise
from fusetune.bench.workloads import WORKLOADS

LAYERS = ("bottom", "middle", "top")
BELOW = {"top": ["middle"], "middle": ["bottom"]}


def measured(
    speeds: Mapping[str, Sequence[float]], noise: float = 0.01, rounds: int = 6
) -> list[Measurement]:
    """Figures of these mean speeds, one for each workload, with noise of this deviation."""
    draw = random.Random(1)
    workloads = list(WORKLOADS.values())
    return [
        Measurement(
            label,
            None,
            [
                summarise(workload, [speed * draw.lognormvariate(0, noise) for _ in range(rounds)])
                for workload, speed in zip(workloads, each, strict=False)
            ],
        )
        for label, each in speeds.items()
    ]


def limiting(speeds: Mapping[str, float], **how: float) -> str | None:
    """The bottleneck of the usual stack at these speeds of one workload."""
    found = measured({label: [speed] for label, speed in speeds.items()}, **how)  # type: ignore[arg-type]
    return limits(found, BELOW, "top").limiting


@pytest.mark.parametrize("slow", LAYERS)
@pytest.mark.parametrize("at_once", [False, True])
def test_the_slow_layer_limits(slow: str, at_once: bool) -> None:
    costs = [5.0 if label == slow else 1.0 for label in LAYERS]
    times = [max(costs[: n + 1]) if at_once else sum(costs[: n + 1]) for n in range(3)]
    assert limiting({label: 1 / t for label, t in zip(LAYERS, times, strict=True)}) == slow


def test_two_steps_at_once_the_slower_layer_limits() -> None:
    # Alone they manage 1000, 300 and 90: the fall to the middle is the larger one.
    assert limiting({"bottom": 1000, "middle": 300, "top": 100}) == "top"


def test_alike_layers_limit_no_more_than_the_rest() -> None:
    assert limiting({"bottom": 1, "middle": 1 / 2, "top": 1 / 3}, noise=0.05) is None


def test_noise_is_no_reason() -> None:
    assert limiting({"bottom": 10, "middle": 9, "top": 4}, noise=1.0, rounds=2) is None


def test_shares_are_of_the_time_of_the_top() -> None:
    found = limits(measured({"bottom": [10.0], "middle": [5.0], "top": [4.0]}, 0.0), BELOW, "top")
    assert [one.label for one in found.shares] == list(LAYERS)
    assert [one.share for one in found.shares] == pytest.approx([0.4, 0.4, 0.2])
    assert [one.over for one in found.shares] == [None, "bottom", "middle"]
    falls = [one.fall.ratio for one in found.shares if one.fall]
    assert falls == pytest.approx([2.0, 1.25])


def test_workloads_count_alike() -> None:
    speeds = {"bottom": [10.0, 1.0], "middle": [5.0, 0.9], "top": [4.0, 0.8]}
    found = limits(measured(speeds, 0.0), BELOW, "top")
    assert [one.share for one in found.shares] == pytest.approx(
        [(0.4 + 0.8) / 2, (0.4 + 0.8 * (1 / 0.9 - 1)) / 2, (0.2 + 1 - 0.8 / 0.9) / 2]
    )


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=3), st.integers(2, 9))
def test_all_shares_together_are_one(speeds: list[float], rounds: int) -> None:
    figures = {label: [speed] for label, speed in zip(LAYERS, speeds, strict=True)}
    found = limits(measured(figures, 0.1, rounds), BELOW, "top")
    assert sum(one.share for one in found.shares) == pytest.approx(1)
    assert found.limiting in (None, *(one.label for one in found.shares))


@pytest.mark.parametrize(("top", "hidden"), [(2.1, True), (1.9, False)])
def test_a_cache_hides_what_is_below(top: float, hidden: bool) -> None:
    found = limits(measured({"bottom": [1.0], "middle": [1.0], "top": [top]}), BELOW, "top")
    assert found.hidden is hidden
    assert found.limiting == ("top" if hidden else "bottom")


@pytest.mark.parametrize(("top", "branch"), [(10.0, "slow"), (9.0, "slow"), (95.0, "fast")])
def test_of_several_below_the_nearest_counts(top: float, branch: str) -> None:
    below = {"top": ["fast", "slow"]}
    found = limits(measured({"fast": [100.0], "slow": [10.0], "top": [top]}), below, "top")
    assert found.limiting == branch
    assert [one.label for one in found.shares] == [branch, "top"]


def test_in_place_of_what_was_not_measured_is_what_that_lies_on() -> None:
    found = limits(measured({"bottom": [10.0], "top": [1.0]}), BELOW, "top")
    assert [one.label for one in found.shares] == ["bottom", "top"]
    assert found.limiting == "top"


def test_a_circle_ends() -> None:
    below = BELOW | {"bottom": ["top"]}
    found: Limits = limits(measured({one: [1.0] for one in LAYERS}), below, "top")
    assert [one.label for one in found.shares] == list(LAYERS)
