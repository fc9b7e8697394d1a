# SPDX-License-Identifier: GPL-2.0-or-later
"""Guards: what they cover, when a choice is refused, and what is chosen instead."""

import math
import random
import re
from collections.abc import Callable, Mapping

import pytest

from fusetune.bench.reading import ReadBench, Reading
from fusetune.bench.runner import BudgetSpent
from fusetune.bench.spending import MIB, Budget
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import Workload, chosen
from fusetune.mounts.mount import Mount
from fusetune.tuner.guards import GUARDS, SHARE, Guards, judged
from fusetune.tuner.search import Choice, Search
from fusetune.tuner.space import Dimension
from tests.unit.conftest import Tree

AHEAD = Dimension("read_ahead_kb", (0, 32, 64, *(128 << power for power in range(9))), 128)
START = {"read_ahead_kb": 128}
JOBS = ["mmap-read (random)", "rand-read", "mmap-read (sequential)"]
Speed = Callable[[int], float]


def guards(
    *names: str,
    left_out: tuple[str, ...] = (),
    knob: str = "read_ahead_kb",
) -> Guards:
    return Guards.of(chosen(names), {knob: 128}, left_out)


@pytest.mark.parametrize(
    ("of", "names"),
    [
        (guards("seq-read"), GUARDS),
        (guards(), GUARDS),  # the default workload reads
        (guards("seq-write"), ()),
        (guards("rand-read"), ("mmap-read",)),  # it is not allowed to get worse anyway
        (guards("seq-read", left_out=("mmap-read",)), ("rand-read",)),
        (guards("seq-read", left_out=GUARDS), ()),
        (guards("seq-read", knob="strict_limit"), ()),  # no read depends on it
        (guards("seq-read", knob="-o cache"), GUARDS),  # it may depend on any option
    ],
)
def test_what_is_guarded(of: Guards, names: tuple[str, ...]) -> None:
    assert tuple(workload.name for workload in of.workloads) == names
    assert of.share == (SHARE if names else 0.0)


def test_only_a_change_that_reads_depend_on_is_guarded() -> None:
    start = {"read_ahead_kb": 128, "max_ratio": 1}
    of = Guards.of(chosen(["mixed"]), start, ())
    assert of.concern(start | {"read_ahead_kb": 256})
    assert not of.concern(start | {"max_ratio": 20})
    assert not Guards([], start).concern({"read_ahead_kb": 256})


@pytest.mark.parametrize(
    ("loss", "noise", "refused"),
    [
        (0.5, 0.02, True),
        (0.9, 0.02, True),
        (0.98, 0.001, True),
        (0.995, 0.001, False),  # no more than a gain that is ignored
        (0.98, 0.05, False),  # not proven
        (1.0, 0.02, False),
        (2.0, 0.02, False),
    ],
)
def test_a_proven_loss_refuses(loss: float, noise: float, refused: bool) -> None:
    draw = random.Random(2)
    pairs = [(math.exp(draw.gauss(0, noise)), math.exp(draw.gauss(0, noise))) for _ in range(6)]
    found = judged({}, "faults", [(100 * a, 100 * loss * b) for a, b in pairs], 0.02)
    assert found.refused == refused
    assert found.ratio.low < loss < found.ratio.high


@pytest.mark.parametrize(("faults", "fewest", "most"), [(0.55, 36, 40), (1.0, 0, 2)])
def test_a_large_loss_is_proven_on_a_noisy_host(faults: float, fewest: int, most: int) -> None:
    """With pairs that scatter by a factor of two, eight of them seldom prove it."""
    refused = 0
    for seed in range(40):
        of, draw = guards("seq-read"), random.Random(seed)

        def measure(setting: Mapping[str, int], job: Workload, draw: random.Random = draw) -> float:
            slower = setting["read_ahead_kb"] > 128 and job.name == JOBS[0]
            return (faults if slower else 1.0) * math.exp(draw.gauss(0, 0.45))

        refused += of.refuse({"read_ahead_kb": 2048}, measure, lambda: 1000.0)
    assert fewest <= refused <= most


def run(
    faults: Speed,
    seconds: float = 100.0,
    left_out: tuple[str, ...] = (),
    evaluations: int = 150,
    seed: int = 3,
    only: str = "",
) -> tuple[Choice, Guards]:
    """Search with a reader that is faster with more readahead, and ``faults`` to guard.

    These have no noise, or a harmless value would be refused by chance in some runs. ``only``: the
    job that they belong to; the others do not depend on readahead.
    """
    search, of = Search([AHEAD], START, ["seq-read"], seed), guards("seq-read", left_out=left_out)
    draw = random.Random(seed + 2)
    spent = [0.0, 0]

    def explore() -> None:
        while (setting := search.ask(evaluations - int(spent[1]))) is not None:
            spent[1] += 1
            worth = 100.0 * min(setting["read_ahead_kb"], 4096) ** 0.5
            search.tell({"seq-read": (worth or 50.0) * math.exp(draw.gauss(0, 0.01))})

    def measure(setting: Mapping[str, int], job: Workload) -> float:
        spent[0] += 1
        if spent[0] > seconds:
            raise BudgetSpent(1)
        return faults(setting["read_ahead_kb"]) if only in ("", job.name) else 100.0

    of.watch(search, explore, measure, lambda: seconds - spent[0])
    return search.choice(), of


def words(setting: Mapping[str, int]) -> str:
    return str(setting["read_ahead_kb"])


