# SPDX-License-Identifier: GPL-2.0-or-later
"""auto from its first trial to its last write, on a tree of files, with a simulated bench.

The bench reads the knobs that auto has set and makes up a figure of them. So the tests see without
a mount what auto chooses, sets, saves and puts back.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import pytest

from fusetune.bench.runner import Budget, BudgetSpent
from fusetune.bench.worker import Interrupted, Interruption
from fusetune.bench.workloads import WORKLOADS, Workload
from fusetune.changes.journal import Journal
from fusetune.changes.state import values_now
from fusetune.desired.config import load
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import save, saved_for
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.knobs import Knob
from fusetune.mounts.mount import Mount
from fusetune.tuner import auto as auto_module
from fusetune.tuner.auto import Outcome, auto
from tests.unit.conftest import STOCK, Tree

Worth = Callable[[Mapping[str, int]], float]


class SimulatedBench:
    """Stands for `Bench`: figures are a function of the values set, with 1 % noise."""

    worth: Worth = staticmethod(lambda values: 100.0)
    evaluations_affordable = 60
    at_evaluation: Callable[[int], None] = staticmethod(lambda number: None)

    def __init__(
        self,
        host: Host,
        mount: Mount,
        workloads: Sequence[Workload],
        budget: Budget,
        interruption: Interruption,
        size: int | None = None,
    ) -> None:
        self.host, self.mount, self.workloads, self.budget = host, mount, workloads, budget
        self.seconds, self.bytes_written, self.evaluations = 1.0, 0, 0
        self._draw = random.Random(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    @property
    def seconds_left(self) -> float:
        return self.budget.seconds - self.seconds

    def affordable(self) -> int:
        return self.evaluations_affordable - self.evaluations

    def measure(self) -> dict[str, float]:
        self.at_evaluation(self.evaluations)
        self.evaluations += 1
        figure = type(self).worth(values_now(self.host, self.mount))
        return {w.name: figure * math.exp(self._draw.gauss(0, 0.01)) for w in self.workloads}


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> type[SimulatedBench]:
    """A bench of this test's own in place of fio."""

    class Bench(SimulatedBench):
        pass

    monkeypatch.setattr(auto_module, "Bench", Bench)
    return Bench


@pytest.fixture(autouse=True)
def knob_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter value leaves nothing of a longer one, as in the kernel's files."""
    write = Host.write

    def write_whole(
        host: Host, relative: str, text: str, once_open: Callable[[], None] = lambda: None
    ) -> None:
        write(host, relative, text, once_open)
        os.truncate(host.path(relative), len(text))

    monkeypatch.setattr(Host, "write", write_whole)


def run(tree: Tree, mount: Mount, workload: str = "small-write", seed: int = 0) -> Outcome:
    resolver = Resolver(tree.host, load(tree.host))
    return auto(resolver, mount, [WORKLOADS[workload]], Budget(), seed=seed)


def dirtied(tree: Tree, kib: int) -> None:
    tree.write("sys/kernel/debug/bdi/0:40/stats", f"BdiDirtied: {kib:>10} kB\n")


def hints(outcome: Outcome) -> list[str]:
    return [reason for reason in outcome.reasons if "writeback cache" in reason]


def by_ratio(values: Mapping[str, int]) -> float:
    return 300.0 if values["max_ratio"] >= 10 else 100.0


# What is chosen


