# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --try-options without a mount: what it tries and chooses, and each option's share.

Figures are computed from the current options and knobs, so the tests know the truth.
"""

from __future__ import annotations

import errno
import math
import random
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from fusetune.bench.latency import Bins
from fusetune.bench.place import Unwritable, failure
from fusetune.bench.runner import Bench, BudgetSpent
from fusetune.bench.spending import MIB, Budget
from fusetune.bench.usage import Cpu, Usage
from fusetune.bench.worker import Interruption, Unanswered
from fusetune.bench.workloads import WORKLOADS, Workload
from fusetune.errors import FusetuneError
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.recipes.plan import Circumstances, plan
from fusetune.shadow.conditions import Conditions, _limits
from fusetune.shadow.guard import POINT, PRIVATE, Guard, Start
from fusetune.shadow.words import with_point
from fusetune.tuner.candidates import Candidates, Options
from fusetune.tuner.costs import UNLIMITED, Limits
from fusetune.tuner.guards import GUARDS
from fusetune.tuner.option_search import OptionSearch
from fusetune.tuner.space import Dimension
from fusetune.tuner.state import State
from fusetune.tuner.trials import Trials, describe
from tests.unit.conftest import Tree
from tests.unit.server_options.oursd import recipe_with

Speed = Callable[[Options, Mapping[str, int]], float]
KNOB = Dimension("max_ratio", (1, 10, 40), 1)


class MadeUpTrials:
    """Replaces `Trials`: speed and CPU time are functions of the settings, with 1 % noise."""

    def __init__(self, speed: Speed, most: int, seconds: Speed, outlasting: int | None) -> None:
        self.budget, self.seconds = Budget(), 1.0
        self._speed, self._seconds = speed, seconds
        self.most, self.outlasting = most, outlasting
        self.bins: dict[str, Bins] = {}
        self.usage = {"mixed": Usage(False, 1.0, Cpu(1), Cpu(1), 1)}
        self.measured: list[tuple[Options, dict[str, int]]] = []
        self._draw, self._cost_draw = random.Random(1), random.Random(2)

    def affordable(self, share: float) -> int:
        return int(share * self.most) - len(self.measured)

    def scarcest(self, share: float) -> str:
        return "seconds"

    def measure(
        self,
        candidates: Candidates,
        options: Options,
        knobs: Mapping[str, int],
    ) -> dict[str, float]:
        if len(self.measured) in (self.most, self.outlasting):
            raise BudgetSpent(1)
        self.measured.append((options, dict(knobs)))
        spent = Cpu(self._seconds(options, knobs) * math.exp(self._cost_draw.gauss(0, 0.01)))
        self.usage = {"mixed": Usage(False, 1.0, Cpu(), spent, 1 << 20)}
        return {"mixed": self._speed(options, knobs) * math.exp(self._draw.gauss(0, 0.01))}


def candidates_of(tree: Tree, **here: Any) -> Candidates:
    recipe = recipe_with(tree, "mount")
    changes = plan(recipe, {}, Circumstances("6.12", "2.5", root=True, **here)).changes
    return Candidates.of(recipe, changes)


def _quiet(share: float, words: str) -> None:
    """Show no progress."""


def run_on(
    candidates: Candidates,
    speed: Speed,
    evaluations: int = 150,
    seconds: Speed = lambda options, knobs: 1.0,
    limits: Limits = UNLIMITED,
    seed: int = 0,
    outlasting: int | None = None,
) -> tuple[OptionSearch, MadeUpTrials]:
    """Search; ``outlasting``: the number of a sample that outlasts the budget."""
    trials = MadeUpTrials(speed, evaluations, seconds, outlasting)
    before = {"max_ratio": 1}
    work = [WORKLOADS["mixed"]]
    search = (cast(Trials, trials), candidates, [KNOB], before, work)
    run = OptionSearch(*search, GUARDS, seed, _quiet, limits)
    run.explore()
    return run, trials


def test_a_change_goes_with_what_it_needs_and_without_what_it_excludes(tree: Tree) -> None:
    candidates = candidates_of(tree, workloads=("small-write",))
    assert set(candidates.changes) == {"cache", "writeback"}
    assert candidates.required == {"cache": frozenset(), "writeback": {"cache"}}
    assert candidates.with_required("writeback") == {"cache", "writeback"}
    assert candidates.possible({"writeback"}) == frozenset()
    assert candidates.possible({"cache"}) == {"cache"}
    assert candidates.values(frozenset({"cache"})) == {"cache": "some"}
    assert set(candidates.without({"cache"}).changes) == set()
    assert set(candidates.without({"writeback"}).changes) == {"cache"}


def test_an_option_waits_for_the_removal_of_what_it_excludes(tree: Tree) -> None:
    edits = (
        ('excludes = ["passthrough"]', 'excludes = ["threads=1"]'),
        ('default = "1"', 'default = "2"'),
        ('option = "single"\ncommand = "-s"', 'option = "threads"\nvalue = "1"\nto = "4"'),
    )
    recipe = recipe_with(tree, "mount", *edits)
    here = Circumstances("6.12", "2.5", root=True)
    candidates = Candidates.of(recipe, plan(recipe, {"threads": "1"}, here).changes)
    assert candidates.required == {
        "cache": frozenset(),
        "writeback": {"cache", "threads"},
        "passthrough": frozenset(),
        "threads": frozenset(),
    }


@pytest.mark.slow
def test_a_cache_that_only_helps_with_writeback_is_found(tree: Tree) -> None:
    """The cache alone is slower, so trying one option after another would find nothing."""

    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (0.9 if "cache" in options else 1) * (5 if "writeback" in options else 1)

    run, trials = run_on(candidates_of(tree, workloads=("small-write",)), speed)
    choice = run.search.choice()
    assert run.options(choice.setting) == {"cache", "writeback"}
    assert choice.gain.low < 4.5 < choice.gain.high
    shares = run.shares()
    for name in ("cache", "writeback"):  # without either, at most the cache is left
        assert shares[name].ratio == pytest.approx({"cache": 4.5, "writeback": 5}[name], rel=0.02)
    assert all(
        options in ({"cache"}, {"cache", "writeback"}, set()) for options, _ in trials.measured
    )


@pytest.mark.slow
def test_without_budget_for_the_gain_of_each_option_it_says_so(tree: Tree) -> None:
    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (2 if "cache" in options else 1) * (2 if "writeback" in options else 1)

    candidates = candidates_of(tree, workloads=("small-write",))
    why = "the gain of each option was not measured, because too little is left of --budget 60s"
    run, trials = run_on(candidates, speed)
    assert run.shares()
    assert why not in run.reasons()
    # What is left is too little for a round, or its second sample outlasts the budget.
    for left, outlasting in ((1, None), (5, None), (100, 1)):
        run, trials = run_on(candidates, speed)
        assert run.search.choice().changed
        now = len(trials.measured)
        trials.most, trials.outlasting = now + left, outlasting and now + outlasting
        assert run.shares() == {}
        assert run.reasons()[0] == why


@pytest.mark.slow
def test_live_knobs_are_searched_with_the_options(tree: Tree) -> None:
    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (2 if "writeback" in options and knobs["max_ratio"] > 1 else 1)

    smallest = 0
    for seed in range(10):
        run, _ = run_on(candidates_of(tree, workloads=("small-write",)), speed, seed=seed)
        setting = run.search.choice().setting
        assert run.options(setting) == {"cache", "writeback"}
        assert run.shares()["writeback"].low > 1.9
        smallest += run.knobs(setting)["max_ratio"] == 10
    assert smallest >= 8


def test_an_option_without_effect_is_not_advised(tree: Tree) -> None:
    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (2 if "threads" in options else 1)

    candidates = candidates_of(tree)
    assert set(candidates.changes) == {"cache", "writeback", "threads"}
    run, _ = run_on(candidates, speed)
    assert run.options(run.search.choice().setting) == {"threads"}
    assert run.shares() == {"threads": run.search.choice().gain}


@pytest.mark.slow
def test_a_gain_is_proven_although_a_sample_of_its_proof_outlasts_the_budget(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (2 if "threads" in options else 1)

    monkeypatch.setattr(State, "pairs_needed", lambda of, point: 8)
    _, trials = run_on(candidates_of(tree), speed)
    run, _ = run_on(candidates_of(tree), speed, outlasting=len(trials.measured) - 4)
    assert run.options(run.search.choice().setting) == {"threads"}
    assert run.ended_by == "seconds"


@pytest.mark.parametrize(("factor", "wanted"), [(1.0, {"cache", "threads"}), (2.5, {"threads"})])
def test_an_option_that_doubles_the_cpu_time_for_a_little_is_not_advised(
    tree: Tree, factor: float, wanted: set[str]
) -> None:
    """Also where another option gains much."""

    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (2 if "threads" in options else 1) * (1.07 if "cache" in options else 1)

    def seconds(options: Options, knobs: Mapping[str, int]) -> float:
        return factor if "cache" in options else 1.0

    run, _ = run_on(candidates_of(tree), speed, 150, seconds)
    assert run.options(run.search.choice().setting) == wanted


def test_a_setting_is_named_by_what_it_changes(tree: Tree) -> None:
    run, _ = run_on(candidates_of(tree), lambda options, knobs: 100, evaluations=4)
    assert run.words(frozenset({"threads"}), {"max_ratio": 30}) == "threads=8 max_ratio=30"
    assert run.words(frozenset(), {"max_ratio": 30}) == "max_ratio=30"
    assert run.words(frozenset(), {"max_ratio": 1}) == "no change"


def test_options_that_break_a_limit_are_refused_by_name(tree: Tree) -> None:
    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (3 if "threads" in options else 1)

    def seconds(options: Options, knobs: Mapping[str, int]) -> float:
        return 1.5 if "threads" in options else 1.0

    run, _ = run_on(candidates_of(tree), speed, 150, seconds, Limits(cpu_ratio=1.2))
    assert not run.search.choice().changed
    (setting, why), *_ = run.search.refused
    assert run.change_words(setting) == "threads=8"
    assert why.endswith("times the CPU time, above --max-cpu-ratio 1.2")


def test_a_refused_combination_is_named_although_a_part_of_it_gains_a_little(tree: Tree) -> None:
    """Everything exceeds the limit, and only together two options gain much."""

    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (4 if options >= {"cache", "threads"} else 1.1 if options else 1)

    run, _ = run_on(candidates_of(tree), speed, limits=Limits(memory_bytes=1))
    words = [run.change_words(setting) for setting, _ in run.search.refused]
    assert any("cache" in one and "threads" in one for one in words), words
    assert len(set(words)) == len(words)


def test_nothing_better_is_no_choice(tree: Tree) -> None:
    run, _ = run_on(candidates_of(tree), lambda options, knobs: 100 / (1 + len(options)))
    choice = run.search.choice()
    assert not choice.changed
    assert run.options(choice.setting) == frozenset()
    assert run.shares() == {}


@pytest.mark.slow
def test_each_option_that_is_not_proposed_has_its_reason(tree: Tree) -> None:
    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (2 if "threads" in options else 1) * (0.8 if "writeback" in options else 1)

    run, _ = run_on(candidates_of(tree), speed)
    said = {words.partition(":")[0]: words for words in run.reasons()}
    assert list(said) == ["writeback=true", "cache=some", "max_ratio"]
    assert said["cache=some"].startswith("cache=some: not proposed, no gain found (1.0")
    assert said["writeback=true"].startswith("writeback=true: not proposed, it is slower (0.8")


def test_without_a_sample_the_reason_says_so(tree: Tree) -> None:
    run, _ = run_on(candidates_of(tree), lambda options, knobs: 1.0, 0)
    assert run.reasons()[0] == "writeback=true: not proposed, nothing was measured"


def test_an_option_that_breaks_a_limit_has_no_second_reason(tree: Tree) -> None:
    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * (3 if "threads" in options else 1)

    run, _ = run_on(candidates_of(tree), speed, limits=Limits(memory_bytes=1))
    assert not [reason for reason in run.reasons() if reason.startswith("threads=8")]


@pytest.mark.parametrize("gaining", [("threads",), ("cache", "threads")])
def test_exploration_leaves_a_quarter_for_the_gains_of_several_options(
    tree: Tree, gaining: Sequence[str]
) -> None:
    """What a single option gains is known from the proof."""

    def speed(options: Options, knobs: Mapping[str, int]) -> float:
        return 100 * math.prod(2.0 for one in gaining if one in options)

    run, trials = run_on(candidates_of(tree), speed, 28)
    assert run.options(run.search.choice().setting) == set(gaining)
    assert (len(trials.measured) <= 21) == (len(gaining) > 1)


def test_a_shadow_may_read_a_quarter_of_the_budget_or_what_is_left(tree: Tree) -> None:
    budget = Budget(bytes_read=1 << 30)
    unused: Any = None
    trials = Trials(tree.host, unused, unused, [], budget, unused, None, None)
    assert trials._share("bytes_read") == 256 << 20
    trials._ended.append(cast(Bench, SimpleNamespace(bytes_read=1000 << 20)))
    assert trials._share("bytes_read") == 24 << 20


def test_a_guard_on_a_shadow_keeps_to_the_budget_of_all(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused: Any = None
    trials = Trials(tree.host, unused, unused, [], Budget(bytes_read=1 << 30), unused, None, None)
    shadow, ended = SimpleNamespace(mount=None), SimpleNamespace(bytes_read=900 << 20, requests=9)
    bench = SimpleNamespace(
        bytes_read=0,
        requests=0,
        most_read=lambda job: {"bytes_read": 100 << 20, "requests": 9},
        measure_reader=lambda job: 1.0,
    )
    trials._ended.append(cast(Bench, ended))
    trials._open[frozenset()] = cast(Any, (shadow, bench, None))  # counted with the ended one
    monkeypatch.setattr(Trials, "_bench", lambda self, candidates, options: (shadow, bench))
    monkeypatch.setattr("fusetune.tuner.trials.enforce", lambda host, mount, knobs: None)
    where: Any = (unused, frozenset(), {}, WORKLOADS["rand-read"])
    assert trials.measure_reader(*where) == 1.0
    bench.bytes_read = 25 << 20
    with pytest.raises(BudgetSpent, match="too little is left of --budget-read"):
        trials.measure_reader(*where)


def test_a_share_is_for_the_size_of_ranges_alone(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shadow without options is measured in every block, so it reads more than others."""
    unused: Any = None
    budget = Budget(bytes_read=1 << 30, requests=1 << 20)
    shadows: Any = SimpleNamespace(end=lambda shadow: None, inherited=None)
    trials = Trials(tree.host, unused, shadows, [], budget, unused, None, None)
    sized: list[Any] = []

    def bench_of(*words: object, **more: object) -> Any:
        sized.append(words[3])
        bench: Any = nullcontext()
        bench.budget = words[3]
        return bench

    monkeypatch.setattr("fusetune.tuner.trials.bench_of", bench_of)
    monkeypatch.setattr(Trials, "_mounted", lambda self, *what: SimpleNamespace(mount=None))
    _, bench, _ = trials._opened(unused, frozenset())
    assert [(share.bytes_read, share.requests) for share in sized] == [(1 << 28, 1 << 18)]
    assert (bench.budget.bytes_read, bench.budget.requests) == (1 << 30, 1 << 20)