def seems(setting: Mapping[str, int]) -> float:
    return math.sqrt(setting["read_ahead_kb"] / 128)


def test_a_harmless_value_stays_chosen() -> None:
    choice, of = run(lambda ahead: 100.0)
    assert choice.setting["read_ahead_kb"] >= 2048
    assert [one.guard for one in of.measured] == JOBS
    assert not any(one.refused for one in of.measured)
    assert of.reasons(words, seems) == []


def test_a_value_that_a_guard_loses_by_is_refused_and_a_smaller_one_found() -> None:
    choice, of = run(lambda ahead: 100.0 if ahead <= 512 else 60.0)
    refused = of.passed_over
    assert refused
    assert min(one.setting["read_ahead_kb"] for one in refused) > 512
    assert 128 < choice.setting["read_ahead_kb"] <= 512
    said = re.fullmatch(
        r"(\d+): skipped, because mmap-read \(random\) seemed to fall to (\S+) times its speed.*",
        of.reasons(words, seems)[0],
    )
    assert said
    assert said[1] == words(refused[0].setting)
    assert float(said[2]) == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize("job", JOBS)
def test_a_loss_of_any_job_refuses(job: str) -> None:
    choice, of = run(lambda ahead: 100.0 if ahead <= 512 else 97.0, 300.0, only=job)
    refused = [one for one in of.measured if one.refused]
    assert {one.guard for one in refused} == {job}
    assert min(one.setting["read_ahead_kb"] for one in refused) > 512
    assert 128 < choice.setting["read_ahead_kb"] <= 512
    assert [one.guard for one in of.measured[-3:]] == JOBS


def test_what_a_guard_forbids_is_said_with_its_gain() -> None:
    _, of = run(lambda ahead: 100.0 if ahead <= 512 else 60.0)
    *_, last = of.reasons(words, seems)
    largest = max(one.setting["read_ahead_kb"] for one in of.passed_over)
    assert last == (
        "if no program reads mapped files at random places, --no-guard mmap-read allows "
        f"{largest}, which seems {(largest / 128) ** 0.5:.1f} times as fast"
    )
    assert last not in of.reasons(words, lambda setting: 1.05)


@pytest.mark.parametrize(
    ("left_out", "jobs"),
    [
        ((), ["[random]", "[rand-read]", "[sequential]"]),
        (("rand-read",), ["[random]", "[sequential]"]),
        (("mmap-read",), ["[rand-read]"]),
    ],
)
def test_the_job_that_loses_first_comes_first(left_out: tuple[str, ...], jobs: list[str]) -> None:
    found = guards("seq-read", left_out=left_out).jobs
    assert [re.findall(r"^\[(?!global).*", job.job, re.M)[0] for job in found] == jobs


@pytest.mark.slow
def test_a_great_loss_is_seen_before_the_budget_is_spent_on_a_proof() -> None:
    """So that 30 evaluations are mostly enough to find a smaller value."""
    found = 0
    for seed in range(50):
        choice, _ = run(lambda ahead: 100.0 if ahead <= 512 else 20.0, evaluations=30, seed=seed)
        assert choice.setting["read_ahead_kb"] <= 512
        found += choice.setting["read_ahead_kb"] > 128
    assert found >= 43


def test_where_every_gain_costs_a_guard_nothing_is_changed() -> None:
    choice, _ = run(lambda ahead: 100.0 if ahead <= 128 else 60.0)
    assert not choice.changed


def test_what_was_left_out_by_name_refuses_nothing() -> None:
    choice, of = run(lambda ahead: 100.0 if ahead <= 128 else 60.0, left_out=GUARDS)
    assert choice.setting["read_ahead_kb"] >= 2048
    assert of.measured == []


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, 5.0])
def test_what_there_is_no_time_to_guard_is_refused(seconds: float) -> None:
    choice, of = run(lambda ahead: 100.0, seconds)
    assert not choice.changed
    assert of.measured == []
    (told,) = of.reasons(words, seems)
    assert "no time was left to measure mmap-read and rand-read; give a" in told


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("bytes_read", "too little of --budget-read was left to measure .*; give a larger --budge"),
        ("requests", "too little of --budget-requests was left to measure .*; give a larger --bud"),
        ("ranges", "no range of the files was left to measure .*; name more files with --files, "),
    ],
)
def test_the_part_of_the_budget_that_guards_lacked_is_said(part: str, said: str) -> None:
    class Spent(BudgetSpent):
        pass

    Spent.part = part

    def measure(setting: Mapping[str, int], job: Workload) -> float:
        raise Spent(1)

    of = guards("seq-read")
    assert of.refuse({"read_ahead_kb": 2048}, measure, lambda: 100.0)
    (told,) = of.reasons(words, seems)
    assert re.search(f"^2048: refused, because {said}", told)


def test_bytes_and_calls_are_reserved_for_guards(mounted: Mount, tree: Tree) -> None:
    budget = Budget(60.0, bytes_read=1000 * MIB, requests=100_000)
    bench = ReadBench(tree.host, mounted, [], budget, Interruption(), Reading())
    bench.evaluations, bench.bytes_read, bench.requests = 1, 20 * MIB, 2000  # 2 with the warm-up
    assert bench._rest() == {"bytes_read": 98, "requests": 98}
    assert bench._rest(kept=0.2) == {"bytes_read": 78, "requests": 78}


def test_only_what_is_proven_can_be_refused() -> None:
    with pytest.raises(ValueError, match="proven"):
        Search([AHEAD], START, ["seq-read"]).refuse()
