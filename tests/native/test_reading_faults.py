# SPDX-License-Identifier: GPL-2.0-or-later
"""bench's errors on a mount that it only reads, if files change or the server lies."""

import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import sysfs_values
from tests.native.files_to_read import MIB, fill
from tests.native.hostile import Fault, HostileServer, as_kind, as_size
from tests.native.mirror import PATIENCE, Mirror, wait_for
from tests.native.program import Fusetune
from tests.native.requirements import requires

pytestmark = requires("fio", "setpriv")


# What goes wrong


def _vanishes(mirror: Mirror) -> None:
    (mirror.source / "file").unlink()


def _shrinks(mirror: Mirror) -> None:
    os.truncate(mirror.source / "file", 5 * MIB)


def _is_short(mirror: Mirror) -> None:
    os.truncate(mirror.source / "file", 5)


def _is_another(mirror: Mirror) -> None:
    fill(mirror.source / "new", 80 * MIB).rename(mirror.source / "file")


def _goes(mirror: Mirror) -> None:
    subprocess.run(["umount", "--lazy", mirror.mountpoint], check=True, timeout=PATIENCE)


def _dies(mirror: Mirror) -> None:
    mirror.kill()


def _stops(mirror: Mirror) -> None:
    mirror.suspend()


@pytest.mark.parametrize("workload", ["seq-read", "mmap-read"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (_vanishes, "file was removed or replaced while it was read"),
        (_shrinks, f"file shrank from {80 * MIB} to {5 * MIB} bytes while it was read"),
        (_is_another, "file was removed or replaced while it was read"),
        (_goes, "it was unmounted meanwhile"),
        (_dies, "its server has died"),
        (_stops, "the server did not reply within"),
    ],
)
def test_what_happens_meanwhile_is_one_line(
    fusetune: Fusetune,
    tmpfs_dir: Path,
    tmp_path: Path,
    fault: Callable[[Mirror], None],
    said: str,
    workload: str,
) -> None:
    """What they read first, before the samples, is 80 MiB at most."""
    fill(tmpfs_dir / "source" / "file", 80 * MIB)
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", "timeout=0", "delay=1ms") as mirror:
        # A busy host needs most of the budget to read that much; the fault then ends the run.
        words = ("-w", workload, "--files", mirror.mountpoint / "file", "--budget", "30")
        before = sysfs_values(mirror.bdi)
        run = fusetune.start("auto", mirror.mountpoint, *words)
        wait_for(lambda: mirror.counters()["ops"]["READ"]["bytes"] > 100 * MIB, "samples")
        fault(mirror)
        stdout, stderr = run.communicate(timeout=PATIENCE)
        assert run.returncode == 1, stderr
        assert stdout == ""
        assert said in stderr.splitlines()[-1]
        assert "Traceback" not in stderr
        if fault is _stops:
            mirror.process.send_signal(signal.SIGCONT)
        if fault not in (_goes, _dies):
            assert sysfs_values(mirror.bdi) == before


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (_vanishes, "file was removed or replaced while it was read"),
        (_is_short, "file shrank from 4096 to 5 bytes while it was read"),
        (_goes, "it was unmounted meanwhile"),
        (_dies, "its server has died"),
        (_stops, "the server did not reply within"),
    ],
)
def test_what_happens_to_files_that_are_opened(
    fusetune: Fusetune,
    tmpfs_dir: Path,
    tmp_path: Path,
    fault: Callable[[Mirror], None],
    said: str,
) -> None:
    source = tmpfs_dir / "source"
    for number in range(20):
        fill(source / f"file-{number}", 4096)
    fill(source / "file", 5000)
    with Mirror(source, tmp_path / "mnt", "timeout=0", "delay=1ms") as mirror:
        words = ("-w", "open-storm", "--files", mirror.mountpoint, "--budget", "30")
        run = fusetune.start("bench", mirror.mountpoint, *words)
        # All were opened before fio starts, and bench ends once its figures are exact.
        wait_for(lambda: mirror.counters()["ops"]["OPEN"]["count"] > 50, "samples")
        fault(mirror)
        stdout, stderr = run.communicate(timeout=PATIENCE)
        if fault is _stops:
            mirror.process.send_signal(signal.SIGCONT)
        assert run.returncode == 1, stderr
        assert stdout == ""
        assert said in stderr.splitlines()[-1]