def test_mounting_each_alone_leaves_half_of_the_time(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that do not come up take 12 s each."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def fails(self: Trials, candidates: Candidates, options: Options) -> NoReturn:
        now[0] += 12
        raise FusetuneError("it does not reply")

    monkeypatch.setattr(Trials, "_mounted", fails)
    unused: Any = None
    interruption: Any = SimpleNamespace(check=lambda: None)
    shadows: Any = SimpleNamespace(end=None)
    trials = Trials(tree.host, unused, shadows, [], Budget(18.0), interruption, None, None)
    failed = trials.try_alone(candidates_of(tree))
    first, *others = failed.values()
    assert first == "it does not reply"
    assert others == ["too little is left of --budget 18s"] * 2


def test_without_time_for_a_shadow(tree: Tree) -> None:
    """The budget is spent if something was measured before; otherwise it is too small."""
    unused: Any = None
    trials = Trials(tree.host, unused, unused, [], Budget(5.0), unused, None, None)
    with pytest.raises(FusetuneError, match="less than 5 s are left to measure; give a larger --b"):
        trials._opened(unused, frozenset())
    trials.evaluations = 1
    with pytest.raises(BudgetSpent):
        trials._opened(unused, frozenset())


def test_a_shadow_whose_beginning_outlasts_the_budget(mounted: Mount, tree: Tree) -> None:
    """Only then is it not the server that hangs."""

    def outlast(seconds: float) -> NoReturn:
        raise Unanswered(seconds)

    bench = Bench(tree.host, mounted, [], Budget(5.0), Interruption())
    for seconds, continues, spent in ((1.0, True, True), (1.0, False, False), (-0.4, True, False)):
        bench.continues = continues
        with pytest.raises(Unanswered) as error:
            bench._patiently(seconds, outlast)
        assert isinstance(error.value, BudgetSpent) == spent


def test_a_sample_that_ends_before_all_jobs_have_begun_is_repeated(
    mounted: Mount, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more to write, as far as the budget and --size allow."""
    idle, busy = ({"read": {"total_ios": n}, "write": {"total_ios": n}} for n in (0, 1))
    runs: list[tuple[int, bool]] = []

    def run(self: Bench, workload: Workload) -> list[dict[str, Any]]:
        size = self._sizes[workload.name]
        begun = size >= enough
        runs.append((size // MIB, begun))
        return [busy, busy if begun else idle]

    monkeypatch.setattr(Bench, "_run_once", run)
    bench = Bench(tree.host, mounted, [WORKLOADS["mixed"]], Budget(), Interruption())
    bench._sizes, bench._largest, enough = {"mixed": 2 * MIB}, 64 * MIB, 4 * MIB
    assert bench._run_workload(WORKLOADS["mixed"]) == [busy, busy]
    assert runs == [(2, False), (4, True)]
    bench._largest, enough = 6 * MIB, 64 * MIB
    with pytest.raises(FusetuneError, match=r"wrote 6 MiB before all .*; give a larger --budget-b"):
        bench._run_workload(WORKLOADS["mixed"])
    assert [size for size, _ in runs[2:]] == [4, 6, 6]


@pytest.mark.parametrize(
    ("evaluations", "continues", "raised"),
    [(0, False, Unwritable), (1, False, FusetuneError), (0, True, FusetuneError)],
)
def test_what_becomes_unwritable_during_a_run_ends_it(
    mounted: Mount, tree: Tree, evaluations: int, continues: bool, raised: type[FusetuneError]
) -> None:
    """Existing files are read instead only if nothing was measured before."""
    bench = Bench(tree.host, mounted, [], Budget(5.0), Interruption())
    bench.evaluations, bench.continues = evaluations, continues
    with pytest.raises(FusetuneError, match="it is read-only") as error, bench._failing_for_good():
        raise failure(mounted, errno.EROFS, "measure")
    assert type(error.value) is raised


def test_an_unsafe_option_is_proposed_only_by_name(tree: Tree) -> None:
    assert "nosync" not in candidates_of(tree).changes
    asked = candidates_of(tree, unsafe={"nosync": None}, workloads=("metadata",))
    assert asked.changes["nosync"].class_ == "unsafe"
    assert asked.changes["nosync"].after == "true"


def test_options_in_words() -> None:
    assert describe({"a": "1", "direct_io": None}) == "a=1 -direct_io"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["s", "host:/a", "/mnt/x"], ["s", "host:/a", POINT]),
        (["s", "/a", "x", "-o", "x=/mnt/x"], ["s", "/a", POINT, "-o", "x=/mnt/x"]),
        (["s", "/a", "/mnt//x/", "-f"], ["s", "/a", POINT, "-f"]),
        (["s", "/a", "/mnt/bound"], ["s", "/a", POINT]),
        (["s", "-f=h", "-d=/mnt/x"], ["s", "-f=h", f"-d={POINT}"]),
        (["s", "--d=x"], ["s", f"--d={POINT}"]),
        (["s", "a=/mnt/x"], "does not name it"),
        (["s", "-p=/mnt/x", "-d=/mnt/x"], "names it more than once"),
        (["s", "/mnt/x", "/mnt/x"], "names it more than once"),
        (["/mnt/x", "/a", "/dev/fd/9"], "does not name it"),
    ],
)
def test_a_second_instance_is_mounted_elsewhere(
    tree: Tree, words: list[str], wanted: list[str] | str
) -> None:
    tree.mount("/mnt/x")
    tree.mount("/mnt/bound")
    (mount,) = discover(tree.host)
    if isinstance(wanted, str):
        with pytest.raises(FusetuneError, match=wanted):
            with_point(tree.host, mount, words, "/mnt")
    else:
        assert with_point(tree.host, mount, words, "/mnt") == wanted


def test_a_mount_point_in_an_option_is_replaced(tree: Tree) -> None:
    start = Start(["s", f"-d={POINT}", POINT, f"-c={PRIVATE}"], {}, "/run/1")
    guard = Guard(tree.host, cast(Conditions, None), start, -1)
    assert guard._words() == ["s", "-d=/run/1", "/run/1", f"-c={PRIVATE}"]


def test_limits_of_a_process(tree: Tree) -> None:
    text = Path("/proc/self/limits").read_text()
    tree.write("proc/7/limits", text)
    every = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    own = {getattr(resource, name): resource.getrlimit(getattr(resource, name)) for name in every}
    assert _limits(tree.host, "7").items() >= own.items()
