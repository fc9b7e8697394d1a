# SPDX-License-Identifier: GPL-2.0-or-later
"""The command fusetune, with the real module and mounts of it."""

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusetune.bench.runner import Bench
from fusetune.bench.spending import Budget
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import WORKLOADS
from fusetune.host import Host
from fusetune.mounts.control import mount_controls
from fusetune.mounts.discover import find
from tests.kernel.guest import raw
from tests.kernel.guest.rig import (
    CONTROL,
    MODULE,
    SLOWNESS,
    SOURCE,
    copy_through,
    direct,
    fresh_source,
    largest,
    load,
    run,
    stock,
    tuned,
    unload,
)
from tests.native.mirror import CHECKOUT, mounted_at, unmount, wait_for

#: As fusetuned(4) has it.
_OPENS_THE_DEVICE = 'SUBSYSTEM=="misc", KERNEL=="fusetuned", GROUP="users", MODE="0660"\n'
_USERS, _NOBODY = 100, 65534
_DIRECTORIES = {name: f"/run/{name}" for name in ("state", "run", "config")}
_PARAMETER = MODULE / "parameters" / "max_pages_per_req"


def _environment() -> dict[str, str]:
    directories = {f"FUSETUNE_{name.upper()}_DIR": path for name, path in _DIRECTORIES.items()}
    return {**os.environ, **directories, "PYTHONPATH": str(CHECKOUT)}


def start(*words: str) -> subprocess.Popen[str]:
    """Start the command with its own directories."""
    command = [sys.executable, "-B", "-m", "fusetune", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=_environment(), stdout=pipe, stderr=pipe, text=True)


def _fusetune(*words: str, code: int = 0) -> str:
    """Run the command, which must exit with ``code``; return its output, or the error."""
    with start(*words) as done:
        out, err = done.communicate(timeout=60)
    assert done.returncode == code, f"{words}: {done.returncode}: {out}{err}"
    return err if code else out


def _object(*words: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_fusetune(*words, "--json"))
    return document


def _fresh_directories() -> None:
    for directory in _DIRECTORIES.values():
        shutil.rmtree(directory, ignore_errors=True)


def check_tool_loads_and_unloads() -> None:
    """`module` shows what is loaded, and does not unload a module in use."""
    unload()
    fresh_source()
    release = os.uname().release
    before = _object("module", "status", "fusetuned")["modules"][0]
    assert before["loaded"] is None
    assert {one["kernel"]: one["state"] for one in before["kernels"]} == {release: "installed"}
    after = _object("module", "load")["modules"][0]
    assert after["loaded"]["version"] == (MODULE / "version").read_text().strip()
    assert after["as_installed"] is True
    assert after["control_mounted"] is True
    assert mounted_at(CONTROL)
    with tuned() as mirror, stock() as other:
        said = _fusetune("module", "unload", code=1)
        assert said == f"fusetune: fusetuned serves {mirror.mountpoint}: unmount these first\n"
        now = _object("module", "status", "fusetuned")["modules"][0]
        assert now["mounts"] == [str(mirror.mountpoint)]
        assert now["stock"]["mounts"] == [str(other.mountpoint)]
    device = os.open("/dev/fusetuned", os.O_RDWR)
    assert "in use" in _fusetune("module", "unload", code=1)
    assert mounted_at(CONTROL)
    os.close(device)
    assert _object("module", "unload")["modules"][0]["loaded"] is None
    assert not MODULE.exists()


def check_tool_sets_and_resets_a_mount() -> None:
    """`list` mounts the control file system; `set` and `reset` change max_pages live."""
    load()
    run("umount", CONTROL)
    fresh_source()
    _fresh_directories()
    with tuned("max_write=512K", "direct_io", "splice=off") as mirror:
        (one,) = _object("list")["mounts"]
        assert mounted_at(CONTROL)
        assert one["fstype"] == "fusetuned.mirrorfs"
        assert (one["knobs"]["max_pages"], one["tuned"]) == (128, False)
        point, file = str(mirror.mountpoint), CONTROL / one["connection"] / "max_pages"
        assert "INIT negotiated 128" in _fusetune("set", point, "max_pages=129", code=1)
        _fusetune("set", point, "max_pages=32", "max_background=20")
        direct(mirror, 1 << 20)
        assert largest(mirror) == (32, 32)
        knobs = {knob["name"]: knob for knob in _object("show", point)["knobs"]}
        wanted = {"value": 32, "stock": 128, "high": 128, "set_by": "fusetune"}
        assert wanted.items() <= knobs["max_pages"].items()
        _fusetune("reset", point)
        assert file.read_text() == "128\n"
        assert (file.parent / "max_background").read_text() == "12\n"
        direct(mirror, 1 << 20)
        assert largest(mirror) == (128, 128)


