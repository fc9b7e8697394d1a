# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --live on a real mount: what it chooses from a reader's waits, and what it leaves behind.

If a server takes 2 ms for each request, more readahead reduces a reader's waits (mm/readahead.c).
Readers and writers are processes of the tests.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.native.conftest import sysfs_values
from tests.native.mirror import PATIENCE, Mirror, children, wait_for
from tests.native.program import Fusetune, Started
from tests.native.requirements import requires

pytestmark = [
    requires("bpftrace", "bpftool"),
    pytest.mark.usefixtures("tracefs"),
    pytest.mark.xdist_group("probes"),
]

FILES, SIZE = 6, 16 << 20

#: Reads files that are not in the page cache, and pauses briefly after every few.
_READER = """
import os, sys, time
for turn in range(10**9):
    fd = os.open(f"{sys.argv[1]}/file{turn % 6}", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    while os.read(fd, 1 << 17):
        pass
    os.close(fd)
    if turn % 6 == 5:
        time.sleep(0.2)
"""


@pytest.fixture
def slow(tmp_path: Path, tmpfs_dir: Path) -> Iterator[Mirror]:
    """A server that takes 2 ms for each request, 8 at a time, with files to read."""
    for number in range(FILES):
        (tmpfs_dir / "source" / f"file{number}").write_bytes(os.urandom(SIZE))
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", "delay=2ms", "served=8") as mirror:
        yield mirror


@contextmanager
def reading(mirror: Mirror) -> Iterator[None]:
    """A reader on the mount, until the end."""
    with subprocess.Popen([sys.executable, "-c", _READER, mirror.mountpoint]) as reader:
        try:
            yield
        finally:
            reader.kill()


def _programs() -> list[str]:
    """Return the kernel's BPF programs on system calls and page faults."""
    done = subprocess.run(
        ["bpftool", "--json", "prog", "show"], capture_output=True, check=True, timeout=PATIENCE
    )
    names = (one.get("name", "") for one in json.loads(done.stdout))
    return [name for name in names if name.startswith(("sys_", "mm_filemap", "sched_"))]


def _trying(fusetune: Fusetune, mirror: Mirror) -> Started:
    """Start a run, and return once it has changed the values."""
    found = sysfs_values(mirror.bdi)
    process = fusetune.start("auto", mirror.mountpoint, "--live", "--for", "1m")
    wait_for(lambda: process.poll() is not None or sysfs_values(mirror.bdi) != found, "a trial")
    assert process.poll() is None, process.communicate()
    assert _programs()
    return process


@pytest.mark.alone
def test_readahead_is_raised_for_a_reader(fusetune: Fusetune, slow: Mirror) -> None:
    before = sysfs_values(slow.bdi)
    listed = sorted(os.listdir(slow.source))
    with reading(slow):
        words = ("auto", slow.mountpoint, "--live", "--for", "40s")
        document = fusetune.json(*words, timeout=120)
    assert document["source"] == "live"
    assert document["before"] == before
    assert document["after"] == sysfs_values(slow.bdi)
    assert document["after"]["read_ahead_kb"] > before["read_ahead_kb"]
    assert document["after"]["read_ahead_kb"] <= 4 * 4 * before["read_ahead_kb"]  # in two steps
    assert document["gain"]["ci95"][0] > 1
    assert document["cost"]["bytes_written"] == 0
    assert sorted(os.listdir(slow.source)) == listed
    saved = fusetune.json("show", slow.mountpoint)["saved"]
    assert saved["knobs"]["read_ahead_kb"] == document["after"]["read_ahead_kb"]
    assert _programs() == []
    fusetune.json("reset", slow.mountpoint)
    assert sysfs_values(slow.bdi) == before


