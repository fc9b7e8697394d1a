# SPDX-License-Identifier: GPL-2.0-or-later
"""What auto would search, and what it leaves alone; nothing is measured here."""

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from fusetune.bench.spending import Budget
from fusetune.bench.workloads import WORKLOADS, Access
from fusetune.changes.policy import refusal
from fusetune.desired.resolve import Resolver
from fusetune.desired.sections import Config
from fusetune.errors import FusetuneError
from fusetune.knobs import LIVE
from fusetune.mounts.mount import Mount
from fusetune.tuner.auto import auto, preview
from fusetune.tuner.space import FOLLOWERS, SEARCHED, searched, with_followers
from tests.unit.conftest import Tree

KNOBS = {knob.name: knob for knob in LIVE}
STOCK = {
    "read_ahead_kb": 128,
    "max_background": 12,
    "congestion_threshold": 9,
    "max_ratio": 1,
    "strict_limit": 1,
}
#: What a mount of the kernel's own FUSE has.
OF_STOCK = [knob for knob in LIVE if knob.name in STOCK]


each = pytest.mark.parametrize("name", SEARCHED)


def mount(owner: int = 0, fstype: str = "fuse.x") -> Mount:
    return Mount("/mnt", fstype, "x", "0:43", bdi="0:43", connection="43", owner_uid=owner)


def refuse(owner: int = 0, allowed: Collection[int] = ()) -> Callable[[str, int], str | None]:
    """The policy for a mount of this owner."""
    return lambda name, value: refusal(mount(owner), KNOBS[name], value, allowed, room=100)


@each
def test_candidates_are_legal_values_with_the_safest_first(name: str) -> None:
    knob, entry = KNOBS[name], SEARCHED[name]
    for value in entry.candidates:
        assert knob.parse(str(value)) == value
    assert len(set(entry.candidates)) == len(entry.candidates) > 1
    if entry.ordered:
        assert list(entry.candidates) == sorted(entry.candidates)
    assert (knob.stock is None) == bool(knob.init_line)


@each
def test_some_workload_is_affected_by_each_searched_knob(name: str) -> None:
    accesses = frozenset[Access]().union(*(w.accesses for w in WORKLOADS.values()))
    assert SEARCHED[name].affects & accesses


@each
def test_interactions_are_among_searched_knobs(name: str) -> None:
    assert set(SEARCHED[name].interacts) <= set(SEARCHED) - {name}


def test_followers_are_knobs_that_are_not_searched_themselves() -> None:
    for name, follower in FOLLOWERS.items():
        assert name in set(KNOBS) - set(SEARCHED)
        assert follower.leader in SEARCHED
        assert 0 < follower.numerator <= follower.denominator


def test_candidates_lie_in_the_knobs_range_on_the_mount() -> None:
    pages = replace(KNOBS["max_pages"], low=32, high=256, stock=256)
    assert SEARCHED["max_pages"].within(pages) == (32, 64, 128, 256)
    assert SEARCHED["read_ahead_kb"].within(KNOBS["read_ahead_kb"])[-1] == 32768


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        ("seq-read", {"read_ahead_kb", "max_background"}),
        ("small-write", {"max_background", "max_ratio", "strict_limit"}),
        ("mixed", {"read_ahead_kb", "max_background", "max_ratio", "strict_limit"}),
        ("metadata", set()),
        ("shared-write", set()),
    ],
)
def test_only_what_can_matter_is_searched(workload: str, names: set[str]) -> None:
    dimensions, reasons = searched(OF_STOCK, STOCK, [WORKLOADS[workload]], refuse())
    assert {dimension.name for dimension in dimensions} == names
    assert not reasons


def test_a_users_mount_gets_no_more_dirty_memory() -> None:
    workloads = [WORKLOADS["small-write"]]
    dimensions, reasons = searched(OF_STOCK, STOCK, workloads, refuse(1000))
    assert {dimension.name for dimension in dimensions} == {"max_background"}
    assert all("--allow-owner 1000" in reason for reason in reasons)
    assert len(reasons) == 2
    dimensions, reasons = searched(OF_STOCK, STOCK, workloads, refuse(1000, (1000,)))
    assert {"max_ratio", "strict_limit"} <= {dimension.name for dimension in dimensions}
    assert not reasons


def test_a_raised_value_of_a_users_mount_may_go_back_to_stock() -> None:
    """The search starts at the current values, and stock stays a candidate."""
    now = STOCK | {"max_ratio": 20}
    dimensions, _ = searched(OF_STOCK, now, [WORKLOADS["small-write"]], refuse(1000))
    (ratio,) = (dimension for dimension in dimensions if dimension.name == "max_ratio")
    assert max(ratio.values) == ratio.stock == 1


def test_an_absent_knob_is_told() -> None:
    now = {name: value for name, value in STOCK.items() if name != "strict_limit"}
    dimensions, (reason,) = searched(OF_STOCK, now, [WORKLOADS["seq-write"]], refuse())
    assert "strict_limit" not in {dimension.name for dimension in dimensions}
    assert "strict_limit" in reason


@pytest.mark.parametrize(
    ("background", "threshold"), [(12, 7), (16, 12), (24, 18), (256, 192), (1, 1)]
)
def test_the_threshold_follows_max_background(background: int, threshold: int) -> None:
    before = STOCK | {"congestion_threshold": 7}
    assert with_followers({"max_background": background}, before) == {
        "max_background": background,
        "congestion_threshold": threshold,
    }


def test_the_threshold_stays_where_max_background_is_not_searched() -> None:
    assert with_followers({"read_ahead_kb": 256}, STOCK) == {"read_ahead_kb": 256}


def test_preview_of_a_mount_without_knobs(tree: Tree) -> None:
    """The empty tree has no knobs, so nothing would be written."""
    assert preview(Resolver(tree.host, Config()), mount(), [WORKLOADS["mixed"]]) == []


def test_an_excluded_type_is_left_alone(tree: Tree) -> None:
    with pytest.raises(FusetuneError, match="left alone"):
        auto(
            Resolver(tree.host, Config()),
            mount(fstype="fuse.lxcfs"),
            [WORKLOADS["mixed"]],
            Budget(),
        )
    assert not tree.host.run_dir.exists()
