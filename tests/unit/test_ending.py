# SPDX-License-Identifier: GPL-2.0-or-later
"""The message about a search that its budget ended, and how much more it would take."""

import pytest

from fusetune.bench.spending import NOTHING, RANGES, Account, Budget, affordable, scarcest
from fusetune.tuner.ending import Ending
from fusetune.tuner.search import Search
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
    assert start.startswith(f"the search ended because {spent} is used up, before {setting} was ")
    assert start.endswith(f"proven, which needs about {needed} more evaluations")
    assert more.startswith(f"try {larger}")


def test_without_a_candidate_no_number_is_made_up() -> None:
    search = searched(8, gain=1.0)
    assert search.unproven() is None
    (said,) = Ending("seconds", BUDGET, 8).reasons(search, words)
    assert said == "the search ended because --budget 60s is used up; a larger budget may find more"


def test_files_that_were_read_whole() -> None:
    (said,) = Ending(RANGES, BUDGET, 8).reasons(searched(8, gain=1.0), words)
    assert said.endswith("it has read the files completely; name more files with --files")


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
    assert account.affordable(kept=2.5) == 4


def test_the_scarcest_part_counts() -> None:
    left = {"seconds": 9.9, "bytes_written": 3.5, RANGES: float("inf")}
    assert affordable(left) == 3
    assert scarcest(left) == "bytes_written"
    assert affordable({"seconds": -1.0}) == affordable({}) == 0
