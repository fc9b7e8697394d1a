# SPDX-License-Identifier: GPL-2.0-or-later
"""remount and reset on mounts of fstab, of a mount unit and of a service, with a real systemd."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.native.requirements import requires
from tests.system.container import Container
from tests.system.watched import configure

pytestmark = requires("systemd-nspawn", "mmdebstrap")

SECRET = "hunter2"  # noqa: S105 - of nobody
#: mount(8) does not pass x- options on.
FSTAB = f"""\
//host/share /media cifs noauto,password={SECRET} 0 0
mirrorfs#/srv /mnt/fstab fuse counters=/run/counters.json,x-password={SECRET} 0 0
bindfs#/srv /mnt/other fuse noatime 0 0
"""
UNIT = "[Mount]\nWhat=bindfs#/srv\nWhere=/mnt/unit\nType=fuse\nOptions=noatime\n"
SERVICE = "[Service]\nExecStart=mirrorfs -f /srv /mnt/service\n"
ACCEPT = ("--accept", "writeback", "--accept", "no_xattr")
#: The journal reads what is printed only after the unit has failed and lost its invocation ID.
PAUSE = """\
systemd-run --quiet --no-block sh -c 'sleep 1; pkill -CONT -x systemd-journal'
pkill -STOP -x systemd-journal
"""
DROP_IN = "60-fusetune-options.conf"


def fusetune(
    container: Container, *words: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run fusetune, which must exit with ``status`` and print no secret."""
    done = container.run("fusetune", *words, check=False, timeout=120)
    assert done.returncode == status, done
    assert SECRET not in done.stdout + done.stderr
    return done


def refused(container: Container, *words: str) -> str:
    """Return the one error line of a failing command."""
    line, told = failed(container, *words)
    assert told == []
    return line


def failed(container: Container, *words: str) -> tuple[str, list[str]]:
    """Return the error line of a failing command, and its earlier lines about long steps."""
    *told, line = fusetune(container, *words, status=1).stderr.splitlines()
    return line, told


def servers(container: Container, point: str) -> list[str]:
    """Return the pid and command line of each running server of ``point``."""
    pattern = f"^(bindfs|mirrorfs).* {point}( |$)"
    return container.run("pgrep", "--full", "--list-full", pattern).stdout.splitlines()


def command_line(container: Container, point: str) -> str:
    """Return the command line of the server at ``point``."""
    (line,) = servers(container, point)
    return line.partition(" ")[2]


@contextmanager
def mounted(container: Container, point: str, *start: str) -> Iterator[str]:
    """Mount at ``point`` by a command; yield the device, and end it afterwards."""
    container.run("install", "-d", point)
    container.run("systemctl", "daemon-reload")
    try:
        container.run(*start)
        container.wait(lambda: bool(container.mounted_at(point)), "the mount")
        yield container.mounted_at(point) or ""
    finally:
        container.run("fusetune", "reset", point, check=False)
        container.run("systemctl", "stop", *start[2:], check=False)
        container.run("umount", "--lazy", point, check=False)


@pytest.fixture
def by_fstab(container: Container) -> Iterator[Container]:
    """The container with /mnt/fstab mounted by its line."""
    container.path("/etc/fstab").write_text(FSTAB)
    with mounted(container, "/mnt/fstab", "mount", "/mnt/fstab"):
        yield container


@pytest.fixture
def refusing(container: Container) -> Iterator[None]:
    """A recipe that proposes an option which mirrorfs refuses."""
    recipe = container.path("/usr/lib/fusetune/recipes/mirrorfs.toml").read_text()
    head = recipe.partition("[[option]]")[0]
    option = 'name = "no_such"\nflag = true\npropose = "true"\nabout = "x"\nclass = "safe"\n'
    facts = 'proof = "read"\nsource = "x"\n'
    configure(container, f"{head}[[option]]\n{option}{facts}", "recipes/mirrorfs.toml")
    yield
    container.path("/etc/fusetune/recipes/mirrorfs.toml").unlink()


