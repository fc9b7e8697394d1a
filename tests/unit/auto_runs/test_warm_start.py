# SPDX-License-Identifier: GPL-2.0-or-later
"""auto begins at its earlier choice, if source, server, kernel and workloads are the same."""

from __future__ import annotations

import json

import pytest

from fusetune.bench.runner import BudgetSpent
from fusetune.desired.curve import BeforeAfter
from fusetune.desired.results import saved_for, saved_path
from fusetune.mounts.mount import Mount
from fusetune.report.documents.auto import auto_result
from fusetune.tuner.auto import Outcome
from fusetune.tuner.curves import curves
from tests.unit.auto_runs.simulated_bench import SimulatedBench, by_ratio, run
from tests.unit.conftest import Tree, process

pytestmark = pytest.mark.slow

KERNEL = "proc/sys/kernel/osrelease"


@pytest.fixture
def first(tree: Tree, mounted: Mount, bench: type[SimulatedBench]) -> Outcome:
    """A run that raised max_ratio; the mount has its original values again."""
    bench.worth = staticmethod(by_ratio)
    tree.write(KERNEL, "6.12.94+deb13-amd64\n")
    process(tree, 10, "mirrorfs", "/mnt/one", fds={4: "40"})
    outcome = run(tree, mounted)
    assert outcome.after["max_ratio"] == 10
    assert outcome.warm_start is None
    tree.live()
    return outcome


def text(outcome: Outcome) -> str:
    return "\n".join(part for part in auto_result(outcome).parts() if isinstance(part, str))


def test_it_begins_where_it_ended(tree: Tree, mounted: Mount, first: Outcome) -> None:
    saved = saved_for(tree.host, mounted)
    assert saved
    assert saved.run
    assert saved.run.start == first.start
    assert saved.run.chosen == first.choice.setting
    assert saved.run.weights == {"small-write": 1.0}
    assert saved.run.curves
    assert saved.run.curves == curves(saved.run)
    assert saved.run.proof == [
        BeforeAfter(name, *figures) for name, figures in first.choice.per_workload.items()
    ]
    # With 3 of 24 seeds it finds another value that is equally good.
    again = run(tree, mounted, seed=2)
    assert again.warm_start
    assert again.warm_start.setting["max_ratio"] == 10
    assert again.warm_start.time == saved.time
    assert again.warm_start.holds
    assert again.choice.changed
    assert again.after == first.after == tree.values()
    assert again.evaluations < first.evaluations
    measured = [trial.setting for trial in again.trials[:6]]
    assert again.warm_start.setting in measured


def test_it_is_told(tree: Tree, mounted: Mount, first: Outcome) -> None:
    again = run(tree, mounted, seed=1)
    begun = auto_result(again).warm_start
    assert begun
    assert begun.knobs["max_ratio"] == 10
    assert begun.holds
    assert "started from max_background=12 max_ratio=10 strict_limit=1, chosen on " in text(again)
    assert "began at " not in text(first)


@pytest.mark.parametrize("change", ["cold", "kernel", "server", "unit", "saved"])
def test_it_begins_anew(tree: Tree, mounted: Mount, first: Outcome, change: str) -> None:
    if change == "kernel":
        tree.write(KERNEL, "7.2.1-amd64\n")
    if change == "server":
        (tree.root / "proc/10/exe").unlink()
        (tree.root / "proc/10/exe").symlink_to("/usr/bin/other")
    if change == "saved":
        path = saved_path(tree.host, mounted)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"run": None}))
    workload = "seq-write" if change == "unit" else "small-write"
    assert run(tree, mounted, workload, seed=1, cold=change == "cold").warm_start is None


def test_a_kernel_of_the_same_series_changes_nothing(
    tree: Tree, mounted: Mount, first: Outcome
) -> None:
    tree.write(KERNEL, "6.12.120+deb13-amd64\n")
    assert run(tree, mounted, seed=1).warm_start


def test_a_host_that_has_changed_is_told(
    tree: Tree, mounted: Mount, first: Outcome, bench: type[SimulatedBench]
) -> None:
    bench.worth = staticmethod(lambda values: 300.0 if values["max_ratio"] <= 1 else 100.0)
    again = run(tree, mounted, seed=1)
    assert again.warm_start
    assert not again.warm_start.holds
    assert "no longer holds" in text(again)
    assert not again.choice.changed
    assert tree.values() == first.before


def test_a_server_that_is_not_known_leaves_nothing_to_begin_with(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    bench.worth = staticmethod(by_ratio)
    assert run(tree, mounted).choice.changed
    saved = saved_for(tree.host, mounted)
    assert saved
    assert saved.run is None


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("affordable", [0, 3])
def test_a_budget_that_allows_no_evaluation(
    tree: Tree,
    mounted: Mount,
    bench: type[SimulatedBench],
    monkeypatch: pytest.MonkeyPatch,
    affordable: int,
) -> None:
    def spent(self: SimulatedBench) -> dict[str, float]:
        raise BudgetSpent(2.0)

    bench.evaluations_affordable = affordable or bench.evaluations_affordable
    if not affordable:
        monkeypatch.setattr(SimulatedBench, "measure", spent)
    outcome = run(tree, mounted, seed=1)
    assert not outcome.choice.changed
    assert any(reason.endswith("; a larger budget may find more") for reason in outcome.reasons)
