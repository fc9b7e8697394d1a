# SPDX-License-Identifier: GPL-2.0-or-later
"""The message about a search that its budget ended, and how much more it would take."""

import pytest

from fusetune.bench.spending import NOTHING, RANGES, Account, Budget, affordable, scarcest
from fusetune.tuner.ending import Ending
from fusetune.tuner.search import Search
from tests.bench.landscapes import Host
from tests.unit.simulated_search import RATIO

BUDGET = Budget(60.0, 2 << 30, 500 << 20, 20_000)


def searched(evaluations: int, gain: float) -> Search:
    """A search on a mount that is ``gain`` times as fast from max_ratio 10 on."""
    search = Search([RATIO], {"max_ratio": 1}, ["write"])
    for _ in range(evaluations):
        setting = search.ask(100)
        assert setting is not None
        search.tell({"write": gain if setting["max_ratio"] >= 10 else 1.0})
    return search


def words(setting: object) -> str:
    return str(setting)


@pytest.mark.parametrize(
    ("by", "spent", "larger"),
    [
        ("seconds", "--budget 60s", "--budget "),
        ("bytes_written", "--budget-bytes 2G", "--budget-bytes "),
        ("bytes_read", "--budget-read 500M", "--budget-read "),
        ("requests", "--budget-requests 20000", "--budget-requests "),
    ],
)
def test_the_part_that_is_spent_and_what_would_do(by: str, spent: str, larger: str) -> None:
    search = searched(8, gain=2.0)
    (said,) = Ending(by, BUDGET, 8).reasons(search, words)
    start, _, more = said.partition("; ")
    setting, needed = search.unproven() or ({}, 0)
    assert setting["max_ratio"] >= 10
    assert start.startswith(
        f"the search ended because too little is left of {spent}, before {setting} was "
    )
    assert start.endswith(f"proven, which needs about {needed} more evaluations")
    assert more.startswith(f"try {larger}")


def test_without_any_evaluation_it_does_not_say_how_much_more() -> None:
    """A search that begins at an earlier run's choice knows of a gain before it measures."""
    search = searched(8, gain=2.0)
    assert search.unproven()
    (said,) = Ending("seconds", BUDGET, 0).reasons(search, words)
    assert said.endswith("; a larger budget may find more")


def searched_on_a_noisy_host(seed: int, budget: int) -> Search:
    """A finished search at 30 % noise; max_ratio gains 1.4 times the speed from 10 on."""
    host = Host(seed, noise=0.3)
    search = Search([RATIO], {"max_ratio": 1}, ["write"], seed)
    while (setting := search.ask(budget - search.evaluations)) is not None:
        search.tell(host.measure({"write": 140.0 if setting["max_ratio"] >= 10 else 100.0}))
    return search


@pytest.mark.slow
def test_a_setting_whose_proof_the_budget_ended_is_named_and_provable_with_more() -> None:
    named = proven = 0
    for seed in range(12):
        search = searched_on_a_noisy_host(seed, 40)
        if not (found := search.unproven()):
            continue
        setting, needed = found
        named += 1
        assert search.short
        (said,) = Ending("seconds", BUDGET, search.evaluations).reasons(search, words)
        assert f"before {setting} was proven" in said
        proven += searched_on_a_noisy_host(seed, 40 + round(1.2 * needed)).choice().changed
    assert named >= 5
    assert proven >= named - 1  # a gain is missed by chance now and then


def test_what_was_measured_is_named_although_it_is_not_the_incumbent() -> None:
    search = searched(8, gain=2.0)
    search._state.incumbent = (0,)
    setting, _ = search.unproven() or ({}, 0)
    assert setting["max_ratio"] >= 10


def test_what_was_refused_or_rejected_is_not_named() -> None:
    search = searched(8, gain=2.0)
    search._state.refusals.append((1,))
    assert search.unproven() is None
    search = searched(8, gain=2.0)
    setting, _ = search.unproven() or ({}, 0)
    place = RATIO.values.index(setting["max_ratio"])
    search._state.rejected.update((one,) for one in range(1, len(RATIO.values)))
    assert search.unproven() is None
    search._confirmation.undecided.append((place,))
    assert search.unproven() is not None
    search._state.refusals.append((1,))
    assert search.unproven() is None


@pytest.mark.parametrize(("factor", "is_named"), [(0.5, False), (1.0, True)])
def test_a_setting_from_which_a_workload_suffers_is_not_named(
    factor: float, is_named: bool
) -> None:
    search = Search([RATIO], {"max_ratio": 1}, ["read", "write"])
    for _ in range(8):
        setting = search.ask(100)
        assert setting is not None
        much = setting["max_ratio"] >= 10
        search.tell({"read": 4.0 if much else 1.0, "write": factor if much else 1.0})
    assert (search.unproven() is not None) == is_named


def test_without_a_candidate_no_number_is_made_up() -> None:
    search = searched(8, gain=1.0)
    assert search.unproven() is None
    (said,) = Ending("seconds", BUDGET, 8).reasons(search, words)
    assert said.startswith("the search ended because too little is left of --budget 60s; a larger ")


def test_files_that_were_read_whole() -> None:
    (said,) = Ending(RANGES, BUDGET, 8).reasons(searched(8, gain=1.0), words)
    assert said.endswith("or may have been read ahead; name more files with --files")


def test_a_search_that_has_ended_by_itself_needs_no_word() -> None:
    search = Search([RATIO], {"max_ratio": 1}, ["write"])
    while setting := search.ask(100):
        search.tell({"write": 2.0 if setting["max_ratio"] >= 10 else 1.0})
    assert search.choice().changed
    assert not search.short
    assert search.unproven() is None
    assert Ending(NOTHING, BUDGET, search.evaluations).reasons(search, words) == []


class Clocked(Account):
    """A budget of which ``_seconds`` are spent."""

    _seconds = 0.0

    @property
    def seconds(self) -> float:
        return self._seconds

    def take(self, *seconds: float) -> None:
        self._cost += seconds
        self._seconds += sum(seconds)


def test_time_is_left_for_a_slow_start_after_fast_samples() -> None:
    """The proof measures the start again, so the last samples alone would promise too many."""
    account = Clocked(Budget(seconds=20.0))
    account.take(*[0.75] * 8)
    assert account.affordable() == 15  # 12 s left
    account.take(*[0.25] * 8)
    assert account.affordable() == 19  # 10 s, at 0.5 s each
    account.take(*[1.0] * 4)
    assert account.affordable() == 8  # 6 s, at 0.625 s each
    assert account.affordable(kept=0.125) == 4


def test_the_scarcest_part_counts() -> None:
    left = {"seconds": 9.9, "bytes_written": 3.5, RANGES: float("inf")}
    assert affordable(left) == 3
    assert scarcest(left) == "bytes_written"
    assert affordable({"seconds": -1.0}) == affordable({}) == 0