def writes(container: Container) -> int:
    """Return how many WRITEs the server gets for a program's 64 writes of a page."""
    file = container.path("/run/counters.json")

    def document(signal: str) -> dict[str, Any]:
        before = json.loads(file.read_text())
        container.run("pkill", f"-{signal}", "--full", "^mirrorfs .* /mnt/fstab")
        container.wait(lambda: json.loads(file.read_text()) != before, "counters")
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    document("USR2")
    container.run("dd", "if=/dev/zero", "of=/mnt/fstab/file", "bs=4k", "count=64", "conv=fsync")
    count: int = document("USR1")["ops"]["WRITE"]["count"]
    return count


def test_a_mount_of_fstab_from_dry_run_to_reset(by_fstab: Container) -> None:
    container = by_fstab
    device = container.mounted_at("/mnt/fstab")
    assert writes(container) == 64
    fusetune(container, "remount", "/mnt/fstab", *ACCEPT, "--now", "--dry-run")
    assert container.path("/etc/fstab").read_text() == FSTAB
    assert container.mounted_at("/mnt/fstab") == device
    user = container.start("sh", "-c", "cd /mnt/fstab && exec sleep 600")
    container.wait(lambda: "sleep" in container.run("ps", "-C", "sleep", check=False).stdout)
    line = refused(container, "remount", "/mnt/fstab", *ACCEPT, "--now")
    assert line.startswith("fusetune: /mnt/fstab is in use by sleep (pid ")
    assert container.path("/etc/fstab").read_text() == FSTAB
    user.kill()
    user.wait(10)
    done = fusetune(container, "remount", "/mnt/fstab", *ACCEPT, "--now", "--json")
    assert json.loads(done.stdout)["remounted"]
    options = f"x-password={SECRET},no_xattr,writeback"
    written = FSTAB.replace(f"x-password={SECRET}", options)
    assert container.path("/etc/fstab").read_text() == written
    assert writes(container) <= 2
    fusetune(container, "reset", "/mnt/fstab")
    assert container.path("/etc/fstab").read_text() == FSTAB
    assert not container.path("/etc/fstab.fusetune-backup").exists()


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ('name = "no_such"\nflag = true\npropose = "true"\n', "no_such"),
        ('name = "delay"\nvalues = ["20s"]\npropose = "20s"\n', "it did not reply within 10 s"),
    ],
    ids=["refused by its server", "without a reply"],
)
def test_a_new_mount_that_fails_brings_the_old_one_back(
    by_fstab: Container, option: str, why: str
) -> None:
    container = by_fstab
    head, _, _ = (
        container.path("/usr/lib/fusetune/recipes/mirrorfs.toml")
        .read_text()
        .partition("[[option]]")
    )
    facts = 'about = "x"\nclass = "safe"\nproof = "read"\nsource = "x"\n'
    configure(container, f"{head}[[option]]\n{option}{facts}", "recipes/mirrorfs.toml")
    try:
        line, told = failed(container, "remount", "/mnt/fstab", "--now")
    finally:
        container.path("/etc/fusetune/recipes/mirrorfs.toml").unlink()
    assert why in line
    waited = "fusetune: waiting for /mnt/fstab to reply, at most 8 s more"
    assert (waited in told) == ("reply" in why)
    assert line.endswith("the old mount and its files were restored")
    assert container.path("/etc/fstab").read_text() == FSTAB
    # If the new server replied late, it ends after its delay; both write their counters.
    container.wait(lambda: len(servers(container, "/mnt/fstab")) == 1, "the new server to end")
    assert writes(container) == 64


