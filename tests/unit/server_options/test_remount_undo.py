# SPDX-License-Identifier: GPL-2.0-or-later
"""What reset undoes in fstab and units, also after a kill, in a tree instead of /etc."""

import os
import signal
import sys
from typing import Any

import pytest

from fusetune.errors import FusetuneError
from tests.unit.conftest import Tree
from tests.unit.server_options.etc_files import (
    ACCEPT,
    DROP_IN,
    FSTAB,
    OPTIONS,
    SAFE,
    SERVICE,
    files,
    fstab,
    run,
    undone,
    with_options,
)
from tests.unit.server_options.oursd import serve

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("text", [FSTAB, FSTAB.replace("\n", "\r\n"), FSTAB[:-1]])
def test_reset_undoes_byte_for_byte(
    mounted_by_fstab: Tree, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = mounted_by_fstab
    (tree.root / "etc/fstab").write_bytes(text.encode())
    before = files(tree)
    assert run(tree) == 0
    assert run(tree, *ACCEPT) == 0
    assert fstab(tree) != text
    assert run(tree, "reset") == 0
    assert undone(tree) == before
    assert "hunter2" not in capsys.readouterr().out


def test_an_option_that_is_given_twice_comes_back_twice(mounted_by_fstab: Tree) -> None:
    text = FSTAB.replace(OPTIONS, f"{OPTIONS},cache=off")
    mounted_by_fstab.write("etc/fstab", text)
    run(mounted_by_fstab, *ACCEPT)
    assert fstab(mounted_by_fstab).count("cache=") == 1
    run(mounted_by_fstab, "reset")
    assert fstab(mounted_by_fstab) == text


def test_only_our_options_are_taken_back_from_a_line_that_somebody_edited(
    mounted_by_fstab: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    run(mounted_by_fstab, *ACCEPT)
    edited = FSTAB.replace(OPTIONS, "noatime,cache=all,door=hunter3,threads=8,writeback")
    mounted_by_fstab.write("etc/fstab", edited)
    run(mounted_by_fstab, "reset")
    left = FSTAB.replace(OPTIONS, "noatime,cache=all,door=hunter3,threads=1")
    assert fstab(mounted_by_fstab) == left
    said = capsys.readouterr().err
    assert said.endswith("etc/fstab was changed since fusetune wrote it, so it was not restored\n")
    assert said.startswith("fusetune: cache in ")


def test_what_is_no_longer_mounted_is_taken_back_by_its_path(mounted_by_fstab: Tree) -> None:
    run(mounted_by_fstab)
    mounted_by_fstab.write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    run(mounted_by_fstab, "reset")
    assert fstab(mounted_by_fstab) == FSTAB


def test_a_drop_in_that_somebody_edited_stays(
    ours: Tree,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve(ours, unit="ours.service")
    ours.write("etc/systemd/system/ours.service", SERVICE)
    run(ours, "-w", "metadata")
    edited = ours.read(DROP_IN) + "Nice=5\n"
    ours.write(DROP_IN, edited)
    with pytest.raises(FusetuneError, match="was changed since fusetune wrote it; move those"):
        run(ours, "-w", "small-write", *ACCEPT)
    run(ours, "reset")
    assert ours.read(DROP_IN) == edited
    assert "was changed since fusetune wrote it, so it was not restored" in capsys.readouterr().err


def test_a_drop_in_that_was_there_before_comes_back(ours: Tree) -> None:
    serve(ours, unit="ours@one.service")
    ours.write("etc/systemd/system/ours@.service", SERVICE)
    before = "[Service]\r\nEnvironment=MINE=1\n"
    file = ours.write(DROP_IN.replace("ours", "ours@one"), "")
    file.write_bytes(before.encode())
    assert run(ours, "-w", "metadata") == 0
    line = "ExecStart=/usr/bin/oursd -o threads=8 a /mnt/one"
    assert file.read_text() == f"[Service]\nEnvironment=MINE=1\nExecStart=\n{line}\n"
    assert run(ours, "reset") == 0
    assert file.read_bytes() == before.encode()
    assert os.listdir(file.parent) == [file.name]


def test_an_option_that_the_files_do_not_have_is_told(
    mounted_by_fstab: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    (mounted_by_fstab.root / "proc/10/cmdline").write_text("oursd\0-o\0nosync\0a\0/mnt/one\0")
    run(mounted_by_fstab)
    words = "the mount has nosync=true, but its files do not set nosync: the next mount will not"
    assert words in capsys.readouterr().out


def killed(tree: Tree, step: int, *words: str) -> bool:
    """Run remount in a child that is killed at its ``step``-th use of a file; False if it ends."""
    watched = tuple(f"{tree.root}/{name}" for name in ("etc/fstab", "etc/.", "var/"))
    pid = os.fork()
    if pid == 0:
        left = [step]

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            steps = ("open", "os.rename", "os.link", "os.remove", "os.chmod")
            if event in steps and str(arguments[0]).startswith((*watched, ".fusetune")):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            run(tree, *words)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(
    mounted_by_fstab: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its programs take long, and do not use these files.
    monkeypatch.setattr("fusetune.desired.remount.check", lambda *_: None)
    tree, seen = mounted_by_fstab, set()
    for step in range(1, 400):
        alive = not killed(tree, step)
        assert fstab(tree) in (FSTAB, with_options(SAFE)), step
        seen.add(fstab(tree))
        run(tree, "reset")
        assert fstab(tree) == FSTAB, step
        if alive:
            break
    assert alive
    assert len(seen) == 2
    assert sorted(os.listdir(tree.root / "etc")) == ["fstab", "recipes"]
