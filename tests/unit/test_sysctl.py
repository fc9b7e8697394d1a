# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's values for later boots: their lines are added and removed, all others are kept.

The files are those of sysctl.d(5) and, for module parameters, modprobe.d(5).
"""

from unittest import mock

import pytest

from fusetune.cli.set_ import command
from fusetune.desired.sysctl import forget_persisted, persist
from fusetune.desired.undo import Reset
from fusetune.errors import FusetuneError, UsageError
from fusetune.knobs import SYSTEM
from fusetune.report.documents.changes import reset_changes, set_changes
from tests import schemas
from tests.unit.conftest import Tree

KNOBS = {knob.name: knob for knob in SYSTEM}
PIPE, PAGES, TUNED = (
    KNOBS[name] for name in ("fs.pipe-max-size", "fs.fuse.max_pages_limit", "max_pages_per_req")
)
SYSCTL, MODPROBE = "etc/sysctl.d/60-fusetune.conf", "etc/modprobe.d/60-fusetune.conf"


def lines(tree: Tree, file: str) -> list[str]:
    return [line for line in tree.read(file).splitlines() if not line.startswith("#")]


def test_written_changed_and_removed(tree: Tree) -> None:
    done = persist(tree.host, {PIPE: 1 << 21, TUNED: 512}, dry_run=False)
    schemas.check(set_changes(done, False))
    assert [(line.old, line.new) for line in done] == [(None, 1 << 21), (None, 512)]
    assert lines(tree, SYSCTL) == ["-fs.pipe-max-size = 2097152"]
    assert lines(tree, MODPROBE) == ["options fusetuned max_pages_per_req=512"]
    assert persist(tree.host, {PIPE: 1 << 21}, dry_run=False) == []
    (line,) = persist(tree.host, {PIPE: 1 << 22}, dry_run=False)
    assert (line.old, line.new) == (1 << 21, 1 << 22)
    assert lines(tree, SYSCTL) == ["-fs.pipe-max-size = 4194304"]
    done = forget_persisted(tree.host, dry_run=False)
    schemas.check(reset_changes(Reset(done), False))
    assert [(line.old, line.new) for line in done] == [(1 << 22, None), (512, None)]
    assert not (tree.root / SYSCTL).exists()
    assert not (tree.root / MODPROBE).exists()
    assert forget_persisted(tree.host, dry_run=False) == []


def test_other_lines_stay(tree: Tree) -> None:
    mine = "# mine\nvm.swappiness = 1\n; fs.pipe-max-size = 1\n"
    tree.write(SYSCTL, mine + "fs/pipe-max-size=5\nfs.pipe-max-size=6\nfs.pipe-max-sizes = 7")
    (line,) = persist(tree.host, {PIPE: 1 << 21}, dry_run=False)
    assert (line.old, line.new) == (6, 1 << 21)
    kept = mine + "fs.pipe-max-sizes = 7\n"
    assert tree.read(SYSCTL) == kept + "-fs.pipe-max-size = 2097152\n"
    persist(tree.host, {PAGES: 1024}, dry_run=False)
    assert tree.read(SYSCTL).endswith("2097152\n-fs.fuse.max_pages_limit = 1024\n")
    forget_persisted(tree.host, dry_run=False)
    assert tree.read(SYSCTL) == kept


def test_a_dry_run_writes_nothing(tree: Tree) -> None:
    assert len(persist(tree.host, {PIPE: 1 << 21}, dry_run=True)) == 1
    assert not (tree.root / "etc").exists()
    persist(tree.host, {PIPE: 1 << 21}, dry_run=False)
    assert len(forget_persisted(tree.host, dry_run=True)) == 1
    assert (tree.root / SYSCTL).exists()


def test_the_kernels_own_parameters_have_no_such_file(tree: Tree) -> None:
    with pytest.raises(UsageError, match=r"fuse\.max_user_bgreq=VALUE on the kernel's command"):
        persist(tree.host, {PIPE: 1 << 21, KNOBS["max_user_bgreq"]: 64}, dry_run=False)
    assert not (tree.root / "etc").exists()


@pytest.mark.parametrize(
    "words", [[], ["--allow-owner", "no-such-user"]], ids=["no such file", "no such user"]
)
def test_what_cannot_be_set_is_not_kept(tree: Tree, words: list[str]) -> None:
    """The host has no such knob, or the command is wrong."""
    with pytest.raises(FusetuneError):
        command.main(
            ["host", "max_pages_per_req=512", "--persist", *words],
            prog_name="set",
            obj=tree.host,
            standalone_mode=False,
        )
    assert not (tree.root / MODPROBE).exists()


def test_what_cannot_be_kept_is_not_set(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.system()
    before = tree.read("proc/sys/fs/pipe-max-size")
    monkeypatch.setattr(
        "fusetune.desired.sysctl.write_whole", mock.Mock(side_effect=FusetuneError("read-only"))
    )
    words = ["host", "--persist", "fs.pipe-max-size=2M"]
    with pytest.raises(FusetuneError, match="read-only"):
        command.main(words, prog_name="set", obj=tree.host, standalone_mode=False)
    assert tree.read("proc/sys/fs/pipe-max-size") == before
    assert tree.journals() == []
