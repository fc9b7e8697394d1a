# SPDX-License-Identifier: GPL-2.0-or-later
"""A warm search begins at an earlier run's choice, and becomes cold if that fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest

from fusetune.tuner import constants
from fusetune.tuner.grid import Setting
from fusetune.tuner.search import Search
from fusetune.tuner.warm import KEPT, Earlier
from tests.unit.simulated_host import AHEAD, BACKGROUND, RATIO, drive, hump, stock

pytestmark = pytest.mark.slow

DIMENSIONS = (AHEAD, BACKGROUND, RATIO)
START = stock(*DIMENSIONS)


def hill(setting: Setting) -> float:
    """All three knobs matter, and the last two level off."""
    background, ratio = setting["max_background"], setting["max_ratio"]
    return hump(setting) * (1 + background / (background + 48)) * (1 + ratio / (ratio + 10))


def ended(
    worth: Callable[[Setting], float],
    earlier: Earlier | None = None,
    start: Setting = START,
    seed: int = 0,
    noise: float = 0.05,
) -> Search:
    """Return a finished search; each seed has another host."""
    search = Search(DIMENSIONS, start, ["read"], seed, earlier=earlier)
    drive(search, {"read": worth}, noise=noise, seed=seed)
    return search


@pytest.fixture(scope="module")
def earlier() -> Earlier:
    """What a run on `hill` leaves."""
    search = ended(hill)
    assert search.choice().changed
    return Earlier(search.choice().setting, search.blocks)


def flat(setting: Setting) -> float:
    return 100.0


def shy(setting: Setting) -> float:
    """Best where `hill` is worst."""
    return 1 / hill(setting)


# Where it holds


def test_it_ends_in_about_half_the_evaluations_at_equal_proof(earlier: Earlier) -> None:
    evaluations = Counter[bool]()
    for seed in range(1, 21):
        cold, warm = ended(hill, seed=seed), ended(hill, earlier, seed=seed)
        assert warm.warm is True
        evaluations += Counter({True: warm.evaluations, False: cold.evaluations})
        assert hill(warm.choice().setting) >= 0.97 * hill(earlier.setting)
        proofs = [trial for trial in warm.trials if trial.setting == warm.choice().setting]
        assert len(proofs[0].samples) >= constants.FEWEST_PAIRS
        assert warm.choice().gain.low > 1
    assert evaluations[True] <= 0.55 * evaluations[False]


def test_it_measures_the_choice_first(earlier: Earlier) -> None:
    search = Search(DIMENSIONS, START, ["read"], earlier=earlier)
    first: list[Setting] = []
    while len(first) < constants.BLOCK:
        asked = search.ask(100)
        assert asked is not None
        first.append(asked)
        search.tell({"read": hill(asked)})
    assert START in first
    assert earlier.setting in first


def test_values_that_are_set_already_are_left_after_about_half_the_evaluations(
    earlier: Earlier,
) -> None:
    evaluations = Counter[bool]()
    for seed in range(1, 6):
        cold = ended(hill, start=earlier.setting, seed=seed)
        warm = ended(hill, earlier, earlier.setting, seed)
        assert not warm.choice().changed
        evaluations += Counter({True: warm.evaluations, False: cold.evaluations})
    assert evaluations[True] <= 0.55 * evaluations[False]


def test_samples_of_the_earlier_run_prove_nothing(earlier: Earlier) -> None:
    """On a host that has become flat nothing is better, whatever the earlier run saw."""
    warm = ended(flat, earlier, seed=1)
    assert not warm.choice().changed


def test_a_third_run_begins_with_what_the_second_one_used(earlier: Earlier) -> None:
    second = ended(hill, earlier, seed=1)
    third = ended(hill, Earlier(second.choice().setting, second.blocks), seed=2)
    assert third.warm is True
    assert third.evaluations < ended(hill, seed=2).evaluations


def test_no_more_samples_are_kept_than_a_later_model_can_take(earlier: Earlier) -> None:
    search = ended(hill, Earlier(earlier.setting, list(earlier.blocks) * 4), seed=1)
    assert search.warm is True
    assert 0.8 * KEPT < sum(map(len, search.blocks)) <= KEPT


@pytest.mark.parametrize("seed", [3, 5])
def test_the_proof_is_kept_and_what_was_measured_first(seed: int) -> None:
    """A report shows the gain from the proof; a later run measures the first settings again."""
    search = ended(hill, seed=seed, noise=0.2)
    chosen, blocks = search.choice().setting, search.blocks
    assert search.evaluations > KEPT >= sum(map(len, blocks))
    settings = [[setting for setting, _ in block] for block in blocks]
    proof = settings[-constants.FEWEST_PAIRS :]
    assert all(START in block and chosen in block and len(block) <= 3 for block in proof)
    assert settings[0] == [trial.setting for trial in search.trials[: len(settings[0])]]


# Where it does not


@pytest.mark.parametrize("worth", [shy, lambda setting: 1.0 + setting["max_ratio"] / 20])
def test_a_host_that_has_changed_is_searched_anew(
    earlier: Earlier, worth: Callable[[Setting], float]
) -> None:
    losses = []
    for seed in range(1, 9):
        warm = ended(worth, earlier, seed=seed)
        assert warm.warm is False
        cold = ended(worth, seed=seed)
        losses.append(1 - worth(warm.choice().setting) / worth(cold.choice().setting))
    assert fmean(losses) < 0.01
    assert max(losses) < 0.05


def test_one_hiccup_does_not_make_it_search_anew(earlier: Earlier) -> None:
    search = Search(DIMENSIONS, START, ["read"], 1, earlier=earlier)
    stumbled = False
    while (setting := search.ask(120 - search.evaluations)) is not None:
        hiccup = setting == earlier.setting and not stumbled
        stumbled = stumbled or hiccup
        search.tell({"read": hill(setting) / (2 if hiccup else 1)})
    assert stumbled
    assert search.warm is True


def test_samples_are_dropped_where_the_proof_fails(earlier: Earlier) -> None:
    """The choice has been worth what it was, until the proof begins."""
    search = Search(DIMENSIONS, START, ["read"], 1, earlier=earlier)
    while (setting := search.ask(120 - search.evaluations)) is not None:
        search.tell({"read": hill(setting) if search.evaluations < 12 else 1.0})
    assert search.warm is False
    assert not search.choice().changed


# Runs that do not count as earlier runs of this search


def test_knobs_that_differ_make_a_cold_search(earlier: Earlier) -> None:
    search = Search([AHEAD, RATIO], stock(AHEAD, RATIO), ["read"], earlier=earlier)
    assert search.warm is None


def test_values_that_are_not_allowed_any_more_are_not_measured(earlier: Earlier) -> None:
    """An out-of-range choice does not count; out-of-range samples are dropped."""
    most = earlier.setting["read_ahead_kb"]
    below = tuple(value for value in AHEAD.values if value < most)
    limited = (replace(AHEAD, values=below), *DIMENSIONS[1:])
    assert Search(limited, START, ["read"], earlier=earlier).warm is None
    upto = (replace(AHEAD, values=(*below, most)), *DIMENSIONS[1:])
    search = Search(upto, START, ["read"], earlier=earlier)
    drive(search, {"read": hill})
    assert search.warm is not None
    assert all(trial.setting["read_ahead_kb"] <= most for trial in search.trials)


def test_figures_of_other_workloads_make_a_cold_search(earlier: Earlier) -> None:
    assert Search(DIMENSIONS, START, ["write"], earlier=earlier).warm is None