def check_tool_sets_the_hosts_limit() -> None:
    """`set host` sets the module's parameter, which applies to new mounts."""
    load()
    fresh_source()
    _fresh_directories()
    said = _fusetune("set", "host", "max_pages_per_req=31", code=1)
    assert "the range is 0 (like the kernel's FUSE), or 32 to" in said
    assert _PARAMETER.read_text() == "0\n"
    _fusetune("set", "host", "max_pages_per_req=64")
    with tuned("max_write=1M", "direct_io", "splice=off") as mirror:
        direct(mirror, 1 << 20)
        assert largest(mirror) == (64, 64)
    _fusetune("reset", "host")
    assert _PARAMETER.read_text() == "0\n"


def check_tool_keeps_values_on_new_mounts() -> None:
    """`watch` sets what is configured; a mount that negotiated less gets the other values."""
    load()
    fresh_source()
    _fresh_directories()
    section = '[[mount]]\nfstype = "fusetuned*"\nmax_pages = 100\nmax_background = 33\n'
    Path(_DIRECTORIES["config"]).mkdir()
    Path(_DIRECTORIES["config"], "fusetune.toml").write_text(section)
    with tuned("max_write=1M") as large, tuned("max_write=64K", point="/mnt/small") as small:
        _fusetune("watch", "--idle", "0.1s")
        for mirror, pages in ((large, 100), (small, 16)):
            directory = CONTROL / mirror.bdi.partition(":")[2]
            values = [(directory / name).read_text() for name in ("max_pages", "max_background")]
            assert values == [f"{pages}\n", "33\n"], values


def _open_as_a_user() -> None:
    os.setgroups([_USERS])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    os.open("/dev/fusetuned", os.O_RDWR)


def check_udev_keeps_the_device_for_root() -> None:
    """Until a rule says otherwise. systemd is also told to mount the control file system.

    Mounts by the module request that, too, before the service.
    """
    unload()
    rules = Path("/run/udev/rules.d")
    rules.mkdir(parents=True, exist_ok=True)
    shutil.copy(CHECKOUT / "udev" / "60-fusetune.rules", rules)
    device = Path("/dev/fusetuned")
    daemon = subprocess.Popen(["/usr/lib/systemd/systemd-udevd"])
    try:
        wait_for(Path("/run/udev/control").exists, "udevd")
        # It replies when it also listens to the kernel.
        run("udevadm", "control", "--ping", "--timeout=30")
        run("modprobe", "fusetuned")
        run("udevadm", "settle", "--timeout=30")
        stat = device.stat()
        assert (stat.st_mode & 0o777, stat.st_uid, stat.st_gid) == (0o600, 0, 0)
        assert raw.in_child(_open_as_a_user) == errno.EACCES
        told = run("udevadm", "info", "--query=property", MODULE).stdout.splitlines()
        assert "SYSTEMD_WANTS=sys-fs-fusetuned-connections.mount" in told, told
        fresh_source()
        with tuned() as mirror:
            run("udevadm", "settle", "--timeout=30")
            bdi = f"/sys/class/bdi/{mirror.bdi}"
            told = run("udevadm", "info", "--query=property", bdi).stdout.splitlines()
        both = "sys-fs-fusetuned-connections.mount fusetune.service"
        assert f"SYSTEMD_WANTS={both}" in told, told
        own = rules / "61-own.rules"
        own.write_text(_OPENS_THE_DEVICE)
        run("udevadm", "control", "--reload")
        # The kernel's events arrive separately, and may overtake that.
        run("udevadm", "control", "--ping", "--timeout=30")
        run("udevadm", "trigger", "--action=change", "--settle", device)
        assert raw.in_child(_open_as_a_user) == 0
        own.unlink()
    finally:
        daemon.terminate()
        daemon.wait(30)


