# SPDX-License-Identifier: GPL-2.0-or-later
"""list, show, set, reset and doctor on real mounts, by the command line as users run it.

The values are compared with what the kernel tells in /sys/class/bdi and /sys/fs/fuse/connections
(Documentation/filesystems/fuse.rst). A server that is stopped shows that no command waits for one.
"""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusetune.changes.lock import Lock
from tests.native.conftest import (
    AS_NOBODY,
    NOBODY,
    STOCK,
    Fusetune,
    requires,
    sysfs_files,
    sysfs_values,
    write_sysfs,
)
from tests.native.mirror import CHECKOUT, PATIENCE, Mirror, wait_for
from tests.native.raw import RawMounts, mount
from tests.native.servers import serve
from tests.tmpfs import tmpfs

pytestmark = requires("nsenter", "setpriv", "strace", "unshare")

NEW = {
    "read_ahead_kb": 1024,
    "max_background": 64,
    "congestion_threshold": 48,
    "max_ratio": 20,
    "strict_limit": 0,
}
WORDS = [f"{name}={value}" for name, value in NEW.items()]
PIPE = Path("/proc/sys/fs/pipe-max-size")
#: Seconds within which a command that asks no server must be done, starting Python included.
AT_ONCE = 5.0


@contextmanager
def also_mounted(*words: str | bytes | Path) -> Iterator[None]:
    """Mount something more, the mount point last of ``words``, while the context lasts."""
    subprocess.run(["mount", *words], check=True, timeout=PATIENCE)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", words[-1]], check=True, timeout=PATIENCE)


@contextmanager
def stopped(mirror: Mirror) -> Iterator[None]:
    """Stop the server, with a request of some process in its queue, while the context lasts."""
    mirror.process.send_signal(signal.SIGSTOP)
    waiting = Path(f"/sys/fs/fuse/connections/{mirror.bdi.partition(':')[2]}/waiting")
    visitor = subprocess.Popen(["stat", mirror.mountpoint / "any"], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: int(waiting.read_text()) > 0, "a request that is not answered")
        yield
    finally:
        mirror.process.send_signal(signal.SIGCONT)
        visitor.wait(PATIENCE)


# What is told


def test_list_tells_the_truth(fusetune: Fusetune, mirror: Mirror) -> None:
    write_sysfs(mirror.bdi, max_ratio=7)
    (entry,) = fusetune.json("list")["mounts"]
    assert entry == {
        "path": str(mirror.mountpoint),
        "fstype": entry["fstype"],
        "source": entry["source"],
        "bdi": mirror.bdi,
        "also_at": [],
        "connection": mirror.bdi.partition(":")[2],
        "owner_uid": 0,
        "knobs": sysfs_values(mirror.bdi),
        "tuned": True,
        "excluded_reason": None,
    }
    shown = fusetune("list")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert str(mirror.mountpoint) in shown.stdout


