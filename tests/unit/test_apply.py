# SPDX-License-Identifier: GPL-2.0-or-later
"""A set of knobs changes completely or not at all.

Each write is journalled before and read back after. A write that the kernel refuses is an OSError
from write(2), which the tests simulate.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from fusetune.changes.apply import enforce, make, plan, set_knobs
from fusetune.changes.journal import Journal
from fusetune.changes.lock import Lock
from fusetune.desired.reset import reset
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from tests.unit.conftest import STOCK, Tree
from tests.unit.knob_values import KNOBS, NEW, knobs


def refuse(tree: Tree, name: str, device: str = "/dev/full") -> Path:
    """Make a knob's file one that can be opened but not written; return it."""
    file = tree.root / KNOBS[name].file.format(
        bdi="0:40", control="sys/fs/fuse/connections", connection="40"
    )
    file.unlink()
    file.symlink_to(device)
    return file


def test_a_plan_names_what_would_change(tree: Tree, mounted: Mount) -> None:
    (change,) = plan(tree.host, mounted, knobs(max_ratio=5, strict_limit=1))
    assert (change.knob, change.old, change.new) == (KNOBS["max_ratio"], 1, 5)
    assert change.file == str(tree.root / "sys/class/bdi/0:40/max_ratio")
    assert tree.values() == STOCK
    assert not tree.host.state_dir.exists()


def test_a_plan_with_an_absent_knob(tree: Tree, mounted: Mount) -> None:
    bare = replace(mounted, connection=None)
    with pytest.raises(FusetuneError, match="max_background is absent: no connection under"):
        plan(tree.host, bare, knobs(max_background=5))


def test_nothing_to_change_writes_no_journal(tree: Tree, mounted: Mount) -> None:
    assert set_knobs(tree.host, mounted, knobs(max_ratio=1)) == []
    assert tree.journals() == []


