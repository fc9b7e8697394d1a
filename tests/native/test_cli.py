# SPDX-License-Identifier: GPL-2.0-or-later
"""list, show, set, reset and doctor on real mounts, with the command line as users run it.

The values are compared with those in /sys/class/bdi and /sys/fs/fuse/connections
(Documentation/filesystems/fuse.rst).
"""

import os
from pathlib import Path

import pytest

from tests.native.conftest import (
    sysfs_files,
    sysfs_values,
    write_sysfs,
)
from tests.native.mirror import Mirror
from tests.native.new_values import NEW, PIPE, WORDS
from tests.native.program import Fusetune
from tests.native.servers import serve

# What is shown


def test_list_tells_the_truth(fusetune: Fusetune, mirror: Mirror) -> None:
    write_sysfs(mirror.bdi, max_ratio=7)
    (entry,) = fusetune.json("list")["mounts"]
    assert entry == {
        "path": str(mirror.mountpoint),
        "fstype": entry["fstype"],
        "source": entry["source"],
        "bdi": mirror.bdi,
        "device": mirror.bdi,
        "also_at": [],
        "connection": mirror.bdi.partition(":")[2],
        "owner_uid": 0,
        "knobs": sysfs_values(mirror.bdi),
        "tuned": True,
        "excluded_reason": None,
        "below": None,
    }
    shown = fusetune("list")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert str(mirror.mountpoint) in shown.stdout


def test_list_without_mounts(fusetune: Fusetune) -> None:
    assert fusetune.json("list")["mounts"] == []
    assert fusetune("list").stdout == "no FUSE mount\n"


def test_without_a_command_or_a_mount_it_shows_help(fusetune: Fusetune) -> None:
    said = fusetune()
    assert (said.returncode, said.stderr) == (0, "")
    assert "\nCommands:\n" in said.stdout


def test_without_a_command_it_says_how_the_mounts_stand(fusetune: Fusetune, mirror: Mirror) -> None:
    write_sysfs(mirror.bdi, max_ratio=7)
    said = fusetune()
    assert (said.returncode, said.stderr) == (0, "")
    first, *_, following = said.stdout.splitlines()
    assert first == "1 FUSE mount: 1 tuned, 0 with the kernel's defaults, 0 left alone"
    assert following.startswith("next: fusetune report ")


