# SPDX-License-Identifier: GPL-2.0-or-later
"""reset restores the original values, and forgets nothing that must still be restored."""

import errno
import os
import re
from dataclasses import replace
from errno import EROFS
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetune.bench.note import scratch_note
from fusetune.changes.apply import drop_if_undone, make, plan, set_knobs
from fusetune.changes.journal import KEEPING, Journal, Record
from fusetune.changes.lock import Lock
from fusetune.changes.overrides import note_overrides, overrides
from fusetune.changes.stale import remove_stale
from fusetune.desired.config import load
from fusetune.desired.reconcile import LEFT_AFTER, reconcile
from fusetune.desired.reset import reset, reset_all
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import save, saved_for, saved_path
from fusetune.desired.sysctl import persist
from fusetune.desired.undo import reset_every_mount, reset_everything, reset_named
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.report.documents.changes import reset_changes
from tests.unit.conftest import CHECKOUT, STOCK, Tree
from tests.unit.knob_values import KNOBS, NEW, knobs


def test_set_and_reset_everything(tree: Tree, mounted: Mount) -> None:
    changes = set_knobs(tree.host, mounted, knobs(**NEW))
    assert {change.knob.name: change.new for change in changes} == NEW
    assert tree.values() == NEW
    assert Journal(tree.host, mounted).originals == STOCK
    undone = reset(tree.host, mounted)
    assert {change.knob.name: (change.old, change.new) for change in undone} == {
        name: (NEW[name], STOCK[name]) for name in NEW
    }
    assert tree.values() == STOCK
    assert tree.journals() == []
    assert reset(tree.host, mounted) == []