def check_tool_measures() -> None:
    """fio runs in its own root, made with this kernel's mount API, and leaves nothing behind."""
    fresh_source()
    host = Host(run_dir=Path(_DIRECTORIES["run"]))
    host.make_dir(host.run_dir)
    # Samples of 2 s, so that this slow machine is not mistaken for a hung server.
    how = ([WORKLOADS["seq-write"]], Budget(seconds=600), Interruption(), 4 << 20, 2.0)
    with stock("allow_other") as mirror:
        mount_controls(host)
        with Bench(host, find(host, str(mirror.mountpoint)), *how) as bench:
            assert bench.measure()["seq-write"] > 0
    assert not list(SOURCE.iterdir())


@contextmanager
def _serving(words: list[str], point: Path) -> Iterator[None]:
    """Mount at ``point`` by a server, whose command stays in the foreground."""
    point.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(words, env=_environment(), cwd=CHECKOUT) as server:
        try:
            wait_for(
                lambda: mounted_at(point) is not None or server.poll() is not None, "the mount"
            )
            yield
        finally:
            unmount(point)


def check_tool_advises_options_of_the_module() -> None:
    """With the line that `advise` prints, bindfs gets options that it does not have itself."""
    unload()
    fresh_source()
    _fresh_directories()
    point = Path("/mnt/advised")
    with _serving(["bindfs", "-f", str(SOURCE), str(point)], point):
        told = _object("advise", str(point), "-w", "small-write")
        assert any("'fusetune module load'" in note for note in told["notes"]), told
        load()
        found = _object("advise", str(point), "-w", "small-write")
        assert found["changes"] == told["changes"]
        assert "tuned.writeback_cache" in {one["option"] for one in found["changes"]}, found
    words = shlex.split(found["commands"]["then"])
    assert words[:3] == ["fusetune", "run", "-o"], words
    with _serving([sys.executable, "-B", "-m", *words], point):
        (one,) = _object("list")["mounts"]
        assert one["fstype"].partition(".")[0] == "fusetuned", one
        lines = (CONTROL / one["connection"] / "init").read_text().splitlines()
        (forced,) = (line.split() for line in lines if line.startswith("forced "))
        options = [word.partition("=")[0] for word in words[3].split(",")]
        assert set(options) - {"tuned"} <= {word.partition("=")[0] for word in forced}, forced
        copy_through(point)
        with start("advise", str(point), "-w", "small-write") as again:
            assert "proposes no change" in again.communicate(timeout=60)[0]


def check_tool_tries_options_of_the_module() -> None:
    """`auto --try-options` mounts a second bindfs by the module, and proves it faster.

    The live mount stays on the kernel's own FUSE.
    """
    load()
    fresh_source()
    _fresh_directories()
    point = Path("/mnt/tried")
    # Its own options are set, so only the module's remain to be tried.
    own = ["-o", "big_writes,xattr-none"]
    with _serving(["bindfs", "-f", *own, str(SOURCE), str(point)], point):
        words = ("auto", str(point), "-w", "small-write", "--try-options", "--json")
        with start(*words, "--budget", f"{240 * SLOWNESS}") as auto:
            out, err = auto.communicate(timeout=600 * SLOWNESS)
        assert auto.returncode == 0, (auto.returncode, out, err)
        found = json.loads(out)
        tried = [one["options"] for one in found["trials"]]
        assert any("tuned.writeback_cache" in options for options in tried), found["reasons"]
        chosen = {one["option"]: one["gain"] for one in found["advice"]["changes"]}
        assert chosen["tuned.writeback_cache"]["ci95"][0] > 1, chosen
        then = found["advice"]["commands"]["then"]
        assert then.startswith("fusetune run -o tuned,writeback_cache"), then
        (one,) = _object("list")["mounts"]
        assert one["fstype"].partition(".")[0] == "fuse", one
    wait_for(lambda: not any(CONTROL.iterdir()), "the second instances to end")
