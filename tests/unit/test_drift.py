# SPDX-License-Identifier: GPL-2.0-or-later
"""verify shows which values differ, which file has the expected ones, and who wrote last.

It relies on the journal: a value that fusetune did not write last is somebody else's.
"""

import pytest

from fusetune.changes.apply import set_knobs
from fusetune.changes.journal import KEEPING
from fusetune.desired.config import load
from fusetune.desired.drift import Verified, verify
from fusetune.desired.inspect import inspect_one
from fusetune.desired.reconcile import reconcile
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import save, saved_path
from fusetune.knobs import LIVE
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.toml.file import Origin
from tests.unit.conftest import Tree

KNOBS = {knob.name: knob for knob in LIVE}


def resolver(tree: Tree, text: str = "[[mount]]\nmax_ratio = 20\n") -> Resolver:
    tree.write("etc/fusetune.toml", text)
    return Resolver(tree.host, load(tree.host))


def look(tree: Tree, text: str = "[[mount]]\nmax_ratio = 20\n") -> list[Verified]:
    return verify(tree.host, resolver(tree, text), discover(tree.host))


def test_as_it_should_be(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree), mounted)
    (one,) = look(tree)
    (check,) = one.checks
    assert (check.differs, check.state.value, check.state.set_by) == (False, 20, "fusetune")
    assert check.expected.origin == Origin(tree.root / "etc/fusetune.toml", 2)
    assert check.last
    assert (check.last.new, check.last.why) == (20, KEEPING)
    assert (one.left_alone, one.problem) == (None, None)


@pytest.mark.parametrize(
    ("value", "set_by"),
    [(1, "stock"), (7, "other")],
)
def test_nobody_or_somebody_else(tree: Tree, mounted: Mount, value: int, set_by: str) -> None:
    tree.live(values={"max_ratio": value})
    (check,) = look(tree)[0].checks
    assert (check.differs, check.state.set_by, check.last) == (True, set_by, None)


def test_somebody_else_after_us(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree), mounted)
    tree.live(values={"max_ratio": 7})
    (check,) = look(tree)[0].checks
    assert (check.differs, check.state.set_by) == (True, "other")
    assert check.last
    assert check.last.new == 20


def test_another_command_of_ours(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree), mounted)
    set_knobs(tree.host, mounted, {KNOBS["max_ratio"]: 30})
    (check,) = look(tree)[0].checks
    assert (check.differs, check.state.set_by) == (True, "fusetune")
    assert check.last
    assert (check.last.new, check.last.why) == (30, "set")


def test_only_what_is_kept_is_compared(tree: Tree, mounted: Mount) -> None:
    tree.live(values={"max_background": 64})
    assert look(tree, "")[0].checks == []
    save(tree.host, mounted, {"read_ahead_kb": 256}, "auto")
    checks = {check.state.knob.name: check for check in look(tree)[0].checks}
    assert list(checks) == ["read_ahead_kb", "max_ratio"]
    assert checks["read_ahead_kb"].expected.origin == Origin(saved_path(tree.host, mounted))


def test_what_policy_forbids_is_no_difference(tree: Tree) -> None:
    tree.mount("/mnt/one", options="rw,user_id=1000,group_id=1000")
    tree.live(owner=1000)
    (check,) = look(tree)[0].checks
    assert check.expected.refused
    assert not check.differs


def test_what_is_left_alone_is_not_compared(tree: Tree, mounted: Mount) -> None:
    (one,) = look(tree, "[[mount]]\nleave_alone = true\nmax_ratio = 20\n")
    assert one.left_alone
    assert list(one.checks) == []


def test_an_absent_knob_is_told_but_no_difference(tree: Tree, mounted: Mount) -> None:
    (tree.root / "sys/class/bdi/0:40/max_ratio").unlink()
    (check,) = look(tree)[0].checks
    assert (check.differs, check.state.value) == (False, None)
    assert check.state.absent


def test_a_damaged_journal_is_a_problem_and_values_are_compared_all_the_same(
    tree: Tree, mounted: Mount
) -> None:
    tree.write("var/lib/undo/0:40.journal", "garbage\n")
    (one,) = look(tree)
    assert one.problem
    assert "the undo journal of /mnt/one is damaged" in one.problem
    (check,) = one.checks
    assert (check.differs, check.state.set_by, check.last) == (True, None, None)


def test_a_damaged_saved_result_is_a_problem_of_its_mount_alone(tree: Tree, mounted: Mount) -> None:
    tree.mount("/mnt/two", device="0:41")
    tree.live(bdi="0:41", connection="41")
    save(tree.host, mounted, {"max_ratio": 5}, "auto")
    saved_path(tree.host, mounted).write_text("garbage")
    one, two = look(tree)
    assert one.problem
    assert one.problem.startswith("/mnt/one: the saved result")
    assert (one.checks, two.problem, len(two.checks)) == ((), None, 1)


# One mount, as show and report inspect it


def test_each_problem_is_told_and_hinders_nothing_else(tree: Tree, mounted: Mount) -> None:
    tree.write("etc/fusetune.toml", "[[mount]]\nmax_rato = 3\n")
    save(tree.host, mounted, {"max_ratio": 5}, "save")
    found = inspect_one(tree.host, mounted)
    (problem,) = found.problems
    assert "fusetune.toml:2" in problem
    assert found.saved
    assert found.saved.values == {"max_ratio": 5}
    saved_path(tree.host, mounted).write_text("{")
    saved, configuration = inspect_one(tree.host, mounted).problems
    assert str(saved_path(tree.host, mounted)) in saved
    assert configuration == problem
    states = {state.knob.name: state.value for state in found.states}
    assert states["max_ratio"] == 1
    assert found.expected == {}


def test_a_problem_that_hinders_twice_is_told_once(tree: Tree, mounted: Mount) -> None:
    save(tree.host, mounted, {"max_ratio": 5}, "save")
    saved_path(tree.host, mounted).write_text("{")
    found = inspect_one(tree.host, mounted)
    assert found.problems == [found.saved_problem] == [found.problem]


def test_the_host_has_no_configuration_of_its_own(tree: Tree) -> None:
    tree.system()
    tree.write("etc/fusetune.toml", "nonsense")
    found = inspect_one(tree.host, None)
    assert (found.problems, found.checks) == ([], [])
    assert found.states
