# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults: held locks, damaged journals, full or read-only disks, stopped servers.

With a stopped server (SIGSTOP), no command may hang.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fusetune.changes.lock import Lock
from tests.native.conftest import (
    requires,
    sysfs_values,
)
from tests.native.mirror import CHECKOUT, PATIENCE, Mirror
from tests.native.new_values import AT_ONCE, NEW, WORDS
from tests.native.program import Fusetune
from tests.native.raw import mount
from tests.native.servers import stopped
from tests.tmpfs import tmpfs

pytestmark = requires("strace", "unshare")


# What goes wrong


def test_a_held_lock(fusetune: Fusetune, mirror: Mirror) -> None:
    found = sysfs_values(mirror.bdi)
    with Lock(fusetune.host, fusetune.find(mirror.bdi)):
        for words in (["set", mirror.bdi, "max_ratio=20"], ["reset", mirror.bdi]):
            line = fusetune.fails(*words)
            assert f"another fusetune (pid {os.getpid()}) is working on" in line
        for words in (["list"], ["show", mirror.bdi], ["doctor"]):
            fusetune.json(*words)
    assert sysfs_values(mirror.bdi) == found
    fusetune.json("set", mirror.bdi, "max_ratio=20")


def test_a_damaged_journal(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.json("set", mirror.bdi, "max_ratio=20")
    (journal,) = (fusetune.state / "undo").iterdir()
    text = bytearray(journal.read_bytes())
    text[len(text) // 2] ^= 1
    journal.write_bytes(text)
    line = fusetune.fails("reset", mirror.bdi)
    (kept,) = (fusetune.state / "undo").iterdir()
    assert kept.read_bytes() == text
    assert str(kept) in line
    assert sysfs_values(mirror.bdi)["max_ratio"] == 20
    (finding,) = (f for f in fusetune.json("doctor")["findings"] if f["name"] == "damaged-journal")
    assert str(kept) in finding["what"]
    fusetune.json("set", mirror.bdi, "max_ratio=30")
    fusetune.json("reset", mirror.bdi)
    assert sysfs_values(mirror.bdi)["max_ratio"] == 20


def test_looking_does_not_swallow_the_news_of_a_damaged_journal(
    fusetune: Fusetune, mirror: Mirror
) -> None:
    """show and --dry-run write nothing, so a later reset must still say what it cannot do."""
    fusetune.json("set", mirror.bdi, "max_ratio=20")
    (journal,) = (fusetune.state / "undo").iterdir()
    journal.write_bytes(b"damaged\n")
    shown = fusetune("show", mirror.bdi)
    assert shown.returncode == 0
    assert "damaged" in shown.stderr
    fusetune("reset", mirror.bdi, "--dry-run")
    assert [file.name for file in (fusetune.state / "undo").iterdir()] == [journal.name]
    assert "damaged" in fusetune.fails("reset", mirror.bdi)


def test_a_full_disk_for_the_journal(fusetune: Fusetune, mirror: Mirror) -> None:
    found = sysfs_values(mirror.bdi)
    fusetune.state.mkdir()
    with tmpfs(fusetune.state, "size=64K") as small:
        (small / "undo").mkdir()
        with (
            (small / "filler").open("wb", buffering=0) as filler,
            pytest.raises(OSError, match="No space left"),
        ):
            fill(filler.write)
        line = fusetune.fails("set", mirror.bdi, *WORDS)
        assert "No space left on device; nothing was changed" in line
        assert sysfs_values(mirror.bdi) == found
        (small / "filler").unlink()
        fusetune.json("set", mirror.bdi, *WORDS)
        with (
            (small / "filler").open("wb", buffering=0) as filler,
            pytest.raises(OSError, match="No space left"),
        ):
            fill(filler.write)
        # Undoing what is in the journal needs no more space.
        fusetune.json("reset", mirror.bdi)
        assert sysfs_values(mirror.bdi) == found


def fill(write: Callable[[bytes], int | None]) -> None:
    while write(bytes(4096)):
        pass


def test_a_read_only_disk_for_the_journal(fusetune: Fusetune, mirror: Mirror) -> None:
    found = sysfs_values(mirror.bdi)
    fusetune.state.mkdir()
    with tmpfs(fusetune.state, "size=64K,ro"):
        assert "Read-only file system" in fusetune.fails("set", mirror.bdi, *WORDS)
    assert sysfs_values(mirror.bdi) == found


def test_a_file_system_type_of_any_bytes(fusetune: Fusetune, tmp_path: Path) -> None:
    """Any user can choose a subtype; it must not reach the terminal unescaped."""
    for number, subtype in enumerate((b"\x1b[31mred", b"\xff\xfe", b"new\nline")):
        point = tmp_path / str(number)
        point.mkdir()
        fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        try:
            mount(fd, point, fstype=b"fuse." + subtype)
            try:
                (entry,) = fusetune.json("list")["mounts"]
                assert os.fsencode(entry["fstype"]) == b"fuse." + subtype
                for words in (["list"], ["show", point], ["doctor"]):
                    done = fusetune(*words)
                    assert (done.returncode, done.stderr) == (0, "")
                    assert "\x1b" not in done.stdout
            finally:
                subprocess.run(["umount", "--lazy", point], check=True, timeout=PATIENCE)
        finally:
            os.close(fd)


# A server that does not reply


def test_a_stopped_server_is_never_waited_for(fusetune: Fusetune, mirror: Mirror) -> None:
    found = sysfs_values(mirror.bdi)
    with stopped(mirror):
        (entry,) = fusetune.json("list", timeout=AT_ONCE)["mounts"]
        assert entry["knobs"] == found
        fusetune.json("show", mirror.mountpoint, timeout=AT_ONCE)
        fusetune.json("set", mirror.mountpoint, *WORDS, timeout=AT_ONCE)
        assert sysfs_values(mirror.bdi) == NEW
        findings = fusetune.json("doctor", timeout=AT_ONCE)["findings"]
        (waiting,) = (finding for finding in findings if finding["name"] == "waiting")
        assert waiting["mount"] == str(mirror.mountpoint)
        assert f"connections/{mirror.bdi.partition(':')[2]}/abort" in waiting["remedy"]
        fusetune.fails("show", mirror.mountpoint / "inside", timeout=AT_ONCE)
        fusetune.configure("[[mount]]\nmax_ratio = 20\n")
        for words in (["save", mirror.mountpoint], ["apply", mirror.mountpoint], ["verify"]):
            fusetune.json(*words, timeout=AT_ONCE)
        fusetune.json("forget", mirror.mountpoint, timeout=AT_ONCE)
        assert fusetune("report", timeout=AT_ONCE).returncode == 0
        fusetune.json("reset", mirror.mountpoint, timeout=AT_ONCE)
        assert sysfs_values(mirror.bdi) == found


def test_no_path_of_a_mount_is_touched(fusetune: Fusetune, mirror: Mirror, tmp_path: Path) -> None:
    """Traced with strace, not timed: no system call names the mount point or anything in it."""
    trace = tmp_path / "trace"
    (tmp_path / "link").symlink_to("mnt/inside")
    fusetune.configure("[[mount]]\nread_ahead_kb = 1024\n")
    strace = ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=%file", "-o", str(trace), "--"]
    for words in (
        ["list"],
        ["show", mirror.mountpoint],
        ["show", mirror.bdi],
        ["show", tmp_path / "link"],
        ["set", mirror.mountpoint, *WORDS],
        ["doctor"],
        ["save", mirror.mountpoint],
        ["apply", mirror.mountpoint],
        ["apply", "--all"],
        ["apply", "--bdi", mirror.bdi],
        ["verify"],
        ["verify", mirror.mountpoint],
        ["report"],
        ["report", mirror.mountpoint],
        ["forget", mirror.mountpoint],
        ["reset", mirror.mountpoint],
        ["reset", "--all"],
    ):
        done = fusetune(*words, before=strace)
        assert done.returncode == (1 if "link" in str(words) else 0), (words, done.stderr)
        calls = [
            line
            for line in trace.read_text(errors="replace").splitlines()
            if "execve(" not in line and str(mirror.mountpoint) in line
        ]
        assert calls == [], words
        assert re.search(r"openat\(.*mountinfo", trace.read_text(errors="replace"))


def test_it_runs_from_any_directory(fusetune: Fusetune, mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    for directory in (Path("/"), tmp_path, CHECKOUT):
        assert len(fusetune.json("list", cwd=directory)["mounts"]) == 1


_DISCOVERS = """
from fusetune.host import Host
from fusetune.mounts.discover import discover
print([mount.connection for mount in discover(Host())])
"""


def test_a_command_mounts_the_control_file_system_and_discovery_does_not(
    fusetune: Fusetune, mirror: Mirror
) -> None:
    alone = ["unshare", "--mount", "sh", "-c", 'umount /sys/fs/fuse/connections && exec "$@"', "sh"]
    discover = [*alone, "/usr/bin/python3", "-c", _DISCOVERS]
    assert subprocess.check_output(discover, cwd=CHECKOUT, text=True) == "[None]\n"
    (one,) = fusetune.json("list", before=alone)["mounts"]
    assert one["connection"] == mirror.bdi.partition(":")[2]
