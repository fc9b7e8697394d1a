# SPDX-License-Identifier: GPL-2.0-or-later
"""What the service writes about mounts and limits, and what it leaves out."""

import errno
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fusetune.changes.lock import Lock
from fusetune.desired import watch
from fusetune.desired.reconcile import Reconciled, reconcile
from fusetune.errors import FusetuneError
from tests.unit.watch.stage import SET, Stage


def test_what_was_set_by_hand_since_is_said_and_left(stage: Stage) -> None:
    stage.come()
    stage.run()
    stage.tree.write("sys/fs/fuse/connections/40/max_background", "30\n")
    stage.said.clear()
    stage.run()
    (line,) = stage.said
    assert line.startswith("/mnt/one (0:40, fuse.mirrorfs): max_background=30 was set ")
    assert stage.background() == 30


def test_what_is_refused_is_said_once(stage: Stage) -> None:
    stage.come()
    bound = "[policy]\nmax_dirty_percent = 5\n[[mount]]\nmax_ratio = 20\n"
    stage.run(lambda _: os.kill(os.getpid(), signal.SIGHUP), stage.pass_all, config=bound)
    refused, read = stage.said
    assert "max_ratio=20 would let tuned mounts together exceed max_dirty_percent" in refused
    assert read == "configuration read"


def test_of_a_mount_that_has_gone_meanwhile_nothing_is_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its connection the owner is unknown, and the value would be refused."""

    def come(_: float) -> bool:
        stage.come()
        shutil.rmtree(stage.tree.root / "sys/fs/fuse/connections/40")
        return True

    def late(*arguments: Any, **how: Any) -> Reconciled:
        (stage.tree.root / "proc/self/mountinfo").write_text("")
        return reconcile(*arguments, **how)

    monkeypatch.setattr(watch, "reconcile", late)
    stage.run(come, config="[[mount]]\nmax_ratio = 20\n")
    assert stage.said == []


def test_a_record_that_cannot_be_removed_does_not_end_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.come()
    stage.tree.write("run/0:99.left", "{}")

    def refusing(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".left":
            raise OSError(errno.EROFS, "Read-only file system")
        os.unlink(path)

    monkeypatch.setattr(Path, "unlink", refusing)
    stage.run()
    assert f"cannot remove {stage.tree.root}/run/0:99.left: Read-only file system" in stage.said
    assert stage.background() == 64


def test_a_damaged_journal_is_said_and_the_values_are_set_after(stage: Stage) -> None:
    stage.come()
    stage.tree.write("var/lib/undo/0:40.journal", "garbage\n")
    stage.run(stage.pass_all, stage.pass_all)
    assert "the undo journal of /mnt/one was damaged and was moved to" in stage.said[0]
    assert stage.said[1:] == [SET.format(stage.tree.root)]
    assert stage.waits[0] == 0.25


def test_a_failure_is_said_of_a_mount_that_is_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        if stage.said:
            (stage.tree.root / "proc/self/mountinfo").write_text("")
        raise FusetuneError("no way")

    stage.come()
    monkeypatch.setattr(watch, "reconcile", fail)
    stage.run(lambda _: os.kill(os.getpid(), signal.SIGHUP), stage.pass_all)
    assert stage.said == ["/mnt/one (0:40, fuse.mirrorfs): no way", "configuration read"]
    assert stage.waits[-1] == 3600.0


def test_limits_are_raised_for_the_next_mount(stage: Stage) -> None:
    stage.tree.system()
    stage.come()
    stage.run(config="[[mount]]\nmax_write = '2M'\n")
    assert stage.said == [
        "/mnt/one (0:40, fuse.mirrorfs): fs.pipe-max-size 1048576 -> 4194304, for its next mount",
        "/mnt/one (0:40, fuse.mirrorfs): fs.fuse.max_pages_limit 256 -> 512, for its next mount",
    ]


def test_limits_set_by_hand_stay_and_are_said(stage: Stage) -> None:
    stage.tree.system()
    stage.come()
    stage.run(config="[[mount]]\nmax_write = '2M'\n")
    stage.tree.write("proc/sys/fs/fuse/max_pages_limit", "300\n")
    stage.said.clear()
    stage.run(config="[[mount]]\nmax_write = '2M'\n")
    (line,) = stage.said
    assert line.endswith(
        "max_pages_limit=300 was set by the administrator and is kept, but 512 is needed"
    )


def test_a_failure_to_raise_them_is_said_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many mounts may appear at once; none waits for another fusetune to end."""
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"slept {seconds} s"))
    stage.tree.system()
    stage.come()
    with Lock(stage.tree.host, None):
        stage.run(config="[[mount]]\nmax_write = '2M'\n")
    (line,) = stage.said
    assert "another fusetune (pid " in line