def test_without_traffic_of_its_own_nothing_is_tried_on_a_mount(
    fusetune: Fusetune, slow: Mirror, tmp_path: Path, tmpfs_dir: Path
) -> None:
    (tmpfs_dir / "other").mkdir()
    with Mirror(tmpfs_dir / "other", tmp_path / "other") as other, reading(slow):
        before = sysfs_values(other.bdi)
        document = fusetune.json("auto", other.mountpoint, "--live", "--for", "3s", code=4)
        assert sysfs_values(other.bdi) == before
        counted = other.counters()["ops"]
    assert not document["applied"]
    assert document["trials"] == []
    assert document["reasons"][0] == "programs did not wait for this mount"
    assert not any(counted[name]["count"] for name in ("READ", "WRITE", "CREATE", "OPEN"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_puts_everything_back(
    fusetune: Fusetune, slow: Mirror, number: signal.Signals
) -> None:
    before = sysfs_values(slow.bdi)
    with reading(slow):
        process = _trying(fusetune, slow)
        process.send_signal(number)
        said, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (1, "")
    line = errors.splitlines()[-1]
    assert line.startswith("fusetune: interrupted: everything was restored; ")
    assert sysfs_values(slow.bdi) == before
    assert fusetune.json("show", slow.mountpoint)["saved"] is None
    assert _programs() == []


def test_reset_restores_after_sigkill(fusetune: Fusetune, slow: Mirror) -> None:
    before = sysfs_values(slow.bdi)
    with reading(slow):
        process = _trying(fusetune, slow)
        (child,) = children(process.pid)
        os.kill(child, signal.SIGSTOP)  # so that it does not notice that nobody reads
        process.kill()
        process.wait(PATIENCE)
    assert sysfs_values(slow.bdi) != before
    fusetune.json("reset", slow.mountpoint)
    assert sysfs_values(slow.bdi) == before
    wait_for(lambda: _programs() == [], "the end of the probes")


def test_a_mount_that_goes_ends_it(fusetune: Fusetune, slow: Mirror) -> None:
    process = fusetune.start("auto", slow.mountpoint, "--live", "--for", "1m")
    wait_for(lambda: bool(_programs()), "the probes")
    slow.unmount()
    said, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (1, "")
    line = errors.splitlines()[-1]
    assert line.startswith("fusetune: ")
    # In the source, or when the next values are set.
    assert line.endswith(("was unmounted meanwhile", "is no longer mounted"))
    assert _programs() == []


def test_without_bpftrace(fusetune: Fusetune, slow: Mirror) -> None:
    hide = 'mount --bind /dev/null "$(command -v bpftrace)"; exec "$@"'
    hidden = ("unshare", "--mount", "sh", "-c", hide, "sh")
    line = fusetune.fails("auto", slow.mountpoint, "--live", before=hidden)
    assert line == (
        "fusetune: bpftrace is not installed: apt install bpftrace, or dnf install bpftrace"
    )


def test_a_dry_run_writes_nothing(fusetune: Fusetune, slow: Mirror) -> None:
    before = sysfs_values(slow.bdi)
    document = fusetune.json("auto", slow.mountpoint, "--live", "--dry-run")
    assert document["workloads"] == ["read", "write", "fault"]
    assert {one["knob"] for one in document["knobs"]} >= {"read_ahead_kb", "max_ratio"}
    assert sysfs_values(slow.bdi) == before


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--workload", "mixed"),
            "--workload cannot be combined with --live, which generates no load",
        ),
        (("--size", "1M"), "--size cannot be combined with --live, which writes no files"),
        (("--files", "x"), "--files cannot be combined with --live, which reads no files"),
        (
            ("--budget", "9"),
            "--budget cannot be combined with --live, which is limited by --for instead",
        ),
        (
            ("--try-options",),
            "--try-options cannot be combined with --live, which uses the live mount",
        ),
        (("--no-guard", "mmap-read"), "--no-guard cannot be combined with --live"),
        (("--target", "throughput"), "--target cannot be combined with --live"),
        (("--max-memory", "1G"), "--max-memory cannot be combined with --live"),
        (("--cold",), "--cold cannot be combined with --live, which always starts from"),
    ],
)
def test_what_makes_no_sense_is_refused(
    fusetune: Fusetune, mirror: Mirror, words: tuple[str, ...], line: str
) -> None:
    said = fusetune.fails("auto", mirror.mountpoint, "--live", *words, code=2)
    assert line in said


def test_for_needs_live(fusetune: Fusetune, mirror: Mirror) -> None:
    said = fusetune.fails("auto", mirror.mountpoint, "--for", "1m", code=2)
    assert said == "fusetune: --for needs --live; without --live, give --budget"
