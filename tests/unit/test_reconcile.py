# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount gets the values that are kept for it, but keeps those that somebody else has set.

It relies on the journal: if fusetune wrote a kept value last, the value is fusetune's.
"""

import pytest

from fusetune.bench.workloads import WORKLOADS
from fusetune.changes.apply import set_knobs
from fusetune.changes.journal import KEEPING, PUT_BACK, TRIAL, Journal, Record
from fusetune.changes.lock import Busy, Lock
from fusetune.changes.overrides import overrides
from fusetune.desired.reconcile import LEFT_AFTER, Reconciled, reconcile, reconcile_all
from fusetune.desired.reset import reset
from fusetune.desired.results import Unusable, save, saved_path
from fusetune.errors import FusetuneError
from fusetune.knobs import LIVE_BY_NAME
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.tuner.auto import preview
from tests.unit.conftest import STOCK, Tree
from tests.unit.journals import files_of_run
from tests.unit.kept_values import BOTH, KNOBS, made, resolver

NOW = STOCK | {"max_ratio": 20, "max_background": 64}


def by_hand(tree: Tree, name: str, value: int) -> None:
    tree.live(values=tree.values() | {name: value})


def die(tree: Tree) -> None:
    """Leave a lock as a killed process does."""
    tree.write("run/0:40.lock", "4242")


# What is set


def test_what_is_kept_is_set_once_and_journalled(tree: Tree, mounted: Mount) -> None:
    assert made(reconcile(resolver(tree, BOTH), mounted)) == {"max_ratio": 20, "max_background": 64}
    assert tree.values() == NOW
    records = Journal(tree.host, mounted).records
    assert [(r.knob, r.new, r.why) for r in records] == [
        ("max_background", 64, KEEPING),
        ("max_ratio", 20, KEEPING),
    ]
    assert reconcile(resolver(tree), mounted) == Reconciled()
    assert Journal(tree.host, mounted).records == records
    assert list(tree.host.run_dir.iterdir()) == []
    reset(tree.host, mounted, dry_run=True)


def test_a_journal_that_has_nothing_to_undo_is_removed(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_background = 64\n"), mounted)
    assert len(tree.journals()) == 1
    back = reconcile(resolver(tree, "[[mount]]\nmax_background = 12\n"), mounted)
    assert made(back) == {"max_background": 12}
    assert tree.journals() == []


def test_nothing_kept_touches_nothing(tree: Tree, mounted: Mount) -> None:
    assert reconcile(resolver(tree, ""), mounted) == Reconciled()
    assert not tree.host.run_dir.exists()
    assert not tree.host.state_dir.exists()


def test_a_dry_run_tells_and_writes_nothing(tree: Tree, mounted: Mount) -> None:
    assert made(reconcile(resolver(tree, BOTH), mounted, dry_run=True)) == {
        "max_ratio": 20,
        "max_background": 64,
    }
    assert tree.values() == STOCK
    assert not tree.host.run_dir.exists()
    assert not tree.host.state_dir.exists()


def test_a_knob_that_is_absent_hinders_no_other(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.live(connection=None)
    text = "[[mount]]\nread_ahead_kb = 4096\nmax_background = 64\n"
    assert made(reconcile(resolver(tree, text), tree.only())) == {"read_ahead_kb": 4096}


def test_one_that_is_at_work_is_not_disturbed(tree: Tree, mounted: Mount) -> None:
    with Lock(tree.host, mounted), pytest.raises(Busy):
        reconcile(resolver(tree, BOTH), mounted)
    assert tree.values() == STOCK


def test_a_saved_result_that_cannot_be_read_stops_the_mount(tree: Tree, mounted: Mount) -> None:
    save(tree.host, mounted, {"max_ratio": 5}, "auto")
    saved_path(tree.host, mounted).write_text("garbage")
    with pytest.raises(Unusable):
        reconcile(resolver(tree, BOTH), mounted)
    assert tree.values() == STOCK


def test_a_saved_result_that_cannot_be_read_does_not_hinder_a_new_one(
    tree: Tree, mounted: Mount
) -> None:
    saved_path(tree.host, mounted).parent.mkdir(parents=True)
    saved_path(tree.host, mounted).write_text("garbage")
    assert preview(resolver(tree, BOTH), mounted, [WORKLOADS["mixed"]])
    assert resolver(tree, BOTH).left_alone_reason(mounted) is None


def test_all_are_tried_before_the_first_failure_is_told(tree: Tree, mounted: Mount) -> None:
    tree.mount("/mnt/two", device="0:41")
    tree.live(bdi="0:41", connection="41")
    save(tree.host, mounted, {"max_ratio": 5}, "auto")
    saved_path(tree.host, mounted).write_text("garbage")
    told: list[str] = []
    with pytest.raises(Unusable):
        reconcile_all(
            resolver(tree, BOTH),
            discover(tree.host),
            dry_run=False,
            insist=False,
            tell=lambda mount, kept: told.append(mount.path),
        )
    assert told == ["/mnt/two"]
    assert tree.values() == STOCK
    assert tree.read("sys/class/bdi/0:41/max_ratio").strip() == "20"


# What is left alone


def test_what_was_found_before_anything_was_kept_is_overwritten(tree: Tree, mounted: Mount) -> None:
    by_hand(tree, "max_ratio", 7)
    assert made(reconcile(resolver(tree, BOTH), mounted)) == {"max_ratio": 20, "max_background": 64}


def test_ours_moves_with_the_configuration(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, BOTH), mounted)
    assert made(reconcile(resolver(tree, BOTH.replace("20", "30")), mounted)) == {"max_ratio": 30}


@pytest.mark.parametrize("value", [7, 1])
def test_what_was_set_by_hand_since_is_left_alone_and_told_once(
    tree: Tree, mounted: Mount, value: int
) -> None:
    """Also if it is the original value, so that there is nothing to undo."""
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 20\n"), mounted)
    by_hand(tree, "max_ratio", value)
    assert reconcile(resolver(tree), mounted) == Reconciled([], {"max_ratio": value})
    for _ in range(2):
        assert reconcile(resolver(tree), mounted) == Reconciled()
    assert tree.values()["max_ratio"] == value
    by_hand(tree, "max_ratio", 9)
    assert reconcile(resolver(tree), mounted).overridden == {"max_ratio": 9}
    assert reconcile(resolver(tree), mounted).overridden == {}


def test_what_is_not_left_alone_is_still_set(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 20\n"), mounted)
    by_hand(tree, "max_ratio", 7)
    kept = reconcile(resolver(tree, BOTH), mounted)
    assert (made(kept), kept.overridden) == ({"max_background": 64}, {"max_ratio": 7})


def test_apply_does_not_ask_whose_it_is(tree: Tree, mounted: Mount) -> None:
    """Then it is ours again."""
    reconcile(resolver(tree, BOTH), mounted)
    by_hand(tree, "max_ratio", 7)
    assert reconcile(resolver(tree), mounted).overridden == {"max_ratio": 7}
    assert made(reconcile(resolver(tree), mounted, respect=False)) == {"max_ratio": 20}
    assert overrides(tree.host, mounted) == {}
    assert made(reconcile(resolver(tree, BOTH.replace("20", "30")), mounted)) == {"max_ratio": 30}


def test_what_another_program_sets_again_is_left_to_it_at_last(tree: Tree, mounted: Mount) -> None:
    def applied(insist: bool = False) -> Reconciled:
        by_hand(tree, "max_ratio", 7)
        return reconcile(resolver(tree), mounted, respect=False, insist=insist)

    reconcile(resolver(tree, BOTH), mounted)
    for _ in range(LEFT_AFTER - 1):
        assert made(applied()) == {"max_ratio": 20}
    for _ in range(2):
        kept = applied()
        assert (made(kept), kept.fought) == ({}, {"max_ratio": 7})
    kept = reconcile(resolver(tree), mounted)  # the service does not set it either
    assert (made(kept), kept.fought) == ({}, {})
    assert made(applied(insist=True)) == {"max_ratio": 20}
    assert made(applied()) == {"max_ratio": 20}, "it is counted anew"


@pytest.mark.parametrize("value", [7, 1])
def test_what_was_set_by_command_is_left_alone(tree: Tree, mounted: Mount, value: int) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 5\n"), mounted)
    set_knobs(tree.host, mounted, {KNOBS["max_ratio"]: value})
    reconcile(resolver(tree), mounted)
    assert tree.values()["max_ratio"] == value


def test_what_was_reset_is_left_alone(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 5\n"), mounted)
    reset(tree.host, mounted)
    assert tree.values() == STOCK
    assert reconcile(resolver(tree), mounted) == Reconciled()
    assert tree.values() == STOCK


def test_a_killed_one_is_finished_by_the_next(tree: Tree, mounted: Mount) -> None:
    """Journalled but not yet written: without the left-over lock it looks set by hand."""
    Journal(tree.host, mounted).append(
        [Record("max_ratio", 1, 20, KEEPING, 0.0), Record("max_background", 12, 64, KEEPING, 0.0)]
    )
    by_hand(tree, "max_background", 64)
    die(tree)
    assert made(reconcile(resolver(tree, BOTH), mounted)) == {"max_ratio": 20}
    assert tree.values() == NOW


def test_one_killed_after_its_work_excuses_nothing_later(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, BOTH), mounted)
    die(tree)
    assert reconcile(resolver(tree), mounted) == Reconciled()
    by_hand(tree, "max_ratio", 7)
    assert reconcile(resolver(tree), mounted).overridden == {"max_ratio": 7}
    assert tree.values()["max_ratio"] == 7


def trial(old: int, new: int) -> Record:
    return Record("max_ratio", old, new, TRIAL, 0.0)


@pytest.mark.parametrize("left", [50, 40])
def test_what_a_killed_auto_tried_is_nobodys(tree: Tree, mounted: Mount, left: int) -> None:
    """Also if another command has run since. Its last trial may not have been written."""
    reconcile(resolver(tree, BOTH), mounted)
    Journal(tree.host, mounted).append([trial(20, 40), trial(40, 50)])
    by_hand(tree, "max_ratio", left)
    die(tree)
    set_knobs(tree.host, mounted, {LIVE_BY_NAME["max_background"]: 16})
    assert files_of_run(tree) == []
    assert reconcile(resolver(tree), mounted).overridden == {"max_background": 16}
    assert tree.values() == NOW | {"max_background": 16}


def test_a_value_by_hand_after_a_killed_auto_is_the_administrators(
    tree: Tree, mounted: Mount
) -> None:
    reconcile(resolver(tree, BOTH), mounted)
    Journal(tree.host, mounted).append([trial(20, 40), trial(40, 50)])
    by_hand(tree, "max_ratio", 7)
    assert reconcile(resolver(tree), mounted).overridden == {"max_ratio": 7}


def test_after_a_measurement_the_configuration_still_counts(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 20\n"), mounted)
    Journal(tree.host, mounted).append([trial(20, 50), Record("max_ratio", 50, 20, PUT_BACK, 0.0)])
    assert made(reconcile(resolver(tree, "[[mount]]\nmax_ratio = 30\n"), mounted)) == {
        "max_ratio": 30
    }


def test_what_was_set_back_by_hand_is_the_administrators_after_a_reset(
    tree: Tree, mounted: Mount
) -> None:
    reconcile(resolver(tree, BOTH), mounted)
    by_hand(tree, "max_ratio", STOCK["max_ratio"])
    reset(tree.host, mounted)
    assert overrides(tree.host, mounted) == {"max_ratio": 1, "max_background": 12}
    assert reconcile(resolver(tree), mounted) == Reconciled()
    assert tree.values() == STOCK


def test_what_was_only_measured_with_is_nobodys_after_a_reset(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 5\n"), mounted)
    Journal(tree.host, mounted).append(
        [
            Record("max_background", 12, 64, TRIAL, 0.0),
            Record("max_background", 64, 12, PUT_BACK, 0.0),
        ]
    )
    reset(tree.host, mounted)
    assert overrides(tree.host, mounted) == {"max_ratio": 1}
    later = reconcile(resolver(tree, "[[mount]]\nmax_background = 64\n"), mounted)
    assert made(later) == {"max_background": 64}


def test_a_request_for_what_was_set_back_by_hand_counts(tree: Tree, mounted: Mount) -> None:
    only = "[[mount]]\nmax_ratio = 20\n"
    reconcile(resolver(tree, only), mounted)
    by_hand(tree, "max_ratio", STOCK["max_ratio"])
    assert set_knobs(tree.host, mounted, {LIVE_BY_NAME["max_ratio"]: STOCK["max_ratio"]}) == []
    assert reconcile(resolver(tree, only), mounted) == Reconciled()
    assert tree.values() == STOCK


def test_what_the_answer_to_init_overwrote_is_set_again(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, BOTH), mounted)
    by_hand(tree, "max_background", 30)
    assert made(reconcile(resolver(tree), mounted, since_init=True)) == {"max_background": 64}
    by_hand(tree, "max_ratio", 7)
    assert reconcile(resolver(tree), mounted).overridden == {"max_ratio": 7}
    by_hand(tree, "max_background", 30)
    assert made(reconcile(resolver(tree), mounted, since_init=True)) == {"max_background": 64}
    assert tree.values()["max_ratio"] == 7


def test_what_the_answer_to_init_set_is_the_original(tree: Tree, mounted: Mount) -> None:
    """The value before it was never that of the mount in use."""
    reconcile(resolver(tree, BOTH), mounted)
    by_hand(tree, "max_background", 30)
    reconcile(resolver(tree), mounted, since_init=True)
    journal = Journal(tree.host, mounted)
    assert journal.originals == {"max_ratio": 1, "max_background": 30}
    assert journal.wrote("max_background", 64)
    assert not journal.wrote("max_background", 30)
    changes = reset(tree.host, mounted, dry_run=True)
    assert {change.knob.name: change.new for change in changes} == {
        "max_ratio": 1,
        "max_background": 30,
    }


def test_a_section_may_say_leave_alone(tree: Tree, mounted: Mount) -> None:
    with_all = "[[mount]]\npath = '/mnt/*'\nleave_alone = true\nmax_ratio = 20\n"
    one = resolver(tree, with_all)
    assert one.left_alone_reason(mounted) == f"{tree.root}/etc/fusetune.toml:3 sets leave_alone"
    assert (one.expected(mounted), reconcile(one, mounted)) == ({}, Reconciled())
    but_one = with_all + "[[mount]]\npath = '/mnt/one'\nleave_alone = false\n"
    assert resolver(tree, but_one).left_alone_reason(mounted) is None
    assert made(reconcile(resolver(tree), mounted)) == {"max_ratio": 20}


def test_where_the_journal_cannot_be_written_nothing_changes(tree: Tree, mounted: Mount) -> None:
    tree.write("var/lib", "a file in its place")
    with pytest.raises(FusetuneError):
        reconcile(resolver(tree, BOTH), mounted)
    assert tree.values() == STOCK
