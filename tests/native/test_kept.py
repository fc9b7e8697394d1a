# SPDX-License-Identifier: GPL-2.0-or-later
"""apply, verify, save and forget on real mounts, with the command line as users run it.

fusetune.toml(5) describes the order of configuration and saved results.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import NOBODY, STOCK, requires, sysfs_values, write_sysfs
from tests.native.holding import holding
from tests.native.mirror import PATIENCE, Mirror, open_files, unmount, wait_for
from tests.native.program import Fusetune
from tests.native.raw import mount
from tests.native.servers import serve

pytestmark = requires("fio", "setpriv")


@pytest.fixture
def other(tmp_path: Path, tmpfs_dir: Path) -> Iterator[str]:
    """A second mount, at ``tmp_path / "other"``; its bdi."""
    with serve("mirrorfs", tmpfs_dir / "source", tmp_path / "other") as bdi:
        yield bdi


def section(path: Path | str, **values: object) -> str:
    lines = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    return f"[[mount]]\npath = '{path}'\n{lines}"


def written(document: dict[str, Any]) -> dict[str, int]:
    return {change["knob"]: change["after"] for change in document["changes"]}


def checked(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (mount,) = document["mounts"]
    return {knob["name"]: knob for knob in mount["knobs"]}


def test_no_fight_with_another_program(fusetune: Fusetune, mirror: Mirror) -> None:
    """`apply --all` sets a changed value again, but leaves it the third time."""
    point, bdi = mirror.mountpoint, mirror.bdi
    fusetune.configure(section(point, max_ratio=20, read_ahead_kb="1M"))
    fusetune.json("apply", point)
    for left in (False, False, True, True):
        write_sysfs(bdi, read_ahead_kb=256)
        done = fusetune("apply", "--all")
        assert done.returncode == 0
        assert ("read_ahead_kb=256 is not set again: another program" in done.stderr) == left
        assert sysfs_values(bdi)["read_ahead_kb"] == (256 if left else 1024)
    assert written(fusetune.json("apply", point)) == {"read_ahead_kb": 1024}


def test_from_configuration_to_drift_and_back(fusetune: Fusetune, mirror: Mirror) -> None:
    point, bdi = mirror.mountpoint, mirror.bdi
    file = fusetune.configure("# mine\n" + section(point, max_ratio=20, read_ahead_kb="1M"))
    document = fusetune.json("verify", code=3)
    assert document["differences"] == 2
    origin = checked(document)["max_ratio"]["origin"]
    assert (origin["file"], origin["line"], origin["shared_by"]) == (str(file), 4, None)
    assert fusetune.json("apply", point, "--dry-run")["dry_run"]
    assert sysfs_values(bdi) == STOCK
    wanted = {"max_ratio": 20, "read_ahead_kb": 1024}
    assert written(fusetune.json("apply", point)) == wanted
    assert sysfs_values(bdi) == STOCK | wanted
    document = fusetune.json("verify", point)
    assert document["differences"] == 0
    assert checked(document)["max_ratio"]["set_by"] == "fusetune"
    assert "2 as kept, 0 different" in fusetune("verify").stdout
    assert fusetune.json("apply", point)["changes"] == []
    write_sysfs(bdi, max_ratio=7)
    knob = checked(fusetune.json("verify", point, code=3))["max_ratio"]
    assert (knob["expected"], knob["actual"], knob["set_by"]) == (20, 7, "other")
    assert (knob["last_write"]["value"], knob["last_write"]["why"]) == (20, "apply")
    shown = fusetune("verify")
    assert shown.returncode == 3
    assert "another program" in shown.stdout
    assert f"{file}:4" in shown.stdout
    assert written(fusetune.json("apply", "--bdi", bdi)) == {"max_ratio": 20}
    fusetune.json("reset", point)
    assert sysfs_values(bdi) == STOCK
    assert fusetune.json("verify", code=3)["differences"] == 2


def test_show_tells_the_line_that_counts(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.configure(section(mirror.mountpoint.parent / "*", max_ratio=5))
    file = fusetune.configure(section(mirror.mountpoint, max_ratio=20), "mounts.d/a.toml")
    knobs = {knob["name"]: knob for knob in fusetune.json("show", mirror.mountpoint)["knobs"]}
    assert knobs["max_ratio"]["expected"] == 20
    assert (knobs["max_ratio"]["origin"]["file"], knobs["max_ratio"]["origin"]["line"]) == (
        str(file),
        3,
    )
    assert knobs["read_ahead_kb"]["origin"] is None
    assert f"20 ({file}:3)" in fusetune("show", mirror.mountpoint).stdout


def test_save_and_forget(fusetune: Fusetune, mirror: Mirror) -> None:
    point, bdi = mirror.mountpoint, mirror.bdi
    assert "nothing to save" in fusetune.fails("save", point)
    fusetune.json("set", point, "max_ratio=20")
    (one,) = fusetune.json("save", point, "--dry-run")["files"]
    assert not Path(one["file"]).exists()
    (one,) = fusetune.json("save", point)["files"]
    assert (one["before"], one["after"]) == (None, {"max_ratio": 20})
    assert Path(one["file"]).parent == fusetune.state / "saved"
    write_sysfs(bdi, max_ratio=1)
    assert written(fusetune.json("apply", point)) == {"max_ratio": 20}
    (gone,) = fusetune.json("forget", point)["files"]
    assert (gone["file"], gone["before"], gone["after"]) == (one["file"], {"max_ratio": 20}, None)
    assert not Path(one["file"]).exists()
    done = fusetune("apply", point)
    assert done.returncode == 0
    assert "nothing is kept for" in done.stderr
    assert fusetune.json("forget", point)["files"] == []
    assert sysfs_values(bdi)["max_ratio"] == 20


def test_save_for_the_administrator(fusetune: Fusetune, mirror: Mirror) -> None:
    point = mirror.mountpoint
    file = fusetune.configure(f"# about it\n{section(point, max_ratio=5)}# end\n")
    fusetune.json("set", point, "max_ratio=20")
    done = fusetune("save", point)
    assert f"{file}:4 sets max_ratio=5, which takes precedence" in done.stderr
    (one,) = fusetune.json("save", point, "--admin")["files"]
    assert (one["file"], one["before"]) == (str(file), {"max_ratio": 5})
    assert file.read_text() == f"# about it\n{section(point, max_ratio=20)}# end\n"
    assert len(fusetune.json("forget", point, "--admin")["files"]) == 2
    assert file.read_text() == "# about it\n# end\n"


def test_all_goes_on_after_a_mount_that_fails(
    fusetune: Fusetune, mirror: Mirror, other: str
) -> None:
    """With a damaged saved result."""
    fusetune.json("set", mirror.mountpoint, "max_ratio=20")
    (one,) = fusetune.json("save", mirror.mountpoint)["files"]
    Path(one["file"]).write_text("garbage")
    write_sysfs(mirror.bdi, max_ratio=1)
    fusetune.configure("[[mount]]\nmax_ratio = 30\n")
    line = fusetune.fails("apply", "--all")
    assert f"the saved result {one['file']} is damaged" in line
    assert sysfs_values(mirror.bdi)["max_ratio"] == 1
    assert sysfs_values(other)["max_ratio"] == 30
    document = fusetune.json("verify", code=1)
    (problem,) = document["problems"]
    assert one["file"] in problem
    assert "saved" in {f["name"] for f in fusetune.json("doctor")["findings"]}
    # 'save' moves it aside and writes a new one, and nothing is lost.
    write_sysfs(mirror.bdi, max_ratio=9)
    fusetune.json("save", mirror.mountpoint)
    (aside,) = Path(one["file"]).parent.glob("*.set-aside-*")
    assert aside.read_text() == "garbage"
    assert fusetune.json("apply", "--all")["changes"]


def test_a_wrong_file_is_one_line_and_nothing_changes(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.configure("[[mount]]\nmax_ratio = 20\n")
    file = fusetune.configure("[[mount]]\n# typo:\nmax_ration = 20\n", "mounts.d/b.toml")
    told = f"fusetune: {file}:3: unknown key 'max_ration': did you mean max_ratio?"
    for words in (("apply", mirror.mountpoint), ("apply", "--all"), ("verify",), ("watch",)):
        assert fusetune.fails(*words) == told
    assert sysfs_values(mirror.bdi) == STOCK
    assert not fusetune.state.exists()
    (finding,) = (f for f in fusetune.json("doctor")["findings"] if f["name"] == "configuration")
    assert told.endswith(finding["what"])
    assert f"{file}:3" in fusetune("show", mirror.mountpoint).stderr


@pytest.mark.alone
def test_what_is_saved_is_applied_at_the_next_mount(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    """Saved by ``auto`` itself, on a slow server that certainly gains from readahead."""
    with Mirror(tmpfs_dir, tmp_path / "mnt", "read_delay=2ms") as mirror:
        unguarded = ("--no-guard", "mmap-read", "--no-guard", "rand-read")
        words = ("-w", "seq-read", "--budget", "25s", *unguarded)
        after = fusetune.json("auto", mirror.mountpoint, *words)["after"]
        assert after["read_ahead_kb"] > 128
    with Mirror(tmpfs_dir, tmp_path / "mnt", "read_delay=2ms") as mirror:
        assert sysfs_values(mirror.bdi) == STOCK
        saved = fusetune.json("show", mirror.mountpoint)["saved"]
        assert (saved["by"], saved["knobs"]["read_ahead_kb"]) == ("auto", after["read_ahead_kb"])
        assert saved["ci95"][0] > 1
        fusetune.json("apply", "--all")
        assert sysfs_values(mirror.bdi) == after
        fusetune.json("verify")
    with serve("mirrorfs", tmpfs_dir, tmp_path / "elsewhere"):
        assert fusetune.json("apply", "--all")["changes"] == []


def test_a_users_mount_gets_no_more_dirty_memory(fusetune: Fusetune, user_mirror: Mirror) -> None:
    values = section(user_mirror.mountpoint, max_ratio=20, max_background=64)
    fusetune.configure(values)
    done = fusetune("apply", user_mirror.mountpoint)
    assert done.returncode == 0
    assert "allow_users" in done.stderr
    assert sysfs_values(user_mirror.bdi) == STOCK | {"max_background": 64}
    assert fusetune.json("verify")["differences"] == 0
    fusetune.configure(f"[policy]\nallow_users = [{NOBODY}]\n{values}")
    assert written(fusetune.json("apply", user_mirror.mountpoint)) == {"max_ratio": 20}


def test_the_sum_of_dirty_memory_is_bounded(fusetune: Fusetune, mirror: Mirror, other: str) -> None:
    fusetune.configure("[policy]\nmax_dirty_percent = 30\n[[mount]]\nmax_ratio = 20\n")
    done = fusetune("apply", "--all")
    assert done.returncode == 0
    assert "max_dirty_percent" in done.stderr
    assert [sysfs_values(bdi)["max_ratio"] for bdi in (mirror.bdi, other)] == [20, 1]
    document = fusetune.json("doctor")
    assert (document["dirty_percent"], document["max_dirty_percent"]) == (20, 30)
    write_sysfs(other, strict_limit=0)
    document = fusetune.json("doctor")
    assert document["dirty_percent"] == 120
    assert "dirty-memory" in {finding["name"] for finding in document["findings"]}


def test_the_server_that_serves_it(
    fusetune: Fusetune, served: tuple[Path, str], request: pytest.FixtureRequest
) -> None:
    """For each kind and library, identified by the kernel or by its arguments."""
    point, bdi = served
    program = request.node.callspec.params["served"]
    fusetune.configure(
        f"[[mount]]\nserver = '{program}'\nmax_ratio = 20\n"
        "[[mount]]\nserver = 'sleep'\nmax_ratio = 3\n"
    )
    assert written(fusetune.json("apply", point)) == {"max_ratio": 20}
    assert sysfs_values(bdi)["max_ratio"] == 20


# Which program serves a mount


@contextmanager
def dead(point: Path, owner: int = 0) -> Iterator[Path]:
    """A mount whose server has ended: only arguments could show which program it was."""
    point.mkdir()
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    mount(fd, point, owner)
    os.close(fd)
    try:
        yield point
    finally:
        unmount(point)


def test_a_process_that_makes_its_readers_wait_delays_nobody(
    fusetune: Fusetune, mirror: Mirror, open_path: Path
) -> None:
    """A process has /dev/fuse open, as any user may, and the mount points as arguments."""
    fusetune.configure(
        "[[mount]]\nserver = 'mirrorfs'\nmax_ratio = 20\n"
        "[[mount]]\nserver = 'python3*'\nread_ahead_kb = 4096\n"
    )
    own = dead(open_path / "dead", NOBODY)
    with own as point, holding(open_path / "held", NOBODY, mirror.mountpoint, point):
        document = fusetune.json("apply", "--all", timeout=30)
        found = fusetune.json("lib", "status", timeout=30)["servers"]
    changes = [(c["mount"], c["knob"], c["after"]) for c in document["changes"]]
    # Python serves the file system that the process waits for, not the dead one.
    assert changes == [
        (str(mirror.mountpoint), "max_ratio", 20),
        (str(open_path / "held"), "read_ahead_kb", 4096),
    ]
    assert mirror.process.pid in {server["pid"] for server in found}


def test_a_process_with_a_file_named_fuse_serves_nothing(
    fusetune: Fusetune, tmp_path: Path
) -> None:
    named = tmp_path / "fuse"
    named.write_text("")
    shell = os.path.basename(os.path.realpath("/bin/sh"))
    fusetune.configure(f"[[mount]]\nserver = '{shell}'\nmax_ratio = 20\n")
    with dead(tmp_path / "dead") as point, named.open() as file:
        spoof = subprocess.Popen(
            ["/bin/sh", "-c", "read line", "sh", point],
            stdin=subprocess.PIPE,
            pass_fds=[file.fileno()],
        )
        try:
            wait_for(lambda: str(named) in open_files(spoof.pid), "the file in the process")
            assert fusetune.json("apply", "--all")["changes"] == []
        finally:
            spoof.communicate(timeout=PATIENCE)
