# SPDX-License-Identifier: GPL-2.0-or-later
"""Failures of auto: whatever happens, the original values are restored."""

from __future__ import annotations

import pytest

from fusetune.bench.runner import BudgetSpent
from fusetune.bench.worker import Interrupted
from fusetune.changes.journal import TRIAL, Journal, Record
from fusetune.desired.reset import reset
from fusetune.desired.results import saved_for
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.knobs import Knob
from fusetune.mounts.mount import Mount
from fusetune.tuner import values as values_module
from fusetune.tuner.state import State
from tests.unit.auto_runs.simulated_bench import (
    SimulatedBench,
    by_ratio,
    run,
)
from tests.unit.conftest import STOCK, Tree


def test_a_journal_that_cannot_be_written_is_known_before_measuring(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    bench.at_evaluation = staticmethod(measured.append)

    def full(self: Journal, *words: object) -> None:
        raise FusetuneError("cannot write the journal: No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    for seed in range(12):  # in some the first trial is the start, which writes nothing
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


def test_what_a_killed_run_tried_is_not_where_the_next_one_starts(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    """Although another command has removed the lock meanwhile."""
    Journal(tree.host, mounted).append([Record("max_ratio", 1, 50, TRIAL, 0.0)])
    tree.live(values={"max_ratio": 50})
    outcome = run(tree, mounted)
    assert outcome.before == STOCK
    assert not outcome.choice.changed
    assert tree.values() == STOCK
    assert not tree.journals()


@pytest.mark.parametrize("error", [FusetuneError("it is full"), OSError(28, "it is full")])
def test_a_choice_that_cannot_be_saved_is_put_back(
    tree: Tree,
    mounted: Mount,
    bench: type[SimulatedBench],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def full(*words: object) -> None:
        assert tree.values()["max_ratio"] == 10  # the choice was already set
        raise error

    monkeypatch.setattr(values_module, "save", full)
    bench.worth = staticmethod(by_ratio)
    with pytest.raises(type(error), match="it is full"):
        run(tree, mounted)
    assert tree.values() == STOCK
    assert not tree.journals()


def test_values_go_back_where_the_journal_fails_meanwhile(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk after the first trials: no journal can be written, but all is restored."""
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
    with pytest.raises(FusetuneError, match=r"/mnt/one.*disappeared|/mnt/one.*unmounted"):
        run(tree, mounted)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (3, "nothing was proven to be better so far"),
        (1000, "the best proven setting so far was .*max_ratio=10 "),
    ],
)
def test_an_interruption_tells_what_was_proven(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench], number: int, words: str
) -> None:
    bench.worth = staticmethod(by_ratio)

    def interrupt(evaluation: int) -> None:
        if evaluation == number:
            raise Interrupted("interrupted: everything was restored")

    bench.at_evaluation = staticmethod(interrupt)
    if number == 1000:  # on leaving the bench, after the last sample

        def leave(self: SimulatedBench, *exception: object) -> None:
            raise Interrupted("interrupted: everything was restored")

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


@pytest.mark.slow
@pytest.mark.parametrize("outlasted", [False, True])
def test_a_gain_is_proven_although_the_budget_ends_during_a_pair(
    outlasted: bool,
    tree: Tree,
    mounted: Mount,
    bench: type[SimulatedBench],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Either a sample outlasts the budget, or so many seconds that none is left for the next."""
    monkeypatch.setattr(State, "pairs_needed", lambda of, point: 8)
    bench.worth = staticmethod(by_ratio)
    whole = run(tree, mounted).evaluations
    reset(tree.host, mounted)

    def spent(number: int) -> None:
        if number == whole - 4:
            if outlasted:
                raise BudgetSpent(1.0)
            bench.evaluations_affordable = 0

    bench.at_evaluation = staticmethod(spent)
    outcome = run(tree, mounted, cold=True)
    assert outcome.evaluations < whole
    assert outcome.ended_by == ("seconds" if outlasted else "bytes_written")
    assert outcome.choice.gain.low > 2
    assert tree.values() == STOCK | outcome.choice.setting