@pytest.mark.parametrize("position", range(len(NEW)))
def test_a_refused_write_undoes_those_before_it(
    tree: Tree, mounted: Mount, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = list(NEW)[position]
    real = type(tree.host).write
    written = []

    def write(host: object, relative: str, text: str, once_open: object) -> None:
        if relative.endswith(name) and text == str(NEW[name]):
            raise OSError(22, "Invalid argument")
        written.append(relative)
        real(tree.host, relative, text)

    monkeypatch.setattr(type(tree.host), "write", write)
    with pytest.raises(FusetuneError, match=rf"the kernel refused {name}={NEW[name]} in /sys/"):
        set_knobs(tree.host, mounted, knobs(**NEW))
    assert tree.values() == STOCK
    assert len(written) == 2 * position
    assert tree.journals() == []


def test_a_real_refusal_undoes_those_before_it(tree: Tree, mounted: Mount) -> None:
    """/dev/full reads as zero bytes, so only the write itself can be refused."""
    journal = Journal(tree.host, mounted)
    changes = plan(tree.host, mounted, knobs(**NEW))
    refuse(tree, "max_ratio")
    with pytest.raises(FusetuneError, match=r"refused max_ratio=5 .*: No space left on device"):
        make(tree.host, journal, changes, "set")
    Path(tree.root / "sys/class/bdi/0:40/max_ratio").unlink()
    tree.write("sys/class/bdi/0:40/max_ratio", "1\n")
    assert tree.values() == STOCK


def test_a_value_that_does_not_stick_is_undone(tree: Tree, mounted: Mount) -> None:
    tree.live(values={"max_ratio": 100})
    with pytest.raises(FusetuneError, match="max_ratio reads 500 after 5 was written to it"):
        set_knobs(tree.host, mounted, knobs(read_ahead_kb=256, max_ratio=5))
    assert tree.values() == STOCK | {"max_ratio": 100}
    assert tree.journals() == []


def test_where_undoing_fails_too_the_journal_remembers(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = type(tree.host).write

    def write(host: object, relative: str, text: str, once_open: object) -> None:
        if relative.endswith("read_ahead_kb") and text == "256":
            real(tree.host, relative, text)
            return
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(type(tree.host), "write", write)
        with pytest.raises(FusetuneError, match="refused max_ratio=5"):
            set_knobs(tree.host, mounted, knobs(read_ahead_kb=256, max_ratio=5))
    assert tree.values()["read_ahead_kb"] == 256
    assert Journal(tree.host, mounted).originals == {"read_ahead_kb": 128, "max_ratio": 1}
    reset(tree.host, mounted)
    assert tree.values() == STOCK


def test_a_mount_that_goes_away_meanwhile(tree: Tree, mounted: Mount) -> None:
    changes = plan(tree.host, mounted, knobs(read_ahead_kb=256, max_ratio=5))
    (tree.root / "sys/class/bdi/0:40/max_ratio").unlink()
    with pytest.raises(FusetuneError, match=r"^/mnt/one disappeared meanwhile: "):
        make(tree.host, Journal(tree.host, mounted), changes, "set")


def test_an_unwritable_journal_means_no_write(tree: Tree, mounted: Mount) -> None:
    (tree.host.state_dir / "undo" / "0:40.journal").mkdir(parents=True)
    with pytest.raises(FusetuneError, match="undo journal"):
        set_knobs(tree.host, mounted, knobs(**NEW))
    assert tree.values() == STOCK


def test_a_dry_run_writes_nothing(tree: Tree, mounted: Mount) -> None:
    changes = set_knobs(tree.host, mounted, knobs(**NEW), dry_run=True)
    assert {change.knob.name: change.new for change in changes} == NEW
    assert tree.values() == STOCK
    assert not tree.host.state_dir.exists()
    assert not tree.host.run_dir.exists()
    set_knobs(tree.host, mounted, knobs(**NEW))
    changes = reset(tree.host, mounted, dry_run=True)
    assert {change.knob.name: change.new for change in changes} == STOCK
    assert tree.values() == NEW


def test_policy_comes_before_everything(tree: Tree) -> None:
    tree.mount("/mnt/one", options="rw,user_id=1000,group_id=1000")
    tree.live(owner=1000)
    mount = tree.only()
    for dry_run in (True, False):
        with pytest.raises(FusetuneError, match="uid 1000"):
            set_knobs(tree.host, mount, knobs(read_ahead_kb=256, max_ratio=5), dry_run=dry_run)
    assert tree.values() == STOCK
    set_knobs(tree.host, mount, knobs(max_ratio=5), {1000})
    assert tree.values()["max_ratio"] == 5


@pytest.mark.parametrize("dry_run", [False, True])
def test_no_more_than_init_negotiated(tree: Tree, by_module: Mount, dry_run: bool) -> None:
    """No other knob of the same command is set either."""
    wanted = knobs(read_ahead_kb=256, max_pages=257)
    with pytest.raises(FusetuneError, match="max_pages=257: INIT negotiated 256"):
        set_knobs(tree.host, by_module, wanted, dry_run=dry_run)
    assert not tree.host.state_dir.exists()
    assert tree.read("sys/class/bdi/0:41/read_ahead_kb") == "128\n"


def test_a_held_lock_means_no_write(tree: Tree, mounted: Mount) -> None:
    with Lock(tree.host, mounted):
        with pytest.raises(FusetuneError, match=r"another fusetune \(pid \d+\)"):
            set_knobs(tree.host, mounted, knobs(**NEW))
        with pytest.raises(FusetuneError, match=r"another fusetune \(pid \d+\)"):
            reset(tree.host, mounted)
    assert tree.values() == STOCK


def test_enforce_tries_every_knob(tree: Tree, mounted: Mount) -> None:
    tree.live(values=NEW)
    tree.write("sys/class/bdi/0:40/read_ahead_kb", "garbage\n")
    (tree.root / "sys/class/bdi/0:40/max_ratio").unlink()
    with pytest.raises(FusetuneError, match="read_ahead_kb contains 'garbage'"):
        enforce(tree.host, mounted, STOCK)
    tree.write("sys/class/bdi/0:40/read_ahead_kb", "128\n")
    tree.write("sys/class/bdi/0:40/max_ratio", "1\n")
    assert tree.values() == STOCK


def test_host_knobs(tree: Tree) -> None:
    tree.system()
    changes = set_knobs(tree.host, None, {KNOBS["fs.pipe-max-size"]: 1 << 21})
    assert [(change.mount, change.new) for change in changes] == [(None, 1 << 21)]
    assert tree.read("proc/sys/fs/pipe-max-size") == "2097152\n"
    reset(tree.host, None)
    assert tree.read("proc/sys/fs/pipe-max-size") == "1048576\n"
