# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount can be named by any path or device, with odd bytes, if stacked, covered or dead."""

import os
from pathlib import Path

import pytest

from tests.native.conftest import (
    sysfs_values,
)
from tests.native.mirror import Mirror
from tests.native.new_values import AT_ONCE
from tests.native.program import Fusetune
from tests.native.servers import also_mounted, serve


def test_every_name_of_a_mount(fusetune: Fusetune, mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "bound").mkdir()
    (tmp_path / "link").symlink_to(mirror.mountpoint)
    (tmp_path / "parent").symlink_to(tmp_path)
    with also_mounted("--bind", mirror.mountpoint, tmp_path / "bound"):
        names = {
            mirror.bdi: mirror.mountpoint,
            str(mirror.mountpoint): mirror.mountpoint,
            f"{mirror.mountpoint}/": mirror.mountpoint,
            "mnt": mirror.mountpoint,
            "./mnt/../mnt": mirror.mountpoint,
            "link": mirror.mountpoint,
            "parent/link": mirror.mountpoint,
            "bound": tmp_path / "bound",
        }
        for name, path in names.items():
            document = fusetune.json("show", name, cwd=tmp_path)
            assert document["mount"]["bdi"] == mirror.bdi
            assert document["mount"]["path"] == str(path)
        (entry,) = fusetune.json("list")["mounts"]
        assert (entry["path"], entry["also_at"]) == (
            str(mirror.mountpoint),
            [str(tmp_path / "bound")],
        )
        found = sysfs_values(mirror.bdi)
        fusetune.json("set", "bound", "max_ratio=20", cwd=tmp_path)
        fusetune.json("reset", "link", cwd=tmp_path)
        assert sysfs_values(mirror.bdi) == found


ODD_NAMES = [
    b"with space",
    b"new\nline",
    b"tab\tand\rreturn",
    b"not utf-8 \xff\xfe",
    "größe 日本".encode(),
    b"back\\slash \\040",
    b"# hash",
    b"-dash",
    b"\x1b[31mred",
    b"quote'\"",
    b"10:20",
    "next\u0085line\u2028".encode(),
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_paths(fusetune: Fusetune, tmp_path: Path, name: bytes) -> None:
    source, point = tmp_path / "source", tmp_path / os.fsdecode(name)
    source.mkdir()
    point.mkdir()
    # Mount elsewhere and move it, because the test is not about the server's handling of the path.
    with (
        serve("mirrorfs", source, tmp_path / "plain") as bdi,
        also_mounted("--bind", tmp_path / "plain", point),
    ):
        found = sysfs_values(bdi)
        (entry,) = fusetune.json("list")["mounts"]
        assert entry["also_at"] == [str(point)]
        (change,) = fusetune.json("set", bytes(point), "max_ratio=20")["changes"]
        assert change["mount"] == str(point)
        for words in (["list"], ["show", bytes(point)], ["doctor"], ["reset", bytes(point)]):
            done = fusetune(*words)
            assert (done.returncode, done.stderr) == (0, "")
            assert "\x1b" not in done.stdout
            done.stdout.encode("utf-8")
        assert sysfs_values(bdi) == found
        inside = fusetune.fails("show", bytes(point) + b"/file")
        assert "is in a FUSE mount" in inside
        assert "\x1b" not in inside


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_of_another_encoding(fusetune: Fusetune, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "source").mkdir()
    with serve("mirrorfs", tmp_path / "source", tmp_path / "größe 日本"):
        for words in (["list"], ["show", tmp_path / "größe 日本"], ["doctor"]):
            done = fusetune(*words, environment={"PYTHONIOENCODING": encoding})
            assert (done.returncode, done.stderr) == (0, "")


def test_stacked_mounts(fusetune: Fusetune, mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with serve("mirrorfs", tmp_path / "other", mirror.mountpoint) as upper:
        assert [m["bdi"] for m in fusetune.json("list")["mounts"]] == [mirror.bdi, upper]
        lower = sysfs_values(mirror.bdi)
        fusetune.json("set", mirror.mountpoint, "max_ratio=20")
        assert sysfs_values(upper)["max_ratio"] == 20
        assert sysfs_values(mirror.bdi) == lower
        fusetune.json("set", mirror.bdi, "max_ratio=30")
        assert sysfs_values(upper)["max_ratio"] == 20
        assert sysfs_values(mirror.bdi)["max_ratio"] == 30
        fusetune.json("reset", "--all")
        assert sysfs_values(mirror.bdi) == lower


def test_covered_by_another_type(fusetune: Fusetune, mirror: Mirror) -> None:
    with also_mounted("-t", "tmpfs", "fusetune-test", mirror.mountpoint):
        line = fusetune.fails("show", mirror.mountpoint)
        assert "is covered by another mount (tmpfs)" in line
        assert fusetune.json("show", mirror.bdi)["mount"]["bdi"] == mirror.bdi


def test_names_that_are_no_mount(fusetune: Fusetune, mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    for command in (["show"], ["set"], ["reset"]):
        rest = ["max_ratio=20"] if command == ["set"] else []
        for name, said in (
            (tmp_path / "directory", "is not a FUSE mount point"),
            (tmp_path, "is not a FUSE mount point"),
            (tmp_path / "absent", "does not exist"),
            (mirror.mountpoint / "inside", "is in a FUSE mount but is not its mount point"),
            (Path("/sys/fs/fuse/connections"), "is not a FUSE mount point"),
            ("0:1048575", "no FUSE mount has the bdi 0:1048575"),
        ):
            assert said in fusetune.fails(*command, name, *rest)
    assert not fusetune.state.exists()


def test_a_mount_that_is_gone(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.json("set", mirror.mountpoint, "max_ratio=20")
    mirror.unmount()
    assert "is not a FUSE mount point" in fusetune.fails("reset", mirror.mountpoint)
    assert "no FUSE mount has the bdi" in fusetune.fails("reset", mirror.bdi)
    assert fusetune.json("list")["mounts"] == []
    assert fusetune.json("reset", "--all")["changes"] == []
    assert list((fusetune.state / "undo").iterdir()) == []


def test_a_server_that_died(fusetune: Fusetune, mirror: Mirror) -> None:
    """Its mount stays, returns ENOTCONN for everything, and can still be listed and set."""
    found = sysfs_values(mirror.bdi)
    mirror.kill()
    (entry,) = fusetune.json("list", timeout=AT_ONCE)["mounts"]
    assert entry["bdi"] == mirror.bdi
    fusetune.json("set", mirror.mountpoint, "max_ratio=20")
    fusetune.json("show", mirror.mountpoint)
    fusetune.json("doctor")
    fusetune.json("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi)["max_ratio"] == found["max_ratio"]


def test_a_dead_mounts_values_are_put_back_too(fusetune: Fusetune, mirror: Mirror) -> None:
    """The kernel then shows max_background as 4294967295, which it does not accept."""
    fusetune.json("set", mirror.bdi, "read_ahead_kb=256", "max_background=64")
    mirror.kill()
    found = sysfs_values(mirror.bdi)
    line = fusetune.fails("set", mirror.bdi, "max_ratio=20", "max_background=32")
    assert "the server has died" in line
    assert sysfs_values(mirror.bdi) == found
    fusetune.json("set", mirror.bdi, "max_ratio=20")
    fusetune.json("reset", mirror.bdi)
    assert sysfs_values(mirror.bdi) == found | {"max_ratio": 1, "read_ahead_kb": 128}
    assert fusetune.json("reset", "--all")["changes"] == []
