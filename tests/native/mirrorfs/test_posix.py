# SPDX-License-Identifier: GPL-2.0-or-later
"""mirrorfs behaves as POSIX programs expect, with each set of options.

The checks run on a mount, on one of the sanitized build, and in parallel with busy workers. When
a server must keep or free an inode is libfuse's contract of lookup and forget (fuse_lowlevel.h).
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.native.mirror import Mirror, open_files, wait_for
from tests.native.mirrorfs.calls import (
    ASAN,
    Mount,
    in_parallel,
)
from tests.native.mirrorfs.posix_checks import POSIX_CHECKS
from tests.native.requirements import requires

pytestmark = requires()


def do_all(mirror: Mirror) -> None:
    """Run every check in its own directory on the mount, and compare the source afterwards."""
    mirror.source.chmod(0o755)
    for check in POSIX_CHECKS:
        root = mirror.mountpoint / check.__name__
        root.mkdir()
        check(root)
        on_source = mirror.source / check.__name__
        assert sorted(os.listdir(root)) == sorted(os.listdir(on_source))


@pytest.mark.usefixtures("reachable")
@pytest.mark.parametrize(
    "options",
    [
        "timeout=1",
        "writeback",
        "timeout=0,splice=off",
        "splice=read+write+move,clone_fd,keep_cache,timeout=60",
    ],
)
def test_posix_semantics(mount: Mount, options: str) -> None:
    mirror = mount(*options.split(","), "allow_other")
    do_all(mirror)
    assert mirror.stop() == 0
    assert mirror.log() == ""


@requires(binary=ASAN)
@pytest.mark.usefixtures("reachable")
@pytest.mark.parametrize("options", ["timeout=1", "writeback,splice=off", "delay=100us,served=2"])
def test_sanitizers_find_nothing(mount: Mount, source: Path, options: str) -> None:
    mirror = mount(*options.split(","), "allow_other", binary=ASAN)
    do_all(mirror)
    churn(mirror.mountpoint, workers=4, rounds=40)
    mirror.counters()
    mirror.reset_counters()
    assert mirror.stop() == 0
    assert mirror.log() == ""
    assert not list(source.glob("worker-*"))


def churn(root: Path, workers: int, rounds: int) -> None:
    """Workers concurrently create, link, rename over, list and remove the same few names."""

    def work(index: int) -> None:
        own = root / f"worker-{index}"
        for number in range(rounds):
            shared = root / f"worker-shared-{number % 3}"
            own.write_bytes(b"x" * number)
            for step in (
                partial(own.rename, shared),
                partial(os.link, root / "worker-shared-0", own),
                partial(os.listdir, root),
                (root / "worker-shared-1").read_bytes,
                shared.unlink,
                own.unlink,
            ):
                # Another worker may have been first.
                with suppress(FileNotFoundError, FileExistsError):
                    step()

    in_parallel(workers, work)
    for left in root.glob("worker-*"):
        left.unlink()


def test_forgotten_inodes_are_let_go(mount: Mount) -> None:
    """Each inode holds a descriptor, so a wrong lookup count shows as a descriptor that stays."""
    mirror = mount("timeout=60")

    def held() -> int:
        return sum(name.startswith(f"{mirror.source}/") for name in open_files(mirror.process.pid))

    for number in range(200):
        (mirror.mountpoint / f"file-{number}").touch()
        os.link(mirror.mountpoint / f"file-{number}", mirror.mountpoint / f"link-{number}")
    assert len([entry.stat() for entry in os.scandir(mirror.mountpoint)]) == 400
    wait_for(lambda: held() == 200, "the last file to be released")
    churn(mirror.mountpoint, workers=4, rounds=20)
    for path in mirror.mountpoint.iterdir():
        path.unlink()
    wait_for(lambda: held() == 0, "all descriptors to be closed")


@requires("fio")
@pytest.mark.parametrize(
    "options",
    ["timeout=1", "writeback", "direct_io", "splice=off", "splice=read+write+move,max_write=64K"],
)
def test_fio_verifies_what_it_wrote(mount: Mount, options: str) -> None:
    mirror = mount(*options.split(","))
    result = subprocess.run(
        [
            "fio",
            "--name=verify",
            f"--directory={mirror.mountpoint}",
            "--rw=randrw",
            "--bsrange=512-256k",
            "--size=8m",
            "--numjobs=2",
            "--ioengine=psync",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--randrepeat=0",
            "--verify_state_save=0",
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert mirror.counters()["ops"]["WRITE"]["errors"] == 0