def test_max_ratio_is_raised_where_it_helps(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    """As on a mount with a writeback cache."""
    bench.worth = staticmethod(by_ratio)
    dirtied(tree, 4096)
    outcome = run(tree, mounted)
    assert outcome.choice.changed
    assert outcome.choice.gain.low > 2
    assert outcome.after == STOCK | {"max_ratio": 10} == tree.values()
    assert outcome.before == STOCK
    saved = saved_for(tree.host, mounted)
    assert saved
    assert saved.values == {"max_ratio": 10}
    assert Journal(tree.host, mounted).originals == {"max_ratio": 1}
    assert not hints(outcome)


@pytest.mark.parametrize(
    ("kib", "hint"),
    [(0, "this mount has no writeback"), (None, "if this mount has no writeback"), (4096, None)],
)
def test_a_remount_is_named_where_no_page_was_dirtied(
    tree: Tree, mounted: Mount, kib: int | None, hint: str | None
) -> None:
    """Whether pages were dirtied is known from debugfs only."""
    if kib is not None:
        dirtied(tree, kib)
    found = hints(run(tree, mounted))
    assert len(found) == (hint is not None)
    assert all(one.startswith(str(hint)) for one in found)
    assert not hints(run(tree, mounted, "seq-read"))


def test_no_remount_is_named_where_a_dirty_limit_was_proven_to_matter(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    bench.worth = staticmethod(by_ratio)
    assert not hints(run(tree, mounted))


def test_max_pages_is_lowered_where_it_helps(
    tree: Tree, by_module: Mount, bench: type[SimulatedBench]
) -> None:
    """Only mounts of the module have it; INIT negotiated 256, which is stock and the most."""
    seen = set()

    def pages(values: Mapping[str, int]) -> float:
        seen.add(values["max_pages"])
        return 200.0 if values["max_pages"] == 64 else 100.0

    bench.worth = staticmethod(pages)
    outcome = run(tree, by_module, "shared-write")
    assert seen == {16, 32, 64, 128, 256}
    assert (outcome.before["max_pages"], outcome.after["max_pages"]) == (256, 64)
    assert tree.read("sys/fs/fusetuned/connections/41/max_pages").strip() == "64"
    saved = saved_for(tree.host, by_module)
    assert saved
    assert saved.values == {"max_pages": 64}


def test_the_threshold_follows_where_max_background_is_raised(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    bench.worth = staticmethod(lambda v: 300.0 if v["congestion_threshold"] >= 36 else 100.0)
    outcome = run(tree, mounted, "seq-read")
    background = outcome.after["max_background"]
    assert background >= 48
    assert tree.values()["congestion_threshold"] == background * 3 // 4


def test_nothing_better_changes_nothing_after_measuring(tree: Tree, mounted: Mount) -> None:
    outcome = run(tree, mounted)
    assert outcome.evaluations > 10
    assert len(outcome.trials) > 3  # other values were set meanwhile
    assert not outcome.choice.changed
    assert outcome.after == outcome.before == STOCK == tree.values()
    assert saved_for(tree.host, mounted) is None
    assert not tree.journals()


def test_back_at_stock_nothing_is_saved_any_more(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    """Values set before turn out worse than stock: the saved ones go with them."""
    tree.live(values={"max_ratio": 40})
    save(tree.host, mounted, {"max_ratio": 40}, "auto", 1.5, (1.4, 1.6))
    bench.worth = staticmethod(lambda v: 100.0 if v["max_ratio"] > 1 else 200.0)
    assert run(tree, mounted).after == STOCK == tree.values()
    assert saved_for(tree.host, mounted) is None


# Failures: whatever happens, the values are those found at the start


def test_a_journal_that_cannot_be_written_is_known_before_measuring(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    bench.at_evaluation = staticmethod(measured.append)

    def full(self: Journal, *words: object) -> None:
        raise FusetuneError("cannot write the journal: No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    for seed in range(12):  # in some of them the first trial is the start, which writes nothing
        with pytest.raises(FusetuneError, match="No space left on device"):
            run(tree, mounted, seed=seed)
    assert not measured
    assert tree.values() == STOCK


def test_a_value_that_the_kernel_refuses_ends_the_run(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Knob.write

    def refuse(self: Knob, host: Host, mount: Mount | None, value: int) -> None:
        if self.name == "max_ratio" and value > 20:
            raise FusetuneError(f"the kernel refused {self.name}={value}")
        write(self, host, mount, value)

    monkeypatch.setattr(Knob, "write", refuse)
    bench.worth = staticmethod(by_ratio)
    with pytest.raises(FusetuneError, match="the kernel refused max_ratio"):
        run(tree, mounted)
    assert tree.values() == STOCK
    assert not tree.journals()
    assert saved_for(tree.host, mounted) is None


def test_a_choice_that_cannot_be_saved_is_put_back(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*words: object) -> None:
        assert tree.values()["max_ratio"] == 10  # the choice had been set
        raise FusetuneError("cannot write the results: No space left on device")

    monkeypatch.setattr(auto_module, "save", full)
    bench.worth = staticmethod(by_ratio)
    with pytest.raises(FusetuneError, match="No space left on device"):
        run(tree, mounted)
    assert tree.values() == STOCK
    assert not tree.journals()


def test_values_go_back_where_the_journal_fails_meanwhile(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk after the first trials: nothing can be journalled, yet everything goes back."""
    set_meanwhile: list[dict[str, int]] = []

    def full(self: Journal, *words: object) -> None:
        raise FusetuneError("cannot write the journal: No space left on device")

    def fill(number: int) -> None:
        if tree.values() != STOCK and not set_meanwhile:
            set_meanwhile.append(tree.values())
            monkeypatch.setattr(Journal, "append", full)

    bench.at_evaluation = staticmethod(fill)
    with pytest.raises(FusetuneError, match="No space left on device"):
        run(tree, mounted)
    assert set_meanwhile
    assert tree.values() == STOCK


def test_a_mount_that_goes_away_is_named(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    def unmount(number: int) -> None:
        if number == 2:
            (tree.root / "sys/class/bdi/0:40").rename(tree.root / "sys/class/bdi/gone")

    bench.at_evaluation = staticmethod(unmount)
    with pytest.raises(FusetuneError, match=r"/mnt/one.*went away|/mnt/one.*unmounted"):
        run(tree, mounted)


@pytest.mark.parametrize(
    ("number", "words"),
    [(3, "nothing was proven better so far"), (1000, "the best proven so far was .*max_ratio=10 ")],
)
def test_an_interruption_tells_what_was_proven(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench], number: int, words: str
) -> None:
    bench.worth = staticmethod(by_ratio)

    def interrupt(evaluation: int) -> None:
        if evaluation == number:
            raise Interrupted("interrupted: everything was put back as it was")

    bench.at_evaluation = staticmethod(interrupt)
    if number == 1000:  # when the bench is left, after the last sample

        def leave(self: SimulatedBench, *exception: object) -> None:
            raise Interrupted("interrupted: everything was put back as it was")

        bench.__exit__ = leave  # type: ignore[method-assign]
    with pytest.raises(Interrupted, match=words):
        run(tree, mounted)
    assert tree.values() == STOCK
    assert not tree.journals()
    assert saved_for(tree.host, mounted) is None


def test_a_sample_that_outlasts_the_budget_ends_the_run_without_failure(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    def spent(number: int) -> None:
        if number == 5:
            raise BudgetSpent(1.0)

    bench.at_evaluation = staticmethod(spent)
    bench.worth = staticmethod(by_ratio)
    outcome = run(tree, mounted)
    assert outcome.evaluations == 5
    assert not outcome.choice.changed
    assert tree.values() == STOCK
