# SPDX-License-Identifier: GPL-2.0-or-later
"""What remount writes to fstab and units, and what it refuses, in a tree instead of /etc."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fusetune.errors import FusetuneError, UsageError
from fusetune.recipes.edit import Edit
from fusetune.remount.checks import check
from fusetune.toml.file import ConfigError
from tests import schemas
from tests.unit.conftest import Tree
from tests.unit.server_options.etc_files import (
    ACCEPT,
    DROP_IN,
    FSTAB,
    SAFE,
    SERVICE,
    files,
    fstab,
    run,
    with_options,
)
from tests.unit.server_options.oursd import recipe_with, serve

ACCEPTED = "ro,cache=some,door=hunter2,threads=8,writeback"


# What is written


def test_safe_options_are_written_and_others_listed(
    mounted_by_fstab: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = mounted_by_fstab
    assert run(tree, "--json") == 0
    found = schemas.validate(json.loads(text := capsys.readouterr().out))
    assert fstab(tree) == with_options(SAFE)
    assert {one["option"]: one["to"] for one in found["changes"]} == {
        "passthrough": "true",
        "threads": "8",
    }
    assert [one["option"] for one in found["not_applied"]] == ["writeback", "cache"]
    assert found["not_applied"][0]["condition"] == "no one else writes"
    assert (found["pending"], found["remounted"]) == (True, False)
    assert "hunter2" not in text
    assert (tree.root / "etc/fstab").stat().st_mode & 0o777 == 0o640
    backup = tree.root / "etc/fstab.fusetune-backup"
    assert (backup.read_text(), backup.stat().st_mode & 0o777) == (FSTAB, 0o640)
    state = [content for path, content in files(tree).items() if "var/lib" in str(path)]
    assert state
    assert not any(b"hunter2" in content for content in state)


def test_a_conditional_option_that_is_accepted_comes_with_what_it_needs(
    mounted_by_fstab: Tree,
) -> None:
    assert run(mounted_by_fstab, *ACCEPT) == 0
    assert fstab(mounted_by_fstab) == with_options(ACCEPTED)


def test_only_the_options_named(mounted_by_fstab: Tree) -> None:
    assert run(mounted_by_fstab, *ACCEPT, "--only", "writeback", "--only", "cache") == 0
    assert fstab(mounted_by_fstab) == with_options(ACCEPTED.replace("threads=8", "threads=1"))


def test_the_configuration_accepts(mounted_by_fstab: Tree) -> None:
    section = '[[mount]]\npath = "/mnt/*"\naccept = ["writeback"]\n'
    mounted_by_fstab.write("usr/lib/fusetune.toml", section)
    with pytest.raises(ConfigError, match=r"fusetune\.toml:3: accept is only allowed in"):
        run(mounted_by_fstab)
    mounted_by_fstab.write("etc/fusetune.toml", section)
    assert run(mounted_by_fstab) == 0
    assert fstab(mounted_by_fstab) == with_options(ACCEPTED)


@pytest.mark.parametrize(
    ("name", "why"), [("writebak", "has no such option"), ("nosync", "is unsafe and never")]
)
def test_names_that_cannot_be_accepted(mounted_by_fstab: Tree, name: str, why: str) -> None:
    for option in ("--accept", "--only"):
        with pytest.raises(UsageError, match=f"^{option} {name}: .*{why}"):
            run(mounted_by_fstab, option, name)
    assert fstab(mounted_by_fstab) == FSTAB


def test_an_option_that_needs_one_that_is_not_accepted_goes_out_with_it(
    mounted_by_fstab: Tree,
) -> None:
    recipe_with(mounted_by_fstab, "mount", ('since = "2.1"', 'needs = ["writeback"]'))
    assert run(mounted_by_fstab) == 0
    assert fstab(mounted_by_fstab) == with_options(SAFE.replace("threads=8", "threads=1"))


def test_an_option_that_needs_one_that_fstab_cannot_say_goes_out_with_it(
    mounted_by_fstab: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = mounted_by_fstab
    recipe_with(tree, "long", ('name = "cache"', 'name = "cache"\nfstab = ""\ncommand = "-c"'))
    text = FSTAB.replace("cache=off,", "")
    tree.write("etc/fstab", text)
    assert run(tree, *ACCEPT, "--json") == 0
    assert "writeback" not in fstab(tree)
    withheld = json.loads(capsys.readouterr().out)["not_applied"]
    assert [one["option"] for one in withheld] == ["writeback", "cache"]


def test_nothing_to_change(mounted_by_fstab: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mounted_by_fstab, "-w", "rand-write") == 4
    assert "/mnt/one: nothing to change\n" in capsys.readouterr().out
    assert fstab(mounted_by_fstab) == FSTAB


def test_a_dry_run_writes_nothing(
    mounted_by_fstab: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(mounted_by_fstab)
    assert run(mounted_by_fstab, "--dry-run") == 0
    assert files(mounted_by_fstab) == before
    said = capsys.readouterr().out
    assert "\n+a\t/mnt/one/  fuse.ours   ro,cache=off,door=***,threads=8,passthrough  0 0" in said
    assert "umount --no-canonicalize /mnt/one; mount /mnt/one\n" in said
    assert "hunter2" not in said


def test_a_service_gets_a_drop_in_that_later_runs_add_to(ours: Tree) -> None:
    recipe_with(
        ours, "mount", ('name = "threads"', 'name = "threads"\ncommand = ""\nenvironment = "N"')
    )
    serve(ours, unit="ours.service")
    ours.write("etc/systemd/system/ours.service", SERVICE)
    assert run(ours, "-w", "metadata") == 0
    assert ours.read(DROP_IN) == "[Service]\nEnvironment=N=8\n"
    assert run(ours, "-w", "small-write", *ACCEPT) == 0
    lines = "Environment=N=8\nExecStart=\nExecStart=/usr/bin/oursd -o cache=some,writeback"
    assert ours.read(DROP_IN) == f"[Service]\n{lines} a /mnt/one\n"
    assert run(ours, "reset") == 0
    assert not (ours.root / DROP_IN).parent.exists()


# What is refused


def refused(tree: Tree, why: str, *words: str) -> None:
    """Assert that remount reports ``why``, and writes nothing."""
    before = files(tree)
    with pytest.raises(FusetuneError, match=why):
        run(tree, *words)
    assert files(tree) == before


def test_a_file_that_somebody_else_changes_meanwhile(
    mounted_by_fstab: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = FSTAB + "c /mnt/three ext4 defaults 0 0\n"

    def changed_meanwhile(*words: Any) -> None:
        check(*words)
        mounted_by_fstab.write("etc/fstab", others)

    monkeypatch.setattr("fusetune.desired.remount.check", changed_meanwhile)
    with pytest.raises(FusetuneError, match=r"another program changed .* so nothing was written"):
        run(mounted_by_fstab)
    assert fstab(mounted_by_fstab) == others
    assert sorted(os.listdir(mounted_by_fstab.root / "var/lib/remount")) == []


@pytest.mark.parametrize("what", ["etc/fstab", "etc"])
def test_a_file_that_others_can_change(mounted_by_fstab: Tree, what: str) -> None:
    (mounted_by_fstab.root / what).chmod(0o777)
    refused(mounted_by_fstab, f"users other than root can change .*/{what}, so")


@pytest.mark.parametrize("what", ["etc/fstab", "etc"])
def test_a_file_that_belongs_to_somebody_else(
    mounted_by_fstab: Tree, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He could rename what is in a directory of his."""
    if os.geteuid():
        monkeypatch.setattr("os.geteuid", lambda: 65534)
        what = ""
    else:
        os.chown(mounted_by_fstab.root / what, 65534, -1)
    refused(mounted_by_fstab, f"users other than root can change .*{what}, so")