def test_list_without_mounts(fusetune: Fusetune) -> None:
    assert fusetune.json("list")["mounts"] == []
    assert fusetune("list").stdout == "no FUSE mount\n"


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
    # An earlier change is not forgotten over the failure.
    fusetune.json("set", mirror.mountpoint, "max_ratio=50", "strict_limit=0")
    fusetune.fails("set", mirror.mountpoint, "strict_limit=1", "max_ratio=2")
    assert sysfs_values(mirror.bdi) == found | {"max_ratio": 50, "strict_limit": 0}
    fusetune.json("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == found


def test_a_way_back_that_the_kernel_refuses_is_not_forgotten(
    fusetune: Fusetune, mirror: Mirror
) -> None:
    """Set, then set to the value found, which the kernel refuses for now."""
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
    """Device numbers are reused at once: the new mount's values are those that it was found with.

    Another mount on the host may take the number in between, so it is tried until it does not.
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


# How a mount is named


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
    # Mounted elsewhere and moved, for what a server makes of such a path is not the question.
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
        assert "lies in a FUSE mount" in inside
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
            (mirror.mountpoint / "inside", "lies in a FUSE mount but is not its mount point"),
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
    """Its mount stays, answers ENOTCONN to everyone, and can still be listed and set."""
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
    """The kernel shows max_background as 4294967295 then, which it does not take."""
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


# Who may


def as_nobody(open_path: Path) -> Fusetune:
    return Fusetune(open_path)


def test_an_ordinary_user_may_look_but_not_set(
    mirror: Mirror, fusetune: Fusetune, open_path: Path
) -> None:
    """The connection's directory is 0500 of its owner (fs/fuse/control.c): not all can be read."""
    found = sysfs_values(mirror.bdi)
    nobody = as_nobody(open_path)
    for words in (["list"], ["show", mirror.bdi], ["show", mirror.mountpoint], ["doctor"]):
        document = nobody.json(*words, before=AS_NOBODY)
        assert document
    (entry,) = nobody.json("list", before=AS_NOBODY)["mounts"]
    assert entry["knobs"]["max_ratio"] == found["max_ratio"]
    assert "max_background" not in entry["knobs"]
    for words in (["set", mirror.bdi, "max_ratio=20"], ["set", "host", "fs.pipe-max-size=2M"]):
        assert "Permission denied; run it as root" in nobody.fails(*words, before=AS_NOBODY)
    assert sysfs_values(mirror.bdi) == found


def test_an_ordinary_user_and_roots_state(
    mirror: Mirror, fusetune: Fusetune, open_path: Path
) -> None:
    """The journal is root's alone; what it says is left out, and that is told."""
    root = Fusetune(open_path)
    root.json("set", mirror.bdi, "max_ratio=20")
    done = root("show", mirror.bdi, before=AS_NOBODY)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "cannot read the undo journal" in line
    for words in (["set", mirror.bdi, "max_ratio=1"], ["reset", mirror.bdi], ["reset", "--all"]):
        assert "Permission denied" in root.fails(*words, before=AS_NOBODY)
    assert sysfs_values(mirror.bdi)["max_ratio"] == 20


def test_all_mounts_together_keep_the_bound_of_dirty_memory(
    fusetune: Fusetune, mirror: Mirror, tmpfs_dir: Path, tmp_path: Path
) -> None:
    fusetune.configure("[policy]\nmax_dirty_percent = 25\n")
    with serve("mirrorfs", tmpfs_dir / "source", tmp_path / "other") as other:
        fusetune.json("set", mirror.bdi, "max_ratio=20")
        for words in (["max_ratio=6", "read_ahead_kb=1M"], ["strict_limit=0"]):
            line = fusetune.fails("set", other, *words)
            assert "max_dirty_percent" in line
            assert "5 % remain" in line
            assert "--force" in line
        assert sysfs_values(other) == STOCK
        fusetune.json("set", other, "max_ratio=5")
        fusetune.json("set", other, "max_ratio=6", "--force")
        fusetune.configure("[policy]\nmax_dirty_percent = many\n")
        assert "fusetune.toml:2" in fusetune.fails("set", other, "max_ratio=7")
        fusetune.json("set", other, "max_ratio=7", "--force")
        fusetune.json("set", other, "max_ratio=1", "read_ahead_kb=1M")


def test_an_unprivileged_users_mount_gets_no_more_dirty_memory(
    fusetune: Fusetune, user_mirror: Mirror
) -> None:
    bdi = user_mirror.bdi
    found = sysfs_values(bdi)
    (entry,) = fusetune.json("list")["mounts"]
    assert entry["owner_uid"] == NOBODY
    for words in (["max_ratio=2"], ["strict_limit=0"], ["read_ahead_kb=1M", "max_ratio=20"]):
        line = fusetune.fails("set", user_mirror.mountpoint, *words)
        assert f"with --allow-owner {NOBODY}" in line
        fusetune.fails("set", bdi, *words, "--dry-run")
        fusetune.fails("set", bdi, *words, "--allow-owner", "root")
    assert sysfs_values(bdi) == found
    assert not fusetune.state.exists()
    fusetune.json("set", bdi, "read_ahead_kb=1M", "max_ratio=0", "max_background=5")
    for owner in ("nobody", str(NOBODY)):
        fusetune.json("set", bdi, "max_ratio=20", "strict_limit=0", "--allow-owner", owner)
        assert sysfs_values(bdi)["max_ratio"] == 20
        fusetune.json("set", bdi, "max_ratio=1")
    fusetune.json("reset", bdi)
    assert sysfs_values(bdi) == found


def test_a_mount_of_a_user_namespace_is_not_roots(fusetune: Fusetune, open_path: Path) -> None:
    """mountinfo says user_id=0 there; only its own mount namespace shows it."""
    alone = [*AS_NOBODY, "unshare", "--user", "--map-root-user", "--mount", "--"]
    with RawMounts(1, open_path, alone) as users:
        (point,) = users.points
        inside = ["nsenter", f"--mount=/proc/{users.pid}/ns/mnt", f"--wd={CHECKOUT}", "--"]
        fusetune.configure(f"[[mount]]\npath = '{point}'\nmax_ratio = 20\nread_ahead_kb = 4096\n")
        (entry,) = fusetune.json("list", before=inside)["mounts"]
        assert (entry["path"], entry["owner_uid"]) == (str(point), NOBODY)
        line = fusetune.fails("set", point, "max_ratio=20", before=inside)
        assert f"with --allow-owner {NOBODY}" in line
        done = fusetune("apply", point, before=inside)
        assert f"unprivileged user's mount (uid {NOBODY})" in done.stderr
        found = sysfs_values(entry["bdi"])
        assert (found["max_ratio"], found["read_ahead_kb"]) == (1, 4096)


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
    """show and --dry-run write nothing: a reset afterwards must still say what it cannot do."""
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
        # What is journalled already needs no more room to be undone.
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
    """Any user may choose a subtype; it must not reach the terminal as it is."""
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


# A server that does not answer


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
    """Traced, not timed: no system call names the mount point or anything in it."""
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
