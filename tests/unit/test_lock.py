# SPDX-License-Identifier: GPL-2.0-or-later
"""Only one fusetune at a time changes a mount: flock(2) ends with its process."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.changes.journal import key_of
from fusetune.changes.lock import Busy, Lock, clear_after_crash
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from tests.unit.conftest import CHECKOUT, Tree
from tests.unit.journals import files_of_run

_HOLDER = """
import sys
from pathlib import Path
from fusetune.host import Host
from fusetune.changes.lock import Lock
root = sys.argv[1]
with Lock(Host(root, Path(root, "var", "lib"), Path(root, "run")), None):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(tree: Tree) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds the host's lock until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tree.root)],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait(10)


def test_a_lock_is_gone_afterwards(tree: Tree, mounted: Mount) -> None:
    path = tree.host.run_dir / "0:40.lock"
    with Lock(tree.host, mounted):
        assert path.read_text() == f"{os.getpid()} {mounted.instance}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


def test_a_link_in_the_place_of_a_lock_is_not_followed(tree: Tree) -> None:
    """Opening it would truncate its target."""
    victim = tree.root / "victim"
    victim.write_text("text")
    tree.host.make_dir(tree.host.run_dir)
    (tree.host.run_dir / "host.lock").symlink_to(victim)
    with pytest.raises(FusetuneError, match=r"cannot lock this host: .*Too many levels"):
        Lock(tree.host, None)
    assert victim.read_text() == "text"


def test_a_second_taker_is_told_who_has_it(tree: Tree) -> None:
    with holder(tree) as process:
        for _ in range(2):
            with pytest.raises(
                FusetuneError,
                match=rf"^another fusetune \(pid {process.pid}\) is working on this host; wait",
            ):
                Lock(tree.host, None)
        process.communicate(timeout=10)  # ends its stdin
        assert process.returncode == 0
        with Lock(tree.host, None):
            pass


def test_kill_frees_it(tree: Tree) -> None:
    with holder(tree) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert (tree.host.run_dir / "host.lock").exists()
        with Lock(tree.host, None):
            assert (tree.host.run_dir / "host.lock").read_text() == str(os.getpid())
    assert not (tree.host.run_dir / "host.lock").exists()


def test_what_a_killed_one_left_behind_is_known(tree: Tree) -> None:
    with Lock(tree.host, None) as lock:
        assert not lock.left_behind
    with holder(tree) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with Lock(tree.host, None) as lock:
        assert lock.left_behind
    with Lock(tree.host, None) as lock:
        assert not lock.left_behind


def test_a_process_id_of_one_digit_was_left_behind_too(tree: Tree) -> None:
    """In a container a killed fusetune may have had this pid."""
    tree.write("run/host.lock", "7")
    with Lock(tree.host, None) as lock:
        assert lock.left_behind


def test_locks_of_different_mounts_do_not_meet(tree: Tree, mounted: Mount) -> None:
    with Lock(tree.host, None), Lock(tree.host, mounted):
        with Lock(tree.host, replace(mounted, bdi="0:41")):
            pass
        with pytest.raises(FusetuneError, match="is working on /mnt/one"):
            Lock(tree.host, mounted)


def test_a_file_removed_between_open_and_lock_is_not_taken(tree: Tree) -> None:
    """Its holder unlinks it after our open; the lock must be on the file with that name."""
    path = tree.host.run_dir / "host.lock"
    real = fcntl.flock
    calls = []

    def racing(fd: int, operation: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            path.unlink()
        elif len(calls) == 2:
            path.unlink()
            path.write_text("another process's")
        real(fd, operation)

    before = len(os.listdir("/proc/self/fd"))
    with mock.patch("fcntl.flock", racing), Lock(tree.host, None) as lock:
        assert len(calls) == 3
        assert len(os.listdir("/proc/self/fd")) == before + 1
        assert os.fstat(lock._fd).st_ino == path.stat().st_ino
        assert path.read_text() == str(os.getpid())


def test_a_lock_whose_file_is_gone_is_released_all_the_same(tree: Tree) -> None:
    """Clearing /run meanwhile does no harm."""
    with Lock(tree.host, None) as lock:
        (tree.host.run_dir / "host.lock").unlink()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lock._fd)


def test_a_lock_is_not_inherited_and_no_link_is_followed(tree: Tree, tmp_path: Path) -> None:
    with Lock(tree.host, None) as lock:
        assert not os.get_inheritable(lock._fd)
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tree.host.run_dir / "host.lock").symlink_to(victim)
    with pytest.raises(FusetuneError, match=r"cannot lock this host: .*; run fusetune as root"):
        Lock(tree.host, None)
    assert victim.read_text() == "kept"


def test_the_lock_that_a_killed_one_left_is_cleared(tree: Tree, mounted: Mount) -> None:
    clear_after_crash(tree.host, mounted)
    assert not tree.host.run_dir.exists()
    tree.write("run/0:40.lock", "4242")
    clear_after_crash(tree.host, mounted)
    assert files_of_run(tree) == []
    with Lock(tree.host, mounted):
        clear_after_crash(tree.host, mounted)
        assert files_of_run(tree) == ["0:40.lock"]


def test_a_run_directory_that_cannot_be_made(tree: Tree) -> None:
    tree.write("run", "a file in its place")
    with pytest.raises(FusetuneError, match=r"cannot create .*/run: File exists"):
        Lock(tree.host, None)


@given(st.integers(0, 4095), st.integers(0, 1 << 20))
def test_keys_are_file_names(major: int, minor: int) -> None:
    device = f"{major}:{minor}"
    for bdi in (device, f"{device}-fuseblk", None):
        key = key_of(Mount("/mnt/a/b", "fuse", "source", device, bdi=bdi))
        assert "/" not in key
        assert key not in ("", ".", "..", "host")
    assert key_of(None) == "host"


def test_a_full_disk_does_not_keep_the_lock_from_being_held(tree: Tree, mounted: Mount) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        mock.patch("os.pwrite", side_effect=full),
        Lock(tree.host, mounted),
        pytest.raises(Busy, match="pid unknown"),
    ):
        Lock(tree.host, mounted)
    assert files_of_run(tree) == []
