# SPDX-License-Identifier: GPL-2.0-or-later
"""If something goes wrong, auto and bench print one line, exit with 1, and restore everything.

Signals, full and read-only file systems, dead and stopped servers. A dead server's mount returns
ENOTCONN (fs/fuse/dev.c, fuse_abort_conn()). conftest.py checks that no mount, process, file or
changed value remains.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.native.conftest import sysfs_values
from tests.native.mirror import CHECKOUT, Mirror, wait_for
from tests.native.program import Fusetune
from tests.native.requirements import requires
from tests.native.servers import Command, run_server, serve
from tests.tmpfs import tmpfs

pytestmark = requires("fio", "setpriv")

NOBODY = 65534
BUDGET = 12.0
#: Seconds, for runs that are ended early; a busy host may need longer to measure stock alone.
_LONG = ("--budget", "60")


def fill(stream: IO[bytes]) -> None:
    while stream.write(bytes(64 << 10)):
        pass


def scratch_directories(source: Path) -> list[Path]:
    return list(source.glob(".fusetune-*"))


def is_measuring(source: Path) -> bool:
    """Whether a run's scratch directory has a file by now."""
    return any(any(directory.iterdir()) for directory in scratch_directories(source))


def start(fusetune: Fusetune, mountpoint: Path, *words: str) -> subprocess.Popen[str]:
    """Start auto in the background."""
    return subprocess.Popen(
        fusetune.command("auto", mountpoint, "--budget", f"{BUDGET:.0f}", *words),
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running(fusetune: Fusetune, mirror: Mirror, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start auto on ``mirror`` and wait until it measures; always reap it."""
    process = start(fusetune, mirror.mountpoint, "-w", "seq-read", *words)
    try:
        wait_for(lambda: is_measuring(mirror.source), "the benchmark to begin")
        yield process
    finally:
        process.kill()
        process.communicate(timeout=20)


def assert_one_line(process: subprocess.Popen[str], *parts: str) -> None:
    """The run ends within its budget with status 1; the last line on stderr has these parts."""
    began = time.monotonic()
    _, stderr = process.communicate(timeout=30)
    assert time.monotonic() - began < BUDGET + 5
    assert process.returncode == 1, stderr
    line = stderr.strip().splitlines()[-1]
    assert line.startswith("fusetune: ")
    assert "Traceback" not in stderr
    for part in parts:
        assert part in line


@pytest.fixture
def mirror(tmp_path: Path, tmpfs_dir: Path) -> Iterator[Mirror]:
    with Mirror(tmpfs_dir, tmp_path / "mnt", "delay=1ms", "served=8") as mounted:
        yield mounted


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "interrupted"), (signal.SIGHUP, "interrup")],
)
def test_a_signal_puts_everything_back(
    fusetune: Fusetune, mirror: Mirror, number: signal.Signals, words: str
) -> None:
    before = sysfs_values(mirror.bdi)
    with running(fusetune, mirror, *_LONG) as process:
        wait_for(lambda: sysfs_values(mirror.bdi) != before, "a trial")
        process.send_signal(number)
        assert_one_line(process, words)
    assert sysfs_values(mirror.bdi) == before
    assert not scratch_directories(mirror.source)


def test_kill_9_is_undone_by_reset(fusetune: Fusetune, mirror: Mirror) -> None:
    before = sysfs_values(mirror.bdi)
    with running(fusetune, mirror, *_LONG) as process:
        wait_for(lambda: sysfs_values(mirror.bdi) != before, "a trial")
        process.kill()
        process.wait(10)
    fusetune.json("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == before
    wait_for(lambda: not scratch_directories(mirror.source), "the removal of the scratch directory")


def test_a_second_auto_says_so(fusetune: Fusetune, mirror: Mirror) -> None:
    with running(fusetune, mirror) as process:
        line = fusetune.fails("auto", mirror.mountpoint)
        assert f"another fusetune (pid {process.pid})" in line
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def test_a_server_stopped_before(fusetune: Fusetune, mirror: Mirror) -> None:
    mirror.suspend()
    try:
        assert_one_line(start(fusetune, mirror.mountpoint), "did not reply")
    finally:
        mirror.process.send_signal(signal.SIGCONT)
    # A process that makes the directory late also removes it and ends: see the leak check.
    wait_for(lambda: mirror.counters()["ops"]["RMDIR"]["count"] == 1, "the directory's removal")
    wait_for(lambda: not scratch_directories(mirror.source), "the end of it")


def test_a_server_stopped_meanwhile(fusetune: Fusetune, mirror: Mirror) -> None:
    before = sysfs_values(mirror.bdi)
    # A budget that is not used up before the run gives up.
    with running(fusetune, mirror, "--budget", "60") as process:
        wait_for(lambda: sysfs_values(mirror.bdi) != before, "a trial")
        mirror.suspend()
        try:
            assert_one_line(process, "did not reply")
            assert sysfs_values(mirror.bdi) == before
        finally:
            mirror.process.send_signal(signal.SIGCONT)
    wait_for(lambda: not scratch_directories(mirror.source), "the removal of the scratch directory")


def test_a_server_killed_meanwhile(fusetune: Fusetune, mirror: Mirror) -> None:
    before = sysfs_values(mirror.bdi)
    with running(fusetune, mirror, *_LONG) as process:
        wait_for(lambda: sysfs_values(mirror.bdi) != before, "a trial")
        mirror.kill()
        assert_one_line(process, "server has died")
    # The kernel raises max_background of a dead connection (fs/fuse/dev.c, fuse_abort_conn).
    assert sysfs_values(mirror.bdi) | {"max_background": 12} == before


def test_unmounted_meanwhile(fusetune: Fusetune, mirror: Mirror) -> None:
    with running(fusetune, mirror) as process:
        subprocess.run(["umount", "--lazy", mirror.mountpoint], check=True)
        assert_one_line(process, "unmounted")


def test_the_file_system_fills_up_meanwhile(fusetune: Fusetune, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    with tmpfs(tmp_path / "small", "size=128M") as small:
        source = small / "source"
        source.mkdir()
        with Mirror(source, tmp_path / "mnt") as mirror:
            process = start(fusetune, mirror.mountpoint, "-w", "seq-write")
            wait_for(lambda: is_measuring(source), "the benchmark to begin")
            # The file that is rewritten already has its blocks; for the next one there are none.
            for directory in scratch_directories(source):
                (directory / "write-data").unlink(missing_ok=True)
            with (
                (small / "filler").open("wb", buffering=0) as filler,
                pytest.raises(OSError, match="No space left"),
            ):
                fill(filler)
            assert_one_line(process, "no space is left")
            assert not scratch_directories(source)


@requires("mergerfs")
def test_a_server_that_keeps_space_free(fusetune: Fusetune, tmp_path: Path) -> None:
    source, point = tmp_path / "source", tmp_path / "mnt"
    source.mkdir()
    command: Command = ["mergerfs", "-f", "-o", "minfreespace=1000000G", source, point]
    with run_server(command, point, tmp_path / "log"):
        assert "mergerfs's minfreespace" in fusetune.fails("auto", point)
    assert not list(source.iterdir())


def test_less_free_space_than_asked(fusetune: Fusetune, mirror: Mirror) -> None:
    assert "free" in fusetune.fails("auto", mirror.mountpoint, "--size", "100G")
    assert not scratch_directories(mirror.source)


def test_more_than_the_budget_of_bytes_asked(fusetune: Fusetune, mirror: Mirror) -> None:
    words = ("bench", mirror.mountpoint, "-w", "seq-read", "--budget-bytes", "64M")
    line = fusetune.fails(*words, "--size", "65M", code=2)
    assert "files of --size 65M need 65 MiB to be written" in line
    assert "only 64 MiB may be; use a smaller --size, or a larger --budget-bytes" in line
    streams = ("-w", "many-streams", "--size", "40M")  # as large together as the other file
    assert "need 80 MiB" in fusetune.fails(*words, *streams, code=2)
    assert mirror.counters()["ops"]["WRITE"]["bytes"] < 4096  # attempts to write
    assert not scratch_directories(mirror.source)


@pytest.mark.parametrize(
    ("workload", "files"), [("seq-read", 1), ("seq-write", 1), ("tree-copy", 1), ("mixed", 2)]
)
def test_what_fits_the_free_space_is_not_refused(
    fusetune: Fusetune, tmp_path: Path, workload: str, files: int
) -> None:
    source, point = tmp_path / "small", tmp_path / "mnt"
    source.mkdir()
    words = ("bench", point, "-w", workload, "--budget", "5", "--budget-bytes", "256M", "--size")
    with tmpfs(source, "size=64M"), Mirror(source, point):
        assert fusetune(*words, f"{60 // files}M").returncode == 0
        assert "64 MiB of free space" in fusetune.fails(*words, f"{68 // files}M")


@pytest.mark.parametrize("command", ["auto", "bench"])
def test_read_only(fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path, command: str) -> None:
    with Mirror(tmpfs_dir, tmp_path / "mnt", "ro") as mirror:
        line = fusetune.fails(command, mirror.mountpoint)
        assert (
            f"cannot read in {mirror.mountpoint}: found no regular file of at least 1 MiB" in line
        )


def test_unknown_workload(fusetune: Fusetune, mirror: Mirror) -> None:
    line = fusetune.fails("auto", mirror.mountpoint, "-w", "nonsense", code=2)
    assert "nonsense" in line
    assert "seq-read" in line


@pytest.mark.parametrize("words", [("--budget", "4s"), ("--budget-bytes", "63M")])
def test_a_budget_too_small_to_be_kept(
    fusetune: Fusetune, mirror: Mirror, words: tuple[str, str]
) -> None:
    assert "at least" in fusetune.fails("auto", mirror.mountpoint, *words, code=2)


def path_with(directory: Path, fio: str | None) -> dict[str, str]:
    """Return a PATH with what the run needs, and with this script or nothing as fio."""
    directory.mkdir()
    for name in ("env", "setpriv", "mount"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True)
        (directory / name).symlink_to(found.stdout.strip())
    if fio is not None:
        (directory / "fio").write_text("#!/bin/sh\n" + fio)
        (directory / "fio").chmod(0o755)
    return {"PATH": str(directory)}


@pytest.mark.parametrize(
    ("fio", "said"),
    [
        (None, "fio is not installed"),
        ("echo not json at all", "without a readable result"),
        ('echo \'{"jobs": [{"error": 0}]}\'', "no number"),
        ("echo '{\"jobs\": []}'", "without a readable result"),
        ('echo \'{"jobs": [{"error": 1e999}]}\'', "without a readable result"),
        (
            "printf '{\"jobs\": '; n=0; while [ $n -lt 2000 ]; do printf [; n=$((n+1)); done",
            "without a readable result",
        ),
        ("while :; do echo any; done", "wrote more than 1048576 bytes"),
        ("exit 3", "status 3"),
        ("kill -SEGV $$", "status -11"),
    ],
)
def test_fio_missing_or_broken(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path, fio: str | None, said: str
) -> None:
    before = sysfs_values(mirror.bdi)
    environment = path_with(tmp_path / "bin", fio)
    assert said in fusetune.fails("auto", mirror.mountpoint, environment=environment)
    assert sysfs_values(mirror.bdi) == before
    assert not scratch_directories(mirror.source)


def test_no_room_for_the_journal(fusetune: Fusetune, mirror: Mirror) -> None:
    """A full /var: it fails before anything is measured."""
    fusetune.state.mkdir()
    with tmpfs(fusetune.state, "size=4K,nr_inodes=1"):
        assert "No space left" in fusetune.fails("auto", mirror.mountpoint)
    assert mirror.counters()["ops"]["MKDIR"]["count"] == 0


@pytest.fixture
def user_mount(open_path: Path) -> Iterator[tuple[Path, Path, str]]:
    """Another user's mount that root cannot enter: its source, mount point and bdi."""
    source, point = open_path / "source", open_path / "mnt"
    for directory in (source, point):
        directory.mkdir()
        os.chown(directory, NOBODY, NOBODY)
    with serve("mirrorfs", source, point, uid=NOBODY) as bdi:
        yield source, point, bdi


def test_another_users_mount_is_measured_as_that_user(
    fusetune: Fusetune, user_mount: tuple[Path, Path, str]
) -> None:
    """Without allow_other root cannot enter; fio runs as the owner."""
    source, point, bdi = user_mount
    owners: set[int] = set()

    def seen() -> bool:
        owners.update(directory.stat().st_uid for directory in scratch_directories(source))
        return bool(owners)

    process = start(fusetune, point)
    wait_for(seen, "the scratch directory")
    _, stderr = process.communicate(timeout=30)
    assert process.returncode in (0, 4), stderr
    assert owners == {NOBODY}
    # A user's mount never gets more dirty memory automatically.
    assert sysfs_values(bdi)["max_ratio"] == 1
    assert sysfs_values(bdi)["strict_limit"] == 1
    fusetune.json("reset", point)


def test_no_permission_in_the_top_directory(
    fusetune: Fusetune, user_mount: tuple[Path, Path, str]
) -> None:
    source, point, _ = user_mount
    source.chmod(0o555)
    done = fusetune("auto", point)
    assert done.returncode == 1
    why, line = done.stderr.splitlines()
    assert why.endswith(
        "its owner may not write in its top directory; reading existing files instead"
    )
    assert "no regular file of at least 1 MiB" in line
