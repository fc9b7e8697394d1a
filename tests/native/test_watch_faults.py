# SPDX-License-Identifier: GPL-2.0-or-later
"""The service on real mounts: faults while it runs, kills at system calls, and its end.

It runs as started by udev, but without systemd: the tests read its notifications (sd_notify(3)).
"""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fusetune.desired.reset import reset
from tests.native.conftest import STOCK, requires, sysfs_files, sysfs_values, write_sysfs
from tests.native.mirror import Mirror, children
from tests.native.program import Fusetune
from tests.native.raw import RawMounts, RawServer
from tests.native.servers import mounts_at
from tests.native.watching import KEPT, SECTION, Watching, cleared, has, nothing_left
from tests.tmpfs import tmpfs

pytestmark = requires("strace")


# Faults while it runs


def test_a_storm_of_mounts_that_are_gone_at_once(fusetune: Fusetune, tmp_path: Path) -> None:
    fusetune.configure(SECTION)
    with Watching(fusetune, idle=1.0) as watching:
        for number in range(150):
            with RawServer(tmp_path / f"{number % 7}") as raw:
                if number % 3:
                    raw.answer()
                time.sleep(number % 5 / 100)
        watching.end()
        assert [line for line in watching.said() if " -> " not in line] == []
        assert watching.said()
    nothing_left(fusetune)


def test_garbage_in_the_configuration_while_it_runs(fusetune: Fusetune, tmp_path: Path) -> None:
    file = fusetune.configure(SECTION)
    with Watching(fusetune) as watching:
        file.write_bytes(b"\xff[[mount\n")
        watching.reload()
        (line,) = watching.said()
        assert str(file) in line
        assert line.endswith("the previous configuration remains in effect")
        with RawServer(tmp_path / "one") as raw:
            raw.answer()
            has(raw.device, **KEPT)
        file.write_text("[[mount]]\nmax_ratio = 101\n")  # noticed at the next mount
        with RawServer(tmp_path / "two") as raw:
            raw.answer()
            has(raw.device, **KEPT)
        assert len(watching.said(f"{file}:2: max_ratio=101 is out of range")) == 1
        file.write_text("[[mount]]\nmax_ratio = 30\n")
        with RawServer(tmp_path / "three") as raw:
            raw.answer()
            has(raw.device, max_ratio=30)
        watching.end(signal.SIGTERM)


def test_a_state_directory_that_is_read_only(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path
) -> None:
    fusetune.configure(SECTION)
    fusetune.state.mkdir()
    with tmpfs(fusetune.state, "size=1M") as state:
        subprocess.run(["mount", "-o", "remount,ro", state], check=True)
        with Watching(fusetune, idle=0.2) as watching:
            watching.end()
            (line,) = watching.said()
            assert "nothing was changed" in line or "cannot create" in line
        assert sysfs_values(mirror.bdi) == STOCK
        assert fusetune.json("verify", code=3)["differences"] == 4
    nothing_left(fusetune)


def test_a_wrong_configuration_at_the_start(fusetune: Fusetune, mirror: Mirror) -> None:
    file = fusetune.configure("[[mount]]\nmax_ration = 1\n")
    assert f"{file}:2: unknown key" in fusetune.fails("watch")
    assert sysfs_values(mirror.bdi) == STOCK


CALLS = ["openat", "write", "pwrite64", "fsync", "flock", "?unlink,?unlinkat"]


def killed(fusetune: Fusetune, bdi: str, call: str) -> Iterator[int]:
    """Run it repeatedly, and kill it at each such call on its files, until none is left."""
    paths = [
        *(fusetune.state, fusetune.state / "undo", fusetune.state / "undo" / f"{bdi}.journal"),
        *(fusetune.run, fusetune.run / f"{bdi}.lock", *sysfs_files(bdi).values()),
    ]
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    strace += [word for path in paths for word in ("-P", str(path))]
    for number in range(1, 100):
        write_sysfs(bdi, **STOCK)
        for directory in (fusetune.state, fusetune.run):
            shutil.rmtree(directory, ignore_errors=True)
        inject = ["-e", f"inject={call}:signal=KILL:when={number}", "--"]
        done = fusetune("watch", "--idle", "0.05", before=[*strace, *inject])
        if done.returncode == 0:
            return
        assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
        yield number
    pytest.fail("it was killed every time")


@pytest.mark.parametrize("call", CALLS)
def test_what_a_killed_one_began_the_next_one_finishes(
    fusetune: Fusetune, mirror: Mirror, call: str
) -> None:
    fusetune.configure(SECTION)
    kills = 0
    for kills in killed(fusetune, mirror.bdi, call):
        done = fusetune("watch", "--idle", "0.05")
        assert done.returncode == 0
        assert "left alone" not in done.stderr, (call, kills)
        assert sysfs_values(mirror.bdi) == KEPT, (call, kills)
        assert list(fusetune.run.iterdir()) == [], (call, kills)
        reset(fusetune.host, fusetune.find(mirror.bdi))
        assert sysfs_values(mirror.bdi) == STOCK, (call, kills)
    assert kills >= {"openat": 4, "write": 4, "flock": 1}.get(call, 0)
    assert sysfs_values(mirror.bdi) == KEPT


# Its end


def test_it_ends_when_idle(fusetune: Fusetune) -> None:
    with Watching(fusetune, idle=0.3) as watching:
        watching.end()
        assert watching.said() == []
    nothing_left(fusetune)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_on_a_signal(fusetune: Fusetune, number: signal.Signals) -> None:
    with Watching(fusetune) as watching:
        watching.end(number)


def test_a_mount_at_its_idle_end_is_not_lost(fusetune: Fusetune, tmp_path: Path) -> None:
    """A mount before it announces its end gets its values; for later ones udev starts it again."""
    fusetune.configure(SECTION)
    idle, delay, rounds, served = 0.3, 0.25, 0, 0
    # Near the moment at which it ends, which differs between hosts.
    while rounds < 12 or not 0 < served < rounds:
        assert rounds < 60, (served, delay)
        rounds += 1
        with ExitStack() as mounts, Watching(fusetune, idle=idle) as watching:
            time.sleep(delay)
            raw = mounts.enter_context(RawServer(tmp_path / "raw"))
            raw.answer()
            in_time = not watching.told("STOPPING=1")
            watching.end()
            served += in_time
            delay = max(0, delay + (0.02 if in_time else -0.02))
            if in_time:
                assert sysfs_values(raw.device) == KEPT
            else:
                with Watching(fusetune, idle=0.1) as again:
                    again.end()
                assert sysfs_values(raw.device) == KEPT


def test_many_mounts_are_one_small_process(fusetune: Fusetune, tmp_path: Path) -> None:
    fusetune.configure(f"[policy]\nmax_dirty_percent = 2000\n{SECTION}")
    with Watching(fusetune) as watching:
        with RawMounts(100, tmp_path) as raw:
            for point in raw.points:
                has(mounts_at(point)[-1], **KEPT)
            status = Path(f"/proc/{watching.process.pid}/status").read_text()
            peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
            assert peak
            assert int(peak[1]) <= 64 << 10
            assert not children(watching.process.pid)
        cleared(fusetune)
        watching.end(signal.SIGTERM)
        assert len(watching.said(" -> ")) == 100
    nothing_left(fusetune)
