# SPDX-License-Identifier: GPL-2.0-or-later
"""Records about unmounted mounts or of an earlier boot are removed."""

import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from fusetune.changes.journal import Journal, key_of
from fusetune.changes.lock import Busy, Lock
from fusetune.changes.overrides import note_overrides
from fusetune.changes.stale import remove_stale
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree
from tests.unit.journals import RECORDS, files_of_run, journal_with


def remembered(tree: Tree, mount: Mount) -> set[str]:
    """Create all records of a mount, as if killed; return the files' names."""
    journal_with(tree.host, mount, RECORDS)
    note_overrides(tree.host, mount, {"max_ratio": 7})
    tree.write(f"run/{key_of(mount)}.lock", "4242")
    return {f"{key_of(mount)}.{kind}" for kind in ("journal", "left", "lock")}


def files(tree: Tree) -> set[str]:
    return {
        path.name
        for directory in (tree.host.state_dir / "undo", tree.host.run_dir)
        for path in directory.iterdir()
    }


def two_mounts(tree: Tree) -> tuple[Mount, Mount]:
    tree.mount("/mnt/one")
    tree.mount("/mnt/two", device="0:41")
    tree.live()
    tree.live(bdi="0:41", connection="41")
    one, two = discover(tree.host)
    return one, two


def test_what_is_remembered_of_gone_mounts_is_removed(tree: Tree) -> None:
    living, gone = two_mounts(tree)
    kept = remembered(tree, living) | {"host.journal"}
    journal_with(tree.host, None, RECORDS)
    of_gone = remembered(tree, gone)
    remove_stale(tree.host)
    assert files(tree) == kept | of_gone
    shutil.rmtree(tree.root / "sys/class/bdi/0:41")
    remove_stale(tree.host, key_of(living))
    assert files(tree) == kept | of_gone
    remove_stale(tree.host)
    assert files(tree) == kept


def test_a_note_that_another_fusetune_removes_meanwhile_is_no_error(
    tree: Tree, mounted: Mount
) -> None:
    note_overrides(tree.host, mounted, {"max_ratio": 7})

    def removing(path: Path) -> dict[str, int]:
        path.unlink(missing_ok=True)
        return {"instance": -1}

    with mock.patch("fusetune.changes.stale.read_overrides", removing):
        remove_stale(tree.host)
    assert files_of_run(tree) == []


def test_a_reused_device_number_is_another_mount(tree: Tree, mounted: Mount) -> None:
    remembered(tree, mounted)
    assert mounted.instance
    again = replace(mounted, instance=mounted.instance + 1)
    journal_with(tree.host, again, RECORDS)
    note_overrides(tree.host, again, {"max_ratio": 7})
    remove_stale(tree.host)
    assert files(tree) == {"0:40.lock"}  # nothing tells that it is another's


@pytest.mark.parametrize("kind", ["journal", "left"])
def test_what_a_later_mount_with_this_number_writes_meanwhile_stays(
    tree: Tree, mounted: Mount, kind: str
) -> None:
    """Nobody else can write it while it is examined again, but until then."""
    assert mounted.instance
    remembered(tree, replace(mounted, instance=mounted.instance + 1))

    def taken_late(*key: object, **how: bool) -> Lock:
        journal_with(tree.host, mounted, RECORDS)
        note_overrides(tree.host, mounted, {"max_ratio": 8})
        return Lock(*key, **how)  # type: ignore[arg-type]

    with mock.patch("fusetune.changes.stale.Lock", taken_late):
        remove_stale(tree.host)
    assert {f"0:40.{kind}", "0:40.lock"} <= files(tree)
    assert Journal(tree.host, mounted).records == RECORDS
    assert tree.read("run/0:40.lock") == "4242"


def killed_at(tree: Tree, mount: Mount) -> None:
    """Leave the lock of a process that was killed while it worked on the mount."""
    tree.write(f"run/{key_of(mount)}.lock", f"4242 {mount.instance}")


def test_a_lock_of_an_earlier_mount_with_this_number_is_removed(tree: Tree, mounted: Mount) -> None:
    assert mounted.instance
    killed_at(tree, replace(mounted, instance=mounted.instance + 1))
    remove_stale(tree.host)
    assert files_of_run(tree) == []
    killed_at(tree, mounted)
    remove_stale(tree.host)
    assert files_of_run(tree) == ["0:40.lock"]


def test_what_was_left_behind_at_an_earlier_mount_is_not_this_ones(
    tree: Tree, mounted: Mount
) -> None:
    assert mounted.instance
    for instance, is_ours in ((mounted.instance, True), (mounted.instance + 1, False)):
        killed_at(tree, replace(mounted, instance=instance))
        with Lock(tree.host, mounted) as lock:
            assert lock.left_behind is is_ours


def test_what_is_of_the_boot_before_is_removed(tree: Tree, mounted: Mount) -> None:
    journal_with(tree.host, mounted, RECORDS)
    journal_with(tree.host, None, RECORDS)
    remove_stale(tree.reboot())
    assert tree.journals() == []


def test_the_hosts_lock_is_no_gone_mounts(tree: Tree) -> None:
    """It tells the next holder that a killed process may have left its work unfinished."""
    tree.write("run/host.lock", "4242")
    remove_stale(tree.host)
    with Lock(tree.host, None) as lock:
        assert lock.left_behind


def test_a_lock_that_is_held_stays(tree: Tree) -> None:
    _, gone = two_mounts(tree)
    with Lock(tree.host, gone):
        shutil.rmtree(tree.root / "sys/class/bdi/0:41")
        remove_stale(tree.host)
        with pytest.raises(Busy):
            Lock(tree.host, gone)
    assert files_of_run(tree) == []


def test_a_damaged_journal_of_a_gone_mount_is_not_lost(tree: Tree, mounted: Mount) -> None:
    path = journal_with(tree.host, mounted, RECORDS)
    path.write_bytes(b"garbage\n")
    shutil.rmtree(tree.root / "sys/class/bdi/0:40")
    remove_stale(tree.host)
    assert path.read_bytes() == b"garbage\n"
