# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets of workloads, and the search that weighs its workloads by their shares."""

import math
import random

import pytest

from fusetune.bench.workloads import DEFAULT, SETS, WORKLOADS, WorkloadSet, chosen, members
from fusetune.errors import UsageError
from fusetune.tuner.search import Choice, Search
from fusetune.tuner.space import Dimension

each = pytest.mark.parametrize("one", SETS.values(), ids=lambda one: one.name)


@each
def test_the_shares_of_a_set_sum_to_1(one: WorkloadSet) -> None:
    assert SETS[one.name] is one
    assert one.name not in WORKLOADS
    assert one.shares.keys() <= WORKLOADS.keys()
    assert min(one.shares.values()) > 0
    assert sum(one.shares.values()) == pytest.approx(1)


@each
def test_a_set_stands_for_its_workloads(one: WorkloadSet) -> None:
    assert {w.name: w.weight for w in chosen([one.name])} == pytest.approx(dict(one.shares))
    assert members([one.name]) == tuple(one.shares)


def test_each_name_counts_as_much_as_another() -> None:
    weights = {w.name: w.weight for w in chosen(["media", "video", "seq-read", "media"])}
    assert weights == pytest.approx(
        {"video": 1.5, "many-streams": 0.3, "seq-write": 0.2, "seq-read": 1.0}
    )


def test_without_a_name_there_is_the_default_or_nothing() -> None:
    assert [(w.name, w.weight) for w in chosen([])] == [(DEFAULT, 1.0)]
    assert members([]) == ()


def test_an_unknown_name_is_told_what_is_known() -> None:
    with pytest.raises(UsageError, match=r"unknown workload 'hom'; known are mixed, .*, home, "):
        members(["hom"])


SWITCH = Dimension("mode", (0, 1, 2), 0, ordered=False)
#: Mode 1 is for readers, mode 2 for writers; neither harms the others.
WORTH = {"read": (100.0, 130.0, 100.0), "write": (100.0, 100.0, 120.0)}


def choice(*weights: float) -> Choice:
    search = Search([SWITCH], {"mode": 0}, list(WORTH), 1, weights)
    draw = random.Random(3)
    for left in range(120, 0, -1):
        setting = search.ask(left)
        if setting is None:
            break
        mode = setting["mode"]
        search.tell({n: worth[mode] * math.exp(draw.gauss(0, 0.01)) for n, worth in WORTH.items()})
    return search.choice()


@pytest.mark.parametrize(
    ("weights", "mode"), [((), 1), ((1.0, 1.0), 1), ((9.0, 1.0), 1), ((0.1, 0.9), 2)]
)
def test_the_search_weighs_its_workloads(weights: tuple[float, ...], mode: int) -> None:
    found = choice(*weights)
    assert found.setting == {"mode": mode}
    share = weights[mode - 1] / sum(weights) if weights else 0.5
    gain = (1.3, 1.2)[mode - 1] ** share
    assert found.gain.ratio == pytest.approx(gain, rel=0.02)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, -1.0)])
def test_weights_must_make_sense(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="weights"):
        choice(*weights)