def test_show_tells_who_set_what(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.json("set", mirror.mountpoint, "max_ratio=20")
    write_sysfs(mirror.bdi, read_ahead_kb=512)
    document = fusetune.json("show", mirror.mountpoint)
    found = {knob["name"]: (knob["value"], knob["set_by"]) for knob in document["knobs"]}
    assert {name: value for name, (value, _) in found.items()} == sysfs_values(mirror.bdi)
    assert found["max_ratio"] == (20, "fusetune")
    assert found["read_ahead_kb"] == (512, "other")
    assert found["strict_limit"] == (1, "stock")
    assert document["mount"]["bdi"] == mirror.bdi
    assert "writeback_cache" in {knob["name"] for knob in document["needs_remount"]}
    long = fusetune("show", mirror.mountpoint, "--long")
    assert (long.returncode, long.stderr) == (0, "")
    for knob in (*document["knobs"], *document["needs_remount"]):
        assert knob["risk"] in long.stdout


def test_show_host(fusetune: Fusetune) -> None:
    document = fusetune.json("show", "host")
    values = {knob["name"]: knob["value"] for knob in document["knobs"]}
    assert values["fs.pipe-max-size"] == int(PIPE.read_text())
    assert document["mount"] is None


def test_doctor(fusetune: Fusetune, mirror: Mirror) -> None:
    found = {finding["name"] for finding in fusetune.json("doctor")["findings"]}
    assert "stock" in found
    assert "waiting" not in found
    assert fusetune("doctor", "--strict").returncode == 3
    text = fusetune("doctor")
    assert (text.returncode, text.stderr) == (0, "")
    fusetune.json("set", mirror.mountpoint, "max_ratio=20")
    assert "stock" not in {f["name"] for f in fusetune.json("doctor")["findings"]}


def test_a_reports_file_is_not_led_elsewhere(fusetune: Fusetune, tmp_path: Path) -> None:
    secret, directory = tmp_path / "secret", tmp_path / "metrics"
    secret.write_text("root's alone")
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    for planted in (directory / ".fusetune.prom.new", tmp_path / "way"):
        planted.symlink_to(secret if planted.parent == directory else directory)
        os.lchown(planted, 65534, 65534)
    wrote = fusetune("report", "--format", "prometheus", "--output", directory / "fusetune.prom")
    assert (wrote.returncode, wrote.stderr) == (0, "")
    assert secret.read_text() == "root's alone"
    assert (directory / "fusetune.prom").read_text().startswith("# HELP")
    refused = fusetune.fails("report", "--output", tmp_path / "way" / "report")
    assert "a symbolic link on the way belongs to uid 65534" in refused
    assert sorted(os.listdir(directory)) == [".fusetune.prom.new", "fusetune.prom"]


# set and reset


def test_set_and_reset(fusetune: Fusetune, mirror: Mirror) -> None:
    found = sysfs_values(mirror.bdi)
    document = fusetune.json("set", mirror.mountpoint, *WORDS)
    files = sysfs_files(mirror.bdi)
    assert document["changes"] == [
        {
            "mount": str(mirror.mountpoint),
            "knob": name,
            "file": str(files[name]),
            "before": found[name],
            "after": value,
        }
        for name, value in NEW.items()
    ]
    assert sysfs_values(mirror.bdi) == NEW
    undone = fusetune.json("reset", mirror.mountpoint)["changes"]
    assert {change["knob"]: change["after"] for change in undone} == found
    assert sysfs_values(mirror.bdi) == found
    assert fusetune("reset", mirror.mountpoint).stdout == "nothing to change\n"
    assert list((fusetune.state / "undo").iterdir()) == []
    assert list(fusetune.run.iterdir()) == []


def test_a_suffix(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.json("set", mirror.mountpoint, "read_ahead_kb=16M")
    assert sysfs_values(mirror.bdi)["read_ahead_kb"] == 16384


def test_one_out_of_range_and_nothing_is_changed(fusetune: Fusetune, mirror: Mirror) -> None:
    found = sysfs_values(mirror.bdi)
    line = fusetune.fails("set", mirror.mountpoint, "read_ahead_kb=1M", "max_ratio=101", code=2)
    assert "max_ratio=101 is out of range: 0 to 100 percent" in line
    assert sysfs_values(mirror.bdi) == found
    assert not fusetune.state.exists()
    assert not fusetune.run.exists()


def test_the_kernel_refuses_one_and_nothing_is_changed(fusetune: Fusetune, mirror: Mirror) -> None:
    """max_ratio below min_ratio is EINVAL (mm/page-writeback.c, __bdi_set_max_ratio)."""
    write_sysfs(mirror.bdi, max_ratio=10)
    (sysfs_files(mirror.bdi)["max_ratio"].with_name("min_ratio")).write_text("5")
    found = sysfs_values(mirror.bdi)
    words = ["read_ahead_kb=1M", "max_background=64", "max_ratio=2", "strict_limit=0"]
    line = fusetune.fails("set", mirror.mountpoint, *words)
    assert f"the kernel refused max_ratio=2 in {sysfs_files(mirror.bdi)['max_ratio']}" in line
    assert sysfs_values(mirror.bdi) == found
    assert fusetune("reset", mirror.mountpoint).stdout == "nothing to change\n"
    # The failure does not make it forget an earlier change.
    fusetune.json("set", mirror.mountpoint, "max_ratio=50", "strict_limit=0")
    fusetune.fails("set", mirror.mountpoint, "strict_limit=1", "max_ratio=2")
    assert sysfs_values(mirror.bdi) == found | {"max_ratio": 50, "strict_limit": 0}
    fusetune.json("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == found


def test_a_way_back_that_the_kernel_refuses_is_not_forgotten(
    fusetune: Fusetune, mirror: Mirror
) -> None:
    """Set, then set to the original value, which the kernel refuses for now."""
    found = sysfs_values(mirror.bdi)
    fusetune.json("set", mirror.mountpoint, "max_ratio=20")
    minimum = sysfs_files(mirror.bdi)["max_ratio"].with_name("min_ratio")
    minimum.write_text("5")
    fusetune.fails("set", mirror.mountpoint, f"max_ratio={found['max_ratio']}")
    minimum.write_text("0")
    fusetune.json("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == found


def test_a_reset_that_the_kernel_refuses_can_be_repeated(
    fusetune: Fusetune, mirror: Mirror
) -> None:
    found = sysfs_values(mirror.bdi)
    fusetune.json("set", mirror.mountpoint, *WORDS)
    minimum = sysfs_files(mirror.bdi)["max_ratio"].with_name("min_ratio")
    minimum.write_text("5")
    assert "the kernel refused max_ratio=1" in fusetune.fails("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == found | {"max_ratio": 20}
    minimum.write_text("0")
    fusetune.json("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == found


def test_a_dry_run_writes_nothing(fusetune: Fusetune, mirror: Mirror) -> None:
    found = sysfs_values(mirror.bdi)
    document = fusetune.json("set", mirror.mountpoint, *WORDS, "--dry-run")
    assert document["dry_run"]
    assert {change["knob"]: change["after"] for change in document["changes"]} == NEW
    text = fusetune("set", mirror.mountpoint, *WORDS, "--dry-run").stdout
    assert all(str(file) in text for file in sysfs_files(mirror.bdi).values())
    for target in ("--all", str(mirror.mountpoint), "host"):
        assert fusetune.json("reset", target, "--dry-run")["changes"] == []
    assert sysfs_values(mirror.bdi) == found
    assert not fusetune.state.exists()
    assert not fusetune.run.exists()
    fusetune.json("set", mirror.mountpoint, *WORDS)
    before = {file: file.read_bytes() for file in fusetune.state.rglob("*") if file.is_file()}
    for target in ("--all", str(mirror.mountpoint)):
        changes = fusetune.json("reset", target, "--dry-run")["changes"]
        assert {change["knob"]: change["after"] for change in changes} == found
    assert sysfs_values(mirror.bdi) == NEW
    assert {f: f.read_bytes() for f in fusetune.state.rglob("*") if f.is_file()} == before


def test_reset_goes_back_before_the_first_change(fusetune: Fusetune, mirror: Mirror) -> None:
    write_sysfs(mirror.bdi, read_ahead_kb=256, max_ratio=3)
    found = sysfs_values(mirror.bdi)
    fusetune.json("set", mirror.mountpoint, "read_ahead_kb=1M", "max_ratio=10")
    write_sysfs(mirror.bdi, read_ahead_kb=64, max_ratio=11)
    fusetune.json("set", mirror.mountpoint, "max_ratio=12", "strict_limit=0")
    write_sysfs(mirror.bdi, max_ratio=13)
    fusetune.json("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == found


@pytest.mark.alone
def test_host_knobs(fusetune: Fusetune) -> None:
    found = PIPE.read_text()
    wanted = 4 << 20 if int(found) == 2 << 20 else 2 << 20
    (change,) = fusetune.json("set", "host", f"fs.pipe-max-size={wanted}")["changes"]
    assert (change["mount"], change["file"], change["after"]) == (None, str(PIPE), wanted)
    try:
        assert int(PIPE.read_text()) == wanted
        fusetune.json("reset", "host")
        assert PIPE.read_text() == found
    finally:
        PIPE.write_text(found)


@pytest.mark.alone
def test_every_host_knob_of_this_kernel(fusetune: Fusetune) -> None:
    knobs = [knob for knob in fusetune.json("show", "host")["knobs"] if knob["value"] is not None]
    files = {}
    for knob in knobs:
        now = knob["value"]
        other = 1 - now if knob["unit"] == "switch" else now * 2 if now * 2 <= knob["high"] else now
        (change,) = fusetune.json("set", "host", f"{knob['name']}={other}")["changes"] or [None]
        if change:
            files[Path(change["file"])] = change["before"]
    assert len(files) >= len(knobs) - 1
    fusetune.json("reset", "host")
    again = {k["name"]: k["value"] for k in fusetune.json("show", "host")["knobs"]}
    assert all(again[knob["name"]] == knob["value"] for knob in knobs)


@pytest.mark.alone
def test_limits_for_a_mount_with_options(fusetune: Fusetune) -> None:
    found = PIPE.read_text()
    wanted = ["set", "host", "--for", "max_pages=512,writeback_cache"]
    (change, *_) = fusetune.json(*wanted, "--dry-run")["changes"]
    assert (change["file"], change["after"]) == (str(PIPE), 4 << 20)
    assert PIPE.read_text() == found
    fusetune.json(*wanted)
    assert int(PIPE.read_text()) == 4 << 20
    assert fusetune.json("set", "host", "--for", "max_pages=300")["changes"] == []
    fusetune.configure("[policy]\nmax_pipe_size = '4M'\n")
    assert fusetune.json("set", "host", "--for", "max_write=64M")["changes"][0]["after"] == 1024
    fusetune.json("reset", "host")
    assert PIPE.read_text() == found


@pytest.mark.alone
def test_reset_all(fusetune: Fusetune, mirror: Mirror, tmp_path: Path) -> None:
    pipe = PIPE.read_text()
    with serve("mirrorfs", mirror.source, tmp_path / "second") as second:
        found = sysfs_values(mirror.bdi), sysfs_values(second)
        fusetune.json("set", mirror.mountpoint, *WORDS)
        fusetune.json("set", second, "max_ratio=33", "--force")
        fusetune.json("set", "host", f"fs.pipe-max-size={int(pipe) * 2}")
        changes = fusetune.json("reset", "--all")["changes"]
        assert len(changes) == len(NEW) + 2
        assert (sysfs_values(mirror.bdi), sysfs_values(second)) == found
        assert PIPE.read_text() == pipe
        assert list((fusetune.state / "undo").iterdir()) == []


def test_after_a_remount_old_values_are_not_written(fusetune: Fusetune, tmp_path: Path) -> None:
    """Device numbers are reused at once; the original values must be the new mount's own.

    Another mount on the host may take the number in between; if so, the test tries again.
    """
    (tmp_path / "source").mkdir()
    for attempt in range(50):
        with serve("mirrorfs", tmp_path / "source", tmp_path / "mnt") as first:
            fusetune.json("set", tmp_path / "mnt", "max_ratio=20", "read_ahead_kb=1M")
        with serve("mirrorfs", tmp_path / "source", tmp_path / "mnt") as bdi:
            if bdi != first:
                assert attempt < 49
                continue
            write_sysfs(bdi, max_ratio=5)
            found = sysfs_values(bdi)
            by = {k["name"]: k["set_by"] for k in fusetune.json("show", bdi)["knobs"]}
            assert by["max_ratio"] == "other"
            assert fusetune.json("reset", tmp_path / "mnt")["changes"] == []
            assert sysfs_values(bdi) == found
            fusetune.json("set", tmp_path / "mnt", "max_ratio=30")
            fusetune.json("reset", "--all")
            assert sysfs_values(bdi) == found
            return
