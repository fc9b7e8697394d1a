# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --try-options: what it may try, and what the command that it prints writes."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from fusetune.bench.intervals import Interval
from fusetune.bench.workloads import WORKLOADS
from fusetune.errors import UsageError
from fusetune.mounts.discover import find
from fusetune.recipes.advice import Advice, advice_of, examine
from fusetune.recipes.by_module import Means
from fusetune.recipes.load import load_recipes
from fusetune.recipes.plan import plan
from fusetune.report.documents.auto import auto_options
from fusetune.tuner.candidates import Candidates
from fusetune.tuner.options import OptionsOutcome, _planned
from fusetune.tuner.search import Choice
from tests.unit.conftest import STOCK, Tree
from tests.unit.server_options.etc_files import fstab, run, with_options
from tests.unit.server_options.oursd import recipe_with, serve
from tests.unit.server_options.test_advise_module import ALL, rooted

__all__ = ["rooted"]
USE = ["small-write", "metadata", "seq-read"]
GAIN = Interval(1.3, 1.2, 1.4)


def commands(tree: Tree, proven: Collection[str], means: Means | None = None) -> list[list[str]]:
    """Return the words of each printed remount after the mount point."""
    mount = find(tree.host, "/mnt/one")
    seen = examine(tree.host, mount, load_recipes(tree.host), USE, means=means)
    assert not isinstance(seen, Advice)
    here = replace(seen.here, unsafe={"nosync": None, "tuned.parallel_extend": None})
    found = Candidates.of(seen.recipe, plan(seen.recipe, seen.settings, here).changes)
    assert found.changes.keys() > set(proven)
    advice = advice_of(seen, found.plan(frozenset(proven)))
    choice = Choice({}, True, GAIN, {}, ())
    workloads = [WORKLOADS[name] for name in USE]
    outcome = OptionsOutcome(mount, workloads, STOCK, STOCK, choice, advice, {})
    printed = [line for line in auto_options(outcome).as_text().splitlines() if "remount /" in line]
    return [shlex.split(shlex.split(line)[0])[3:] for line in printed]


@pytest.mark.parametrize(
    ("proven", "options"),
    [
        ({"threads"}, "ro,cache=off,door=hunter2,threads=8"),
        ({"writeback", "cache"}, "ro,cache=some,door=hunter2,threads=1,writeback"),
        ({"threads", "nosync"}, "ro,cache=off,door=hunter2,threads=8"),
    ],
)
def test_only_what_was_proven(mounted_by_fstab: Tree, proven: set[str], options: str) -> None:
    (words,) = commands(mounted_by_fstab, proven)
    assert run(mounted_by_fstab, *words) == 0
    assert fstab(mounted_by_fstab) == with_options(options)


@pytest.mark.parametrize("proven", ["nosync", "tuned.attr_timeout", "tuned.parallel_extend"])
def test_no_command_for_what_it_does_not_write(rooted: Tree, proven: str) -> None:
    assert commands(rooted, {proven}, ALL) == []


def planned(tree: Tree, unsafe: Mapping[str, str | None]) -> set[str]:
    mount, recipes = find(tree.host, "/mnt/one"), load_recipes(tree.host)
    _, found = _planned(tree.host, mount, recipes, [WORKLOADS["seq-read"]], unsafe)
    return {change.option for change in found.changes} & {*unsafe}


def test_an_unsafe_option_with_another_value_is_tried_as_well(ours: Tree) -> None:
    unsafe = 'class = "unsafe"\ncondition = "it is fit"\notherwise = "it crashes"'
    recipe_with(ours, "mount", ('until = "3.0"\nclass = "safe"', unsafe))
    serve(ours, "a", "/mnt/one", "-o", "threads=2")
    assert planned(ours, {"threads": None}) == {"threads"}
    with pytest.raises(UsageError, match=r"^--try-unsafe threads: /mnt/one has it already, or "):
        planned(ours, {"threads": "2"})
