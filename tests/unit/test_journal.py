# SPDX-License-Identifier: GPL-2.0-or-later
"""The undo journal says what to restore, only for this mount and this boot.

A crash may leave any prefix of an append, because the file is synced after each (fsync(2)).
"""

import os
import shutil
import stat
from dataclasses import replace
from unittest import mock

import pytest

from fusetune.changes.journal import Journal, Record
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree
from tests.unit.journals import RECORDS, journal_with

ORIGINALS = {"max_ratio": 1, "read_ahead_kb": 128}


def test_without_a_file_there_is_nothing(tree: Tree, mounted: Mount) -> None:
    journal = Journal(tree.host, mounted)
    assert (journal.records, journal.originals) == ([], {})
    assert not tree.host.state_dir.exists()
    journal.remove()


def test_what_is_appended_is_read_again(tree: Tree, mounted: Mount) -> None:
    first = Journal(tree.host, mounted)
    first.append(RECORDS[:1])
    second = Journal(tree.host, mounted)
    assert second.records == RECORDS[:1]
    second.append(RECORDS[1:])
    third = Journal(tree.host, mounted)
    assert third.records == second.records == RECORDS
    assert third.originals == ORIGINALS
    for knob, value in (("max_ratio", 50), ("read_ahead_kb", 1024)):
        assert third.wrote(knob, value)
        assert third.to_undo(knob, value)
    assert tree.journals() == [third.path]


@pytest.mark.parametrize(
    ("written", "now", "undone"),
    [
        ([], 5, False),
        ([5], 5, True),
        ([5], 1, False),  # restored by hand
        ([5], 7, True),  # changed by hand, and never restored by us
        ([5, 9], 5, True),  # killed before the second write
        ([5, 1], 1, False),
        ([5, 1], 5, True),  # killed, or refused, on the way back
        ([5, 1], 7, False),  # restored by us, then changed by hand: the administrator's
        ([5, 1, 9], 7, True),
    ],
)
def test_what_is_to_be_put_back(
    tree: Tree, mounted: Mount, written: list[int], now: int, undone: bool
) -> None:
    """The original value is 1; these were written since, and one of them is current."""
    journal = Journal(tree.host, mounted)
    old = 1
    for new in written:
        journal.append([Record("max_ratio", old, new, "set", 0.0)])
        old = new
    again = Journal(tree.host, mounted)
    assert again.to_undo("max_ratio", now) is undone
    assert again.wrote("max_ratio", now) is (now in written and now != 1)
    assert not again.to_undo("read_ahead_kb", now)


def test_only_root_may_read_it(tree: Tree, mounted: Mount) -> None:
    path = journal_with(tree.host, mounted, RECORDS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_is_on_disk_before_append_returns(tree: Tree, mounted: Mount) -> None:
    journal = Journal(tree.host, mounted)
    with mock.patch("os.fsync", wraps=os.fsync) as fsync:
        journal.append(RECORDS[:1])
        assert fsync.call_count == 2  # the new file, and the directory that names it
        journal.append(RECORDS[1:])
        assert fsync.call_count == 3


def test_mounts_and_host_have_their_own(tree: Tree, mounted: Mount) -> None:
    other = replace(mounted, bdi="0:41", device="0:41")
    journal_with(tree.host, mounted, RECORDS[:1])
    journal_with(tree.host, other, RECORDS[1:2])
    journal_with(tree.host, None, RECORDS[2:])
    assert Journal(tree.host, mounted).records == RECORDS[:1]
    assert Journal(tree.host, other).records == RECORDS[1:2]
    assert Journal(tree.host, None).records == RECORDS[2:]
    assert [path.name for path in tree.journals()] == [
        "0:40.journal",
        "0:41.journal",
        "host.journal",
    ]


def test_remove_forgets(tree: Tree, mounted: Mount) -> None:
    journal_with(tree.host, mounted, RECORDS)
    journal = Journal(tree.host, mounted)
    journal.remove()
    assert (journal.records, journal.originals) == ([], {})
    assert Journal(tree.host, mounted).records == []
    journal.append(RECORDS[:1])
    assert Journal(tree.host, mounted).records == RECORDS[:1]


@pytest.mark.parametrize("target", ["mount", "host"])
def test_after_a_reboot_it_is_void(tree: Tree, mounted: Mount, target: str) -> None:
    mount = mounted if target == "mount" else None
    journal_with(tree.host, mount, RECORDS)
    later = Journal(tree.reboot(), mount)
    assert later.records == []
    later.append(RECORDS[:1])
    assert Journal(tree.reboot(), mount).records == RECORDS[:1]


def test_of_another_super_block_it_is_void(tree: Tree, mounted: Mount) -> None:
    """Device numbers are reused at once: a new mount's values are not the old one's."""
    path = journal_with(tree.host, mounted, RECORDS)
    assert mounted.instance is not None
    again = replace(mounted, instance=mounted.instance + 1)
    journal = Journal(tree.host, again)
    assert journal.records == []
    journal.append(RECORDS[:1])
    assert Journal(tree.host, again).records == RECORDS[:1]
    assert len(path.read_bytes().splitlines()) == 2


def test_a_mount_that_is_gone_is_not_changed(tree: Tree, mounted: Mount) -> None:
    """Its device number may be another's by now, whose journal has the same name."""
    assert mounted.instance is not None
    another = replace(mounted, instance=mounted.instance + 1)
    with pytest.raises(FusetuneError, match=r"^/mnt/one is (no longer mounted|not mounted)"):
        Journal.to_change(tree.host, another)
    assert Journal.to_change(tree.host, mounted).records == []
    shutil.rmtree(tree.root / "sys/class/bdi/0:40")
    with pytest.raises(FusetuneError, match=r"^/mnt/one is (no longer mounted|not mounted)"):
        Journal.to_change(tree.host, mounted)


@pytest.mark.parametrize(
    ("writes", "why", "value"),
    [
        ([], "a", None),
        ([(1, 5, "a")], "a", 1),
        ([(1, 5, "a")], "b", None),
        ([(1, 5, "a"), (5, 9, "a")], "a", 1),
        ([(1, 5, "b"), (5, 9, "a")], "a", 5),
        ([(1, 5, "a"), (5, 9, "b")], "a", None),
        ([(1, 5, "a"), (7, 9, "a")], "a", 7),  # somebody else changed it in between
    ],
)
def test_what_a_knob_was_before_the_last_writes_for_one_reason(
    tree: Tree, writes: list[tuple[int, int, str]], why: str, value: int | None
) -> None:
    journal = Journal(tree.host, None)
    for old, new, reason in writes:
        journal.append([Record("max_ratio", old, new, reason, 0.0)])
        journal.append([Record("read_ahead_kb", 128, 256, "other", 0.0)])
    assert journal.before("max_ratio", why) == value


def test_the_last_write_of_each_knob(tree: Tree, mounted: Mount) -> None:
    journal_with(tree.host, mounted, RECORDS)
    journal = Journal(tree.host, mounted)
    assert journal.last("max_ratio") == RECORDS[2]
    assert journal.last("read_ahead_kb") == RECORDS[1]
    assert journal.last("strict_limit") is None
