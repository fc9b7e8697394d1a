# SPDX-License-Identifier: GPL-2.0-or-later
"""Which options advise proposes: what they need, exclude, and on which systems they work."""

from typing import Any

import pytest

from fusetune.recipes.plan import Circumstances, Plan, plan
from fusetune.recipes.recipe import Recipe
from tests.unit.conftest import Tree
from tests.unit.server_options.oursd import recipe_with

SMALL: dict[str, Any] = {"workloads": ("small-write",)}


def planned(recipe: Recipe, settings: dict[str, str] | None = None, **here: Any) -> Plan:
    """The changes on Linux 6.12 for root's server of version 2.5."""
    known: dict[str, Any] = {
        "kernel": "6.12.1-x",
        "version": "2.5",
        "library": "none",
        "root": True,
    }
    return plan(recipe, settings or {}, Circumstances(**known | here))


def values(found: Plan) -> dict[str, str | None]:
    return {change.option: change.after for change in found.changes}


def test_an_option_comes_with_what_it_needs(tree: Tree) -> None:
    found = planned(recipe_with(tree), **SMALL)
    assert values(found) == {"writeback": "true", "cache": "some"}
    writeback, cache = found.changes
    assert (writeback.before, writeback.class_, writeback.needs) == (
        *("false", "conditional"),
        ("cache=some",),
    )
    assert (writeback.condition, writeback.risk) == ("no one else writes", "data is old")
    assert (cache.before, cache.condition) == ("off", None)
    assert "no program can see a difference" in cache.risk
    assert values(planned(recipe_with(tree), {"cache": "all"}, **SMALL)) == {"writeback": "true"}


def test_of_two_that_exclude_each_other_the_first_is_proposed(tree: Tree) -> None:
    found = planned(recipe_with(tree))
    assert values(found) == {"writeback": "true", "cache": "some", "threads": "8"}
    assert found.named == ["passthrough is not proposed: it conflicts with writeback=true"]
    set_already = planned(recipe_with(tree), {"passthrough": "true"})
    assert "writeback" not in values(set_already)
    assert set_already.named == ["writeback is not proposed: it conflicts with passthrough=true"]


@pytest.mark.parametrize(
    ("here", "proposed"),
    [
        ({}, True),
        ({"kernel": "6.8.0"}, False),
        ({"kernel": "6.10"}, True),
        ({"root": False}, False),
    ],
)
def test_kernel_and_root(tree: Tree, here: dict[str, Any], proposed: bool) -> None:
    found = planned(recipe_with(tree), workloads=("seq-read",), **here)
    assert ("passthrough" in values(found)) is proposed
    if proposed:
        (change,) = found.changes
        assert change.needs == ("Linux 6.9 or later", "a server that runs as root")
        assert change.source == "ours(1), passthrough (read, not tried)"


@pytest.mark.parametrize(
    ("version", "proposed"),
    [
        ("2.0.9", False),
        ("2.1", True),
        ("2.10", True),
        ("3.0.7", True),
        ("3.1", False),
        (None, True),
    ],
)
def test_versions(tree: Tree, version: str | None, proposed: bool) -> None:
    found = planned(recipe_with(tree), workloads=("metadata",), version=version)
    assert values(found) == ({"threads": "8"} if proposed else {})
    if version is None:
        assert found.changes[0].needs == ("ours 2.1 or later", "ours 3.0 or earlier")


@pytest.mark.parametrize(
    ("library", "proposed"),
    [("libfuse2", True), ("libfuse3", False), ("none", False), (None, False)],
)
def test_libraries(tree: Tree, library: str | None, proposed: bool) -> None:
    recipe = recipe_with(tree, "mount", ('since = "2.1"', 'library = ["libfuse2"]'))
    found = planned(recipe, workloads=("metadata",), library=library)
    assert ("threads" in values(found)) is proposed


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"threads": "1"}, {"threads": "8"}),
        ({"threads": "2"}, {}),  # the administrator's choice
        ({"threads": "8"}, {}),
        ({"threads": "2", "single": "true"}, {"single": None}),
        ({"threads": "2", "single": "false"}, {}),
        ({"threads": "2", "max_read": "4096"}, {"max_read": "131072"}),
        ({"threads": "2", "max_read": "65536"}, {}),
        ({"threads": "2", "max_read": "4K"}, {"max_read": "131072"}),
        ({"threads": "2", "max_read": "much"}, {}),
    ],
)
def test_what_is_set_already(
    tree: Tree, settings: dict[str, str], wanted: dict[str, str | None]
) -> None:
    assert values(planned(recipe_with(tree), settings, workloads=("metadata",))) == wanted


def test_a_workload_that_does_not_suffer(tree: Tree) -> None:
    found = planned(recipe_with(tree), {"single": "true"}, workloads=("rand-read",))
    assert values(found) == {}


def test_mixed_is_what_it_does(tree: Tree) -> None:
    assert values(planned(recipe_with(tree), workloads=("mixed",))) == {"passthrough": "true"}


def test_unsafe_options_are_never_proposed_and_named_if_set(tree: Tree) -> None:
    recipe = recipe_with(tree)
    assert "nosync" not in values(planned(recipe))
    found = planned(recipe, {"nosync": "true", "readahead": "1M"}, workloads=("rand-read",))
    assert values(found) == {}
    assert found.named == [
        "readahead does nothing here: the kernel takes less; set read_ahead_kb",
        "nosync is set, which is unsafe unless no crash comes: data is lost",
    ]


def test_an_option_that_needs_an_unsafe_one_is_not_proposed(tree: Tree) -> None:
    recipe = recipe_with(tree, "mount", ('"cache=some|all"', '"nosync"'))
    assert values(planned(recipe, **SMALL)) == {}


def test_an_option_that_is_left_out_stands_in_no_ones_way(tree: Tree) -> None:
    worse = ('option = "single"\ncommand = "-s"', 'option = "passthrough"\nvalue = "true"')
    recipe = recipe_with(tree, "mount", worse, ('workloads = ["metadata"]\nbecause', "because"))
    found = planned(recipe, {"passthrough": "true"}, **SMALL)
    assert values(found) == {"writeback": "true", "cache": "some", "passthrough": None}