def test_a_file_that_cannot_be_removed_stops_nothing_else(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a read-only /var, or for users other than root."""
    tree.mount("/mnt/two", device="0:41")
    tree.live("0:41", "41")
    one, two = discover(tree.host)
    for mount in (one, two):
        set_knobs(tree.host, mount, knobs(max_ratio=9))
        save(tree.host, mount, {"max_ratio": 9}, "save")
    unlink = Path.unlink

    def refusing(path: Path, missing_ok: bool = False) -> None:
        if path.is_relative_to(tree.host.state_dir):
            raise OSError(EROFS, "Read-only file system", str(path))
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refusing)
        with pytest.raises(FusetuneError, match=r"cannot remove .*0:40.journal: Read-only file"):
            reset_all(tree.host)
        assert int(tree.read("sys/class/bdi/0:40/max_ratio")) == 1
        assert int(tree.read("sys/class/bdi/0:41/max_ratio")) == 1
    tree.write("sys/class/bdi/0:40/max_ratio", "9")
    monkeypatch.setattr(Journal, "remove", Mock(side_effect=FusetuneError("no")))
    with pytest.raises(FusetuneError, match=r"^no$"):
        reset_all(tree.host)
    assert saved_for(tree.host, one) is None
    assert saved_for(tree.host, two) is None


def test_without_sysfs_no_journal_is_lost(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(**NEW))
    sysfs = tree.root / "sys"
    sysfs.rename(tree.root / "hidden")
    hidden = tree.only()
    said = "shows no bdi for /mnt/one; is /sys mounted"
    for dry_run in (True, False):
        with pytest.raises(FusetuneError, match=said):
            reset(tree.host, hidden, dry_run=dry_run)
        with pytest.raises(FusetuneError, match=said):
            reset_all(tree.host, dry_run=dry_run)
    remove_stale(tree.host)
    (tree.root / "hidden").rename(sysfs)
    reset(tree.host, tree.only())
    assert tree.values() == STOCK


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.sampled_from(sorted(NEW)), st.integers(0, 1)), max_size=6))
def test_reset_goes_back_before_the_first_change(
    tmp_path_factory: pytest.TempPathFactory, steps: list[dict[str, int]]
) -> None:
    tree = Tree(tmp_path_factory.mktemp("tree"))
    tree.mount("/mnt/one")
    tree.live(values={"strict_limit": 0, "max_background": 99})
    mount = tree.only()
    before = tree.values()
    choices = {name: (before[name], NEW[name]) for name in NEW}
    choices["strict_limit"] = (0, 1)
    for step in steps:
        wanted = {name: choices[name][which] for name, which in step.items()}
        set_knobs(tree.host, mount, knobs(**wanted))
        assert tree.values() == tree.values() | wanted
    if tree.values() == before:
        assert tree.journals() == []  # nothing to undo
    reset(tree.host, mount)
    assert tree.values() == before
    assert tree.journals() == []


def test_values_set_by_hand_between_are_put_back_too(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(max_ratio=5))
    tree.live(values={"max_ratio": 7})
    set_knobs(tree.host, mounted, knobs(max_ratio=9))
    tree.live(values={"max_ratio": 8})
    reset(tree.host, mounted)
    assert tree.values()["max_ratio"] == 1


def test_a_failed_reset_keeps_the_journal(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(**NEW))
    tree.write("sys/class/bdi/0:40/max_ratio", "garbage\n")
    with pytest.raises(FusetuneError, match="contains 'garbage'"):
        reset(tree.host, mounted)
    assert Journal(tree.host, mounted).originals == STOCK


def test_a_journal_is_kept_while_it_is_needed(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(max_ratio=5, strict_limit=0))
    set_knobs(tree.host, mounted, knobs(max_ratio=1))
    assert Journal(tree.host, mounted).originals == {"max_ratio": 1, "strict_limit": 1}
    tree.live(values={"strict_limit": 1})
    drop_if_undone(tree.host, Journal(tree.host, mounted), mounted)
    assert tree.journals() == []


def test_a_value_put_back_and_then_set_by_hand_is_the_administrators(
    tree: Tree, mounted: Mount
) -> None:
    set_knobs(tree.host, mounted, knobs(max_ratio=5, strict_limit=0))
    set_knobs(tree.host, mounted, knobs(max_ratio=1))
    tree.live(values={"max_ratio": 7, "strict_limit": 0})
    reset(tree.host, mounted)
    assert tree.values() == STOCK | {"max_ratio": 7}


def test_a_refused_way_back_is_not_forgotten(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has a write that was refused; the previous value is still current."""
    set_knobs(tree.host, mounted, knobs(max_ratio=5))

    def write(host: object, relative: str, text: str, once_open: object) -> None:
        raise OSError(22, "Invalid argument")

    with monkeypatch.context() as patch:
        patch.setattr(type(tree.host), "write", write)
        with pytest.raises(FusetuneError, match="refused max_ratio=1"):
            set_knobs(tree.host, mounted, knobs(max_ratio=1))
    assert tree.values()["max_ratio"] == 5
    reset(tree.host, mounted)
    assert tree.values() == STOCK


def test_a_way_back_that_a_crash_cut_short_is_not_forgotten(tree: Tree, mounted: Mount) -> None:
    """Journalled, but killed before the value was written."""
    set_knobs(tree.host, mounted, knobs(max_ratio=5))
    Journal(tree.host, mounted).append([Record("max_ratio", 5, 1, "set", 0.0)])
    reset(tree.host, mounted)
    assert tree.values() == STOCK


def test_reset_forgets_what_is_saved(tree: Tree, mounted: Mount) -> None:
    save(tree.host, mounted, {"max_ratio": 5}, "auto", 1.5)
    reset(tree.host, mounted, dry_run=True)
    assert saved_for(tree.host, mounted)
    reset(tree.host, mounted)
    assert saved_for(tree.host, mounted) is None


@pytest.mark.parametrize("everything", [False, True])
def test_reset_tells_which_results_it_removes(
    tree: Tree, mounted: Mount, *, everything: bool
) -> None:
    file = saved_path(tree.host, mounted)
    for dry_run in (True, False):
        save(tree.host, mounted, {"max_ratio": 5}, "auto", 1.5)
        found = (
            reset_everything(tree.host, dry_run=dry_run)
            if everything
            else reset_named(tree.host, mounted.path, dry_run=dry_run)
        )
        said = ["dry run: nothing was written"] if dry_run else []
        said.append(f"{file}: max_ratio=5 -> nothing")
        assert list(reset_changes(found, dry_run).parts()) == said
        assert file.exists() == dry_run


@pytest.mark.parametrize("command", ["set", "reset"])
def test_what_is_known_to_be_the_administrators_stays_known(
    tree: Tree, mounted: Mount, command: str
) -> None:
    """Restored values are added, so that configuration overrides neither."""
    note_overrides(tree.host, mounted, {"read_ahead_kb": 512})
    change = plan(tree.host, mounted, knobs(max_ratio=5))
    make(tree.host, Journal(tree.host, mounted), change, KEEPING)
    if command == "set":
        set_knobs(tree.host, mounted, knobs(max_ratio=1))
    else:
        reset(tree.host, mounted)
    assert tree.journals() == []
    assert overrides(tree.host, mounted) == {"read_ahead_kb": 512, "max_ratio": 1}


def test_where_nothing_was_kept_nothing_is_noted(tree: Tree, mounted: Mount) -> None:
    for _ in range(2):
        set_knobs(tree.host, mounted, knobs(max_ratio=5))
        set_knobs(tree.host, mounted, knobs(max_ratio=1))
        reset(tree.host, mounted)
    assert overrides(tree.host, mounted) == {}


def test_while_something_is_to_undo_the_journal_tells_it(tree: Tree, mounted: Mount) -> None:
    wanted = plan(tree.host, mounted, knobs(max_ratio=5, max_background=64))
    make(tree.host, Journal(tree.host, mounted), wanted, KEEPING)
    set_knobs(tree.host, mounted, knobs(max_ratio=1))
    assert overrides(tree.host, mounted) == {}
    assert Journal(tree.host, mounted).originals["max_background"] == 12


def test_after_a_remount_or_reboot_old_values_are_not_written(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(max_ratio=5))
    assert mounted.instance is not None
    for host, mount in (
        (tree.host, replace(mounted, instance=mounted.instance + 1)),
        (tree.reboot(), mounted),
    ):
        assert reset(host, mount, dry_run=True) == []
        assert tree.values()["max_ratio"] == 5


def two_mounts(tree: Tree) -> tuple[Mount, Mount]:
    tree.system()
    for number in (40, 41):
        tree.mount(f"/mnt/{number}", device=f"0:{number}")
        tree.live(bdi=f"0:{number}", connection=str(number))
    one, two = discover(tree.host)
    return one, two


def test_reset_all(tree: Tree) -> None:
    one, two = two_mounts(tree)
    set_knobs(tree.host, one, knobs(max_ratio=5))
    set_knobs(tree.host, two, knobs(max_ratio=6))
    set_knobs(tree.host, None, {KNOBS["fs.pipe-max-size"]: 1 << 21})
    save(tree.host, two, {"max_ratio": 6}, "auto", 1.5)
    save(tree.host, replace(two, path="/mnt/unmounted"), {"max_ratio": 6}, "auto", 1.5)
    gone = replace(two, bdi="0:99", device="0:99")
    Journal(tree.host, gone).append([])
    assert len(reset_all(tree.host, dry_run=True)) == 3
    assert len(tree.journals()) == 4
    assert len(reset_all(tree.host)) == 3
    assert tree.values() == STOCK
    assert tree.read("sys/class/bdi/0:41/max_ratio") == "1\n"
    assert tree.read("proc/sys/fs/pipe-max-size") == "1048576\n"
    assert tree.journals() == []
    assert list((tree.host.state_dir / "saved").iterdir()) == []


def test_everything_but_saved_results_can_be_reset(tree: Tree) -> None:
    one, two = two_mounts(tree)
    set_knobs(tree.host, one, knobs(max_ratio=5))
    pipe = {KNOBS["fs.pipe-max-size"]: 1 << 21}
    set_knobs(tree.host, None, pipe)
    persist(tree.host, pipe, dry_run=False)
    save(tree.host, one, {"max_ratio": 5}, "auto", 1.5)
    save(tree.host, replace(two, path="/mnt/unmounted"), {"max_ratio": 6}, "auto", 1.5)
    saved = sorted((tree.host.state_dir / "saved").iterdir())
    assert len(saved) == 2
    assert len(reset_everything(tree.host, dry_run=False, keep_saved=True).changes) == 3
    assert tree.values() == STOCK
    assert tree.read("proc/sys/fs/pipe-max-size") == "1048576\n"
    assert not (tree.root / "etc/sysctl.d/60-fusetune.conf").exists()
    assert tree.journals() == []
    assert sorted((tree.host.state_dir / "saved").iterdir()) == saved


def test_a_journal_that_cannot_be_removed_stops_no_other_mount(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = two_mounts(tree)
    for mount in (one, two):
        set_knobs(tree.host, mount, knobs(max_ratio=5))
    unlink = Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        if path.name == "0:40.journal":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(FusetuneError, match=r"cannot remove .*0:40\.journal: Read-only file"):
        reset_everything(tree.host, dry_run=False)
    for bdi in ("0:40", "0:41"):
        assert tree.read(f"sys/class/bdi/{bdi}/max_ratio") == "1\n"


def test_a_scratch_directory_that_stays_stops_nothing_else(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = two_mounts(tree)
    cleared: list[Mount] = []

    def stays(host: Host, mount: Mount, seconds: float) -> None:
        cleared.append(mount)
        raise FusetuneError(f"{mount.path}/x was not removed")

    monkeypatch.setattr("fusetune.desired.undo.remove_left_behind", stays)
    tree.host.make_dir(tree.host.run_dir)
    for mount in (one, two):
        scratch_note(tree.host, mount).write_text("[]")
    persist(tree.host, {KNOBS["fs.pipe-max-size"]: 1 << 21}, dry_run=False)
    with pytest.raises(FusetuneError, match=f"{one.path}/x was not removed"):
        reset_everything(tree.host, dry_run=False)
    assert cleared == [one, two]
    assert not (tree.root / "etc/sysctl.d/60-fusetune.conf").exists()


def test_the_scratch_directory_of_a_running_benchmark_stays(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[Mount] = []
    monkeypatch.setattr(
        "fusetune.desired.undo.remove_left_behind", lambda _, mount, __: cleared.append(mount)
    )
    with Lock(tree.host, mounted):
        scratch_note(tree.host, mounted).write_text("[]")
        reset_everything(tree.host, dry_run=False)
    assert cleared == []
    reset_everything(tree.host, dry_run=False)
    assert cleared == [mounted]


@pytest.mark.parametrize("file", ["debian/fusetune.prerm", "rpm/fusetune.spec"])
def test_a_removal_of_the_package_keeps_saved_results(file: str) -> None:
    found = re.findall(r"fusetune (reset .*) \|\|", (CHECKOUT / file).read_text())
    assert found == ["reset --all --keep-results"]


def test_mounts_can_be_reset_alone(tree: Tree) -> None:
    """What is saved stays, and so do the host's values. The service leaves the mount alone."""
    one, _ = two_mounts(tree)
    set_knobs(tree.host, one, knobs(max_ratio=5))
    set_knobs(tree.host, None, {KNOBS["fs.pipe-max-size"]: 1 << 21})
    save(tree.host, one, {"max_ratio": 5}, "auto", 1.5)
    resolver = Resolver(tree.host, load(tree.host))
    for dry_run in (True, False):
        (change,) = reset_every_mount(tree.host, dry_run=dry_run).changes
        assert (change.old, change.new) == (5, 1)
        assert tree.values()["max_ratio"] == (5 if dry_run else 1)
    assert tree.read("proc/sys/fs/pipe-max-size") == f"{1 << 21}\n"
    assert saved_for(tree.host, one)
    for turn in range(LEFT_AFTER + 2):  # this is no fight with another program
        assert len(reconcile(resolver, one, respect=False).changes) == 1, turn
        assert len(reset_named(tree.host, one.path, dry_run=False, keep_saved=True).changes) == 1
        assert reconcile(resolver, one).changes == [], "of the service"


def test_reset_all_goes_on_after_a_failure(tree: Tree) -> None:
    one, two = two_mounts(tree)
    set_knobs(tree.host, one, knobs(max_ratio=5))
    set_knobs(tree.host, two, knobs(max_ratio=6))
    with (
        Lock(tree.host, one),
        pytest.raises(FusetuneError, match="working on /mnt/40"),
    ):
        reset_all(tree.host)
    assert tree.values()["max_ratio"] == 5
    assert tree.read("sys/class/bdi/0:41/max_ratio") == "1\n"
    assert Journal(tree.host, one).originals == {"max_ratio": 1}
