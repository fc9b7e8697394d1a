# SPDX-License-Identifier: GPL-2.0-or-later
"""The container does what tests rely on, and leaves nothing behind.

It is a systemd-nspawn(1) container with its own systemd and udevd.
"""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.native.mirror import CHECKOUT, wait_for
from tests.native.requirements import requires
from tests.system.container import Container

pytestmark = requires("systemd-nspawn", "mmdebstrap")

_VALUES = ("fs/file-max", "fs/nr_open", "fs/pipe-max-size", "fs/fuse/max_pages_limit")


def _traces() -> list[str]:
    """Return what containers leave behind without cleanup, and the values that they change."""
    # Not rglob, which fails if a cgroup disappears meanwhile.
    groups = (Path(directory) for directory, _, _ in os.walk("/sys/fs/cgroup"))
    found = sorted(group for group in groups if group.name.startswith("fusetune-rig."))
    found += sorted(Path(tempfile.gettempdir()).glob("fusetune-*"))
    files = [file for file in map(Path("/proc/sys").joinpath, _VALUES) if file.exists()]
    return [str(path) for path in found] + [file.read_text() for file in files]


@pytest.mark.parametrize("crash", [False, True])
def test_restart_keeps_files(container: Container, crash: bool) -> None:
    container.path("/var/lib/kept").write_text("written before")
    container.path("/run/lost").touch()
    boot = container.leader
    container.restart(crash=crash)
    assert container.leader != boot
    assert container.run("cat", "/var/lib/kept").stdout == "written before"
    assert not container.path("/run/lost").exists()


def test_run_tells_what_became_of_the_program(container: Container) -> None:
    done = container.run("sh", "-c", "cat; echo told >&2; exit 3", check=False, input="given")
    assert (done.returncode, done.stdout, done.stderr) == (3, "given", "told\n")
    with pytest.raises(RuntimeError, match="status 3: told"):
        container.run("sh", "-c", "echo told >&2; exit 3")
    with pytest.raises(subprocess.TimeoutExpired):
        container.run("sleep", "60", timeout=0.1)


def test_signals_go_to_the_program(container: Container) -> None:
    script = "trap 'echo ended; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    program = container.start("sh", "-c", script, stdout=subprocess.PIPE)
    assert program.stdout
    assert program.stdout.readline() == "ready\n"
    program.terminate()
    assert program.stdout.readline() == "ended\n"
    assert program.wait(10) == 7


def test_nothing_is_left_by_a_failed_test() -> None:
    before = _traces()
    with suppress(ZeroDivisionError), Container() as container:
        container.start("mirrorfs", "-f", "/srv", "/mnt")
        container.wait(lambda: bool(container.mounted_at("/mnt")), "mount")
        bdi = container.mounted_at("/mnt")
        raise ZeroDivisionError
    assert _traces() == before
    wait_for(lambda: not Path(f"/sys/class/bdi/{bdi}").exists(), "end of the mount")


def test_nothing_is_left_by_a_killed_test() -> None:
    before = _traces()
    script = (
        "import time; from tests.system.container import Container\n"
        "with Container() as container: print(container.leader, flush=True); time.sleep(60)"
    )
    test = subprocess.Popen(
        [sys.executable, "-c", script], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
    )
    assert test.stdout
    leader = os.pidfd_open(int(test.stdout.readline()))
    test.send_signal(signal.SIGKILL)
    test.communicate()
    try:
        wait_for(lambda: _traces() == before, "end of the container")
        with pytest.raises(ProcessLookupError):
            signal.pidfd_send_signal(leader, 0)
    finally:
        os.close(leader)
