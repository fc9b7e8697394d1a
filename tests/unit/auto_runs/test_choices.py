# SPDX-License-Identifier: GPL-2.0-or-later
"""auto from its first trial to its last write, on a tree of files, with a simulated bench.

The bench reads the knobs that auto has set and computes a figure from them. So the tests see
without a mount what auto chooses, sets, saves and restores.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fusetune.changes.apply import set_knobs
from fusetune.changes.journal import Journal
from fusetune.desired.results import save, saved_for
from fusetune.knobs import LIVE_BY_NAME
from fusetune.mounts.mount import Mount
from tests.unit.auto_runs.simulated_bench import (
    SimulatedBench,
    by_ratio,
    dirtied,
    hints,
    run,
)
from tests.unit.conftest import STOCK, Tree

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


def test_the_part_of_the_budget_that_ended_the_run_is_named(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    bench.evaluations_affordable = 150
    assert run(tree, mounted).ended_by == "search"
    bench.worth = staticmethod(by_ratio)
    bench.evaluations_affordable = 7  # too few for a proof
    outcome = run(tree, mounted)
    assert not outcome.choice.changed
    assert outcome.ended_by == "bytes_written"
    assert any(" of --budget-bytes " in reason for reason in outcome.reasons)


@pytest.mark.parametrize(
    ("kib", "hint"),
    [(0, "this mount has no writeback"), (None, "if this mount has no writeback"), (4096, None)],
)
def test_a_remount_is_named_where_no_page_was_dirtied(
    tree: Tree, mounted: Mount, kib: int | None, hint: str | None
) -> None:
    """Only debugfs shows whether pages were dirtied."""
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
    """Only mounts of the module have it; INIT negotiated 256, which is stock and the maximum."""
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
    assert len(outcome.trials) > 3  # other values have been set meanwhile
    assert not outcome.choice.changed
    assert outcome.after == outcome.before == STOCK == tree.values()
    assert saved_for(tree.host, mounted) is None
    assert not tree.journals()


def test_back_at_stock_that_is_saved(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench]
) -> None:
    """If the current values turn out worse than stock, stock replaces the saved ones."""
    set_knobs(tree.host, mounted, {LIVE_BY_NAME["max_ratio"]: 40})
    save(tree.host, mounted, {"max_ratio": 40}, "auto", 1.5, (1.4, 1.6))
    bench.worth = staticmethod(lambda v: 100.0 if v["max_ratio"] > 1 else 200.0)
    assert run(tree, mounted).after == STOCK == tree.values()
    saved = saved_for(tree.host, mounted)
    assert saved
    assert saved.values == {}