def test_the_file_keeps_its_mode_and_group(mounted_by_fstab: Tree) -> None:
    file = mounted_by_fstab.root / "etc/fstab"
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 0, 65534)
    before = file.stat()
    assert run(mounted_by_fstab) == 0
    after = file.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_gid) == (before.st_mode, before.st_gid)


def test_a_worse_fstab_is_found_by_findmnt_itself(tree: Tree) -> None:
    line = "tmpfs /tmp tmpfs defaults 0 0\n"
    check(tree.host, Edit(Path("/etc/fstab"), line, line.replace("defaults", "size=1m")))
    # Debian 13's findmnt dies with SIGSEGV on a line that it cannot parse.
    with pytest.raises(
        FusetuneError, match=r"findmnt --verify (finds more problems|failed: .*parse)"
    ):
        check(tree.host, Edit(Path("/etc/fstab"), line, line + "tmpfs\n"))


def test_a_worse_unit_is_found_by_systemd_itself(tree: Tree) -> None:
    tree.write("etc/systemd/system/ours.service", "[Service]\nExecStart=/bin/true\n")
    drop_in = Path(tree.host.path(DROP_IN))
    text = "[Service]\nExecStart=\nExecStart={} --x\n"
    check(tree.host, Edit(drop_in, None, text.format("/bin/false")))
    with pytest.raises(FusetuneError, match=r"systemd-analyze verify: .*/absent.* not written"):
        check(tree.host, Edit(drop_in, None, text.format("/absent")))
    assert not drop_in.exists()


def test_a_server_that_somebody_started_by_hand(ours: Tree) -> None:
    serve(ours)
    why = "no file on this host defines the mount; 'fusetune advise' shows"
    refused(ours, why)
    refused(ours, why, "--now")


def test_a_unit_whose_options_hold_secrets(ours: Tree) -> None:
    serve(ours, unit="ours.service")
    line = "ExecStart=/usr/bin/oursd -o door=hunter2 a /mnt/one"
    ours.write("etc/systemd/system/ours.service", f"[Service]\n{line}\n")
    refused(ours, "ours.service has secrets in its options")


def test_a_mount_that_is_left_alone(mounted_by_fstab: Tree) -> None:
    mounted_by_fstab.write("etc/fusetune.toml", '[policy]\nexclude = ["fuse.our*"]\n')
    refused(mounted_by_fstab, r"left alone: the configuration excludes fuse\.our\*")


def test_a_user_would_not_own_a_mount_of_roots(ours: Tree) -> None:
    serve(ours)
    ours.host.owners["sys/fs/fuse/connections/40"] = 1000
    ours.write("etc/fstab", "a /mnt/one fuse.ours user,noauto 0 0\n")
    refused(ours, "uid 1000 mounted /mnt/one", "--now")