def test_a_mount_below_is_not_taken_for_the_new_one(by_fstab: Container, refusing: None) -> None:
    container = by_fstab
    container.run("mount", "/mnt/fstab")
    try:
        line = refused(container, "remount", "/mnt/fstab", "--now")
        assert line.endswith("the old mount and its files were restored")
        assert container.path("/etc/fstab").read_text() == FSTAB
        assert len(servers(container, "/mnt/fstab")) == 2
    finally:
        container.run("umount", "--lazy", "/mnt/fstab")


def test_pending_edits_that_fail_are_undone_and_told(by_fstab: Container, refusing: None) -> None:
    fusetune(by_fstab, "remount", "/mnt/fstab")
    assert "no_such" in by_fstab.path("/etc/fstab").read_text()
    line = refused(by_fstab, "remount", "/mnt/fstab", "--now")
    assert line.endswith("its files are as before fusetune's first change, and it was mounted so")
    assert by_fstab.path("/etc/fstab").read_text() == FSTAB
    assert len(servers(by_fstab, "/mnt/fstab")) == 1


def test_an_automount_of_fstab_is_left_to_systemd(container: Container) -> None:
    """The container has no autofs, so start the unit that systemd generates from the line."""
    line = "bindfs#/srv /mnt/auto fuse noauto,x-systemd.automount 0 0\n"
    container.path("/etc/fstab").write_text(line)
    with mounted(container, "/mnt/auto", "systemctl", "start", "mnt-auto.mount"):
        done = fusetune(container, "remount", "/mnt/auto", "--now", "--json")
        assert json.loads(done.stdout)["commands"][1:] == ["systemctl restart mnt-auto.mount"]
        assert "big_writes" in command_line(container, "/mnt/auto")
        fusetune(container, "reset", "/mnt/auto")
        assert container.path("/etc/fstab").read_text() == line


def test_a_mount_unit(container: Container) -> None:
    container.path("/etc/systemd/system/mnt-unit.mount").write_text(UNIT)
    drop_in = f"/etc/systemd/system/mnt-unit.mount.d/{DROP_IN}"
    with mounted(container, "/mnt/unit", "systemctl", "start", "mnt-unit.mount"):
        fusetune(container, "remount", "/mnt/unit")
        assert container.path(drop_in).read_text() == "[Mount]\nOptions=noatime,big_writes\n"
        assert "big_writes" not in command_line(container, "/mnt/unit")
        fusetune(container, "remount", "/mnt/unit", "--now")
        assert "big_writes" in command_line(container, "/mnt/unit")
        fusetune(container, "reset", "/mnt/unit")
        assert not container.path(drop_in).parent.exists()
        container.run("systemctl", "restart", "mnt-unit.mount")
        assert "big_writes" not in command_line(container, "/mnt/unit")


@pytest.mark.parametrize("pause", ["", PAUSE], ids=["", "with a slow journal"])
def test_a_service(container: Container, pause: str) -> None:
    container.path("/etc/systemd/system/served.service").write_text(SERVICE)
    section = '[[mount]]\npath = "/mnt/service"\naccept = ["writeback"]\n'
    configure(container, section, "mounts.d/service.toml")
    with mounted(container, "/mnt/service", "systemctl", "start", "served.service"):
        fusetune(container, "remount", "/mnt/service", "--now")
        assert "-o writeback " in command_line(container, "/mnt/service")
        container.path("/run/fails").write_text(f"{pause}echo token={SECRET} >&2; false\n")
        broken = "[Service]\nExecStartPre=/bin/sh /run/fails\n"
        container.path("/etc/systemd/system/served.service.d/50-broken.conf").write_text(broken)
        line = refused(container, "remount", "/mnt/service", "--accept", "no_xattr", "--now")
        assert "token=***" in line
        assert "restoring the old one failed as well" in line
        container.path("/etc/systemd/system/served.service.d/50-broken.conf").unlink()
        fusetune(container, "reset", "/mnt/service")
        assert not container.path("/etc/systemd/system/served.service.d").exists()
    container.path("/etc/fusetune/mounts.d/service.toml").unlink()