def test_too_few_files_to_open(fusetune: Fusetune, mirror: Mirror) -> None:
    for number in range(9):
        fill(mirror.source / f"file-{number}", 4096)
    words = ("bench", mirror.mountpoint, "-w", "open-storm", "--files", mirror.mountpoint)
    assert "found 9 readable files of at least 4096 bytes" in fusetune.fails(*words)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("", 1, "no regular file of at least 1 MiB"),
        ("nothing", 1, "nothing: No such file or directory"),
        ("link", 1, "link is neither a regular file nor a directory"),
        ("link/secret", 1, "link/secret: Too many levels of symbolic links"),
        ("fifo", 1, "fifo is neither a regular file nor a directory"),
        ("short", 1, "short has 5 bytes, but"),
        ("../secret", 2, "../secret is not in "),
        ("/etc/passwd", 2, "/etc/passwd is not in "),
    ],
)
def test_paths_that_cannot_be_read(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path, name: str, code: int, said: str
) -> None:
    fill(tmp_path / "secret", 2 * MIB)
    (mirror.source / "link").symlink_to(tmp_path)
    (mirror.source / "short").write_bytes(b"12345")
    os.mkfifo(mirror.source / "fifo")
    path = mirror.mountpoint / name
    assert said in fusetune.fails("bench", mirror.mountpoint, "--files", path, code=code)


@pytest.mark.parametrize(
    "words",
    [("--calibrate", "--files", "x"), ("--suite", "published", "--files", "x"), ("--size", "8M")],
)
def test_wrong_use(fusetune: Fusetune, mirror: Mirror, words: tuple[str, ...]) -> None:
    more = () if "--files" in words else ("--files", mirror.mountpoint)
    assert "--files" in fusetune.fails("bench", mirror.mountpoint, *words, *more, code=2)


# A hostile server


def faults(disk: int) -> dict[str, Callable[[Any], Any]]:
    return {
        "link": as_kind(stat.S_IFLNK),
        "fifo": as_kind(stat.S_IFIFO),
        "device": as_kind(stat.S_IFBLK, disk),
        "short": as_size(5),
    }


@contextmanager
def lying(
    tmp_path: Path, name: str, fault: str, after: int, sizes: Mapping[str, int]
) -> Iterator[HostileServer]:
    """A server that lies about the file ``name``; it must neither delay nor lead to a secret."""
    secret = fill(tmp_path / "secret", 2 * MIB)
    secret.chmod(0o600)
    lie = Fault(name, faults(os.makedev(7, 0))[fault], after)
    with HostileServer(tmp_path / "mnt", lie, secret, sizes) as server:
        began = time.monotonic()
        yield server
        assert time.monotonic() - began < 15
    assert os.stat(secret).st_atime_ns <= os.stat(secret).st_mtime_ns


@pytest.mark.parametrize("after", [0, 6])
@pytest.mark.parametrize("fault", faults(0))
def test_a_server_that_lies_leads_nowhere(
    fusetune: Fusetune, tmp_path: Path, fault: str, after: int
) -> None:
    with lying(tmp_path, "file", fault, after, {"file": 64 * MIB}) as server:
        words = ("-w", "seq-read", "--files", server.point / "file", "--budget", "5")
        line = fusetune.fails("bench", server.point, *words)
        print(line)
        assert line.startswith("fusetune: cannot ")


@pytest.mark.parametrize("after", [0, 6])
@pytest.mark.parametrize("fault", faults(0))
def test_a_server_that_lies_about_files_to_open(
    fusetune: Fusetune, tmp_path: Path, fault: str, after: int
) -> None:
    sizes = {"lie": 8192, **{f"file-{number}": 8192 for number in range(20)}}
    with lying(tmp_path, "lie", fault, after, sizes) as server:
        words = ("-w", "open-storm", "--files", server.point, "--budget", "5")
        done = fusetune("bench", server.point, *words)
    if after:  # it was found, and changed when it was opened
        assert done.stderr.splitlines()[-1].startswith("fusetune: cannot ")
        assert done.returncode == 1
    else:
        assert done.returncode == 0, done.stderr
        assert "every sample opened the same " in done.stdout


def test_an_endless_directory_ends_the_walk(fusetune: Fusetune, tmp_path: Path) -> None:
    with HostileServer(
        tmp_path / "mnt", Fault("deep", lambda shown: shown, endless=True), tmp_path
    ) as server:
        os.mkdir(server.point / "deep")
        began = time.monotonic()
        line = fusetune.fails("bench", server.point, "--files", server.point)
        assert "no regular file of at least 1 MiB" in line
        assert time.monotonic() - began < 10
