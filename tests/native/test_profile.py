# SPDX-License-Identifier: GPL-2.0-or-later
"""profile counts requests as mirrorfs does, recognises their pattern, and leaves nothing behind.

It uses the tracepoints fuse:fuse_request_send and fuse:fuse_request_end (fs/fuse/dev.c).
"""

import json
import math
import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fusetune.profile.btf import Types
from tests import schemas
from tests.native.mirror import CHECKOUT, PATIENCE, Mirror, children, wait_for
from tests.native.program import Fusetune, Started
from tests.native.requirements import requires
from tests.native.traced import BLOCK, fill, ops, programs, read_direct, served
from tests.tmpfs import TRACING

pytestmark = [
    requires("bpftrace", "bpftool"),
    pytest.mark.usefixtures("tracefs"),
    pytest.mark.xdist_group("probes"),
]


def _watching(fusetune: Fusetune, mount: Path) -> Started:
    """Start profile, and return once it is watching."""
    process = fusetune.start("profile", mount, "--for", "10m", "--json")
    assert process.stderr
    assert "watching" in process.stderr.readline()
    assert len(programs()) == 2
    return process


def _result(process: Started) -> dict[str, Any]:
    """Return profile's final output; then nothing of it may be left in the kernel."""
    said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert programs() == []
    return schemas.validate(json.loads(said))


def _profile(fusetune: Fusetune, mirror: Mirror, work: Callable[[], None]) -> dict[str, Any]:
    """Watch ``work``, end profile by SIGINT, and return the document."""
    process = _watching(fusetune, mirror.mountpoint)
    mirror.reset_counters()
    work()
    wait_for(lambda: not any(one["in_flight"] for one in ops(mirror).values()), "rest")
    process.send_signal(signal.SIGINT)
    return _result(process)


def _counts(document: dict[str, Any]) -> dict[str, int]:
    return {one["operation"]: one["requests"] for one in document["operations"]}


def test_counts_are_the_servers(fusetune: Fusetune, mirror: Mirror) -> None:
    file = fill(mirror, 1024)

    def read() -> None:
        for number in range(200):  # at most 500 a second
            end = time.monotonic() + 0.01
            read_direct(file, number, 5, 1024)
            time.sleep(max(0.0, end - time.monotonic()))

    document = _profile(fusetune, mirror, read)
    assert _counts(document) == served(mirror)
    assert (document["source"], document["ended"]) == ("bpftrace", "signal")
    assert (document["lost"], document["unrecorded"]) == (0, 0)
    (found,) = (one for one in document["operations"] if one["operation"] == "READ")
    assert (found["requests"], found["bytes"]) == (1000, 1000 * BLOCK)
    assert (found["largest_bytes"], found["most_in_flight"]) == (BLOCK, 1)
    latency = found["latency_us"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"]
    pattern = document["pattern"]
    assert (pattern["reads"], pattern["direct_reads_share"]) == (1000, 1)
    assert pattern["sequential_reads_share"] < 0.01
    assert pattern["writes"] == 0
    assert pattern["appends_share"] is None


def test_counts_are_exact_beyond_what_is_recorded(fusetune: Fusetune, mirror: Mirror) -> None:
    file = fill(mirror, 1024)
    document = _profile(fusetune, mirror, lambda: read_direct(file, 0, 40_000, 1024))
    assert _counts(document) == served(mirror)
    assert document["lost"] == 0
    (found,) = (one for one in document["operations"] if one["operation"] == "READ")
    assert (found["requests"], found["bytes"]) == (40_000, 40_000 * BLOCK)
    seconds = math.ceil(document["seconds"])
    assert 40_000 - 1000 * (seconds + 1) <= document["unrecorded"] < 40_000


def test_a_sequential_reader(fusetune: Fusetune, mirror: Mirror) -> None:
    file = fill(mirror, 512)
    pattern = _profile(fusetune, mirror, lambda: _read_all(file))["pattern"]
    assert pattern["reads"] == 512
    assert pattern["sequential_reads_share"] == 1
    assert pattern["direct_reads_share"] == 0
    assert pattern["streams"] == 1


def _read_slowly(files: Sequence[Path], blocks: int) -> None:
    """Read files in turn, so slowly that each read is examined."""
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        for _ in range(blocks):
            os.read(fd, BLOCK)
            time.sleep(0.01)
        os.close(fd)


def test_streams_are_read_at_the_same_time(fusetune: Fusetune, mirror: Mirror) -> None:
    """Not one after another, even if a second sees many files."""
    files = [mirror.mountpoint / f"file-{number}" for number in range(40)]
    for file in files:
        (mirror.source / file.name).write_bytes(bytes(300 * BLOCK))
    pattern = _profile(fusetune, mirror, lambda: _read_slowly(files, 6))["pattern"]
    assert pattern["sequential_reads_share"] == 1
    assert pattern["streams"] == 1

    def together() -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda file: _read_slowly([file], 200), files[:4]))

    pattern = _profile(fusetune, mirror, together)["pattern"]
    assert pattern["sequential_reads_share"] == 1
    assert pattern["streams"] == 4


def test_a_sequential_reader_that_is_too_fast_to_be_seen_whole(
    fusetune: Fusetune, mirror: Mirror
) -> None:
    """Requests that were skipped between two reads do not make the second one random."""
    file = fill(mirror, 8192)

    def read() -> None:
        end = time.monotonic() + 3  # each second has a gap
        while time.monotonic() < end:
            _read_all(file)

    pattern = _profile(fusetune, mirror, read)["pattern"]
    assert 1000 <= pattern["reads"] <= 10_000
    assert pattern["sequential_reads_share"] == 1


#: Each system call that reads, or writes, a block of an open file at a place.
_READS: tuple[Callable[[int, int], object], ...] = (
    lambda fd, _: os.read(fd, BLOCK),
    lambda fd, _: os.readv(fd, [bytearray(BLOCK)]),
    lambda fd, place: os.pread(fd, BLOCK, place),
    lambda fd, place: os.preadv(fd, [bytearray(BLOCK)], place),
    lambda fd, place: os.preadv(fd, [bytearray(BLOCK)], place, os.RWF_HIPRI),
)
_WRITES: tuple[Callable[[int, int], object], ...] = (
    lambda fd, _: os.write(fd, bytes(BLOCK)),
    lambda fd, _: os.writev(fd, [bytes(BLOCK)]),
    lambda fd, place: os.pwrite(fd, bytes(BLOCK), place),
    lambda fd, place: os.pwritev(fd, [bytes(BLOCK)], place),
    lambda fd, place: os.pwritev(fd, [bytes(BLOCK)], place, os.RWF_DSYNC),
)


def _in_turn(file: Path, calls: Sequence[Callable[[int, int], object]]) -> None:
    """Access 50 blocks in sequence, each by the next of the calls.

    The first two use the file's own position, which is elsewhere for the others.
    """
    with file.open("r+b", buffering=0) as stream:
        fd = stream.fileno()
        for number in range(50):
            turn, place = number % len(calls), number * BLOCK
            os.lseek(fd, place if turn < 2 else 0, os.SEEK_SET)
            calls[turn](fd, place)


def test_every_call_that_reads_or_writes_is_seen(fusetune: Fusetune, mirror: Mirror) -> None:
    file = fill(mirror, 64)

    def work() -> None:
        _in_turn(file, _READS)
        _in_turn(file, _WRITES)

    pattern = _profile(fusetune, mirror, work)["pattern"]
    assert (pattern["reads"], pattern["writes"]) == (50, 50)
    assert pattern["sequential_reads_share"] == pattern["sequential_writes_share"] == 1
    assert pattern["readahead_unused_share"] is not None  # no read was unseen


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other_numbers.c is for x86")
@requires("cc")
def test_calls_of_32_bit_programs_are_not_mistaken(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path
) -> None:
    program, file = tmp_path / "program", fill(mirror, 64)
    source = CHECKOUT / "tests" / "native" / "other_numbers.c"
    subprocess.run(["cc", "-o", program, source], check=True, timeout=PATIENCE)

    def work() -> None:
        subprocess.run([program, file], check=True, timeout=PATIENCE)
        _read_all(file)

    assert _profile(fusetune, mirror, work)["pattern"]["reads"] == 64


@pytest.mark.alone
def test_it_ends_within_a_second(fusetune: Fusetune, mirror: Mirror) -> None:
    """The kernel takes a while to remove a probe from each tracepoint."""
    process = _watching(fusetune, mirror.mountpoint)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE)
    assert time.monotonic() - begun < 1
    _result(process)


def _read_all(file: Path) -> None:
    with file.open("rb", buffering=0) as stream:
        while stream.read(BLOCK):
            pass


def test_an_appender_with_fsync(fusetune: Fusetune, mirror: Mirror) -> None:
    def append() -> None:
        fd = os.open(mirror.mountpoint / "log", os.O_WRONLY | os.O_APPEND)
        for _ in range(50):
            os.write(fd, b"line\n")
            os.fsync(fd)
        os.close(fd)

    (mirror.source / "log").write_bytes(b"older\n")
    document = _profile(fusetune, mirror, append)
    pattern = document["pattern"]
    assert (pattern["writes"], pattern["appends_share"], pattern["fsyncs"]) == (50, 1, 50)
    (write,) = (one for one in document["operations"] if one["operation"] == "WRITE")
    assert (write["requests"], write["bytes"]) == (50, 250)


def test_a_profile_is_saved_and_measured(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    """On a server so slow that no delay of its one OPEN outweighs the reads."""
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", "delay=1ms") as mirror:
        file = fill(mirror, 1024)
        document = _profile(fusetune, mirror, lambda: read_direct(file, 0, 2000, 1024))
        assert max(document["workloads"], key=document["workloads"].get) == "rand-read"
        words = ("bench", mirror.mountpoint, "-w", "profile", "--budget", "10s", "--json")
        done = fusetune(*words)
        assert done.returncode == 0, done.stderr
        assert "measuring the mount's profile: its traffic during " in done.stderr
        (series,) = schemas.validate(json.loads(done.stdout))["series"]
        assert [one["name"] for one in series["workloads"]] == list(document["workloads"])


def test_most_in_flight_is_the_servers(fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path) -> None:
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", "delay=2ms") as mirror:
        file = fill(mirror, 4096)
        document = _profile(fusetune, mirror, lambda: _read_all(file))
        (read,) = (one for one in document["operations"] if one["operation"] == "READ")
        counted = ops(mirror)["READ"]
        assert read["requests"] == counted["count"]
        # The server counts a request later than the kernel, and its end earlier.
        assert counted["most_in_flight"] <= read["most_in_flight"] <= counted["most_in_flight"] + 1
        assert document["limit"]["knob"] == "read_ahead_kb"
        assert document["limit"]["command"] == (
            f"fusetune set {mirror.mountpoint} read_ahead_kb=256"
        )


def test_readers_that_are_too_many_to_be_recorded_wait_for_no_limit(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    """As many requests as max_background are in flight, but all of them are at the server."""
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", "delay=4ms") as mirror:
        file = fill(mirror, 1024)

        def read() -> None:
            with ThreadPoolExecutor(12) as pool:
                list(pool.map(lambda seed: read_direct(file, seed, 600, 1024), range(12)))

        document = _profile(fusetune, mirror, read)
    (found,) = (one for one in document["operations"] if one["operation"] == "READ")
    assert found["most_in_flight"] == 12
    assert document["unrecorded"] > 0.3 * found["requests"]
    assert document["limit"] is None


def test_another_mount_is_not_counted(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path, tmpfs_dir: Path
) -> None:
    (tmpfs_dir / "other").mkdir()
    with Mirror(tmpfs_dir / "other", tmp_path / "other") as other:
        file = fill(other, 64)
        document = _profile(fusetune, mirror, lambda: _read_all(file))
    assert document["operations"] == []
    assert document["pattern"]["reads"] == 0


def test_it_leaves_nothing_when_killed(fusetune: Fusetune, mirror: Mirror) -> None:
    process = _watching(fusetune, mirror.mountpoint)
    found = children(process.pid)
    for child in found:  # so that it does not itself notice that nobody reads its output
        os.kill(child, signal.SIGSTOP)
    assert len(found) == 1
    process.kill()
    process.wait(PATIENCE)
    wait_for(lambda: programs() == [], "the end of the probes")


def test_a_mount_that_goes_ends_it(fusetune: Fusetune, mirror: Mirror) -> None:
    process = _watching(fusetune, mirror.mountpoint)
    (mirror.mountpoint / "file").write_bytes(b"x")
    mirror.unmount()
    document = _result(process)
    assert document["ended"] == "unmounted"
    assert {"CREATE", "WRITE"} <= {one["operation"] for one in document["operations"]}


def test_without_bpftrace(fusetune: Fusetune, mirror: Mirror, tmp_path: Path) -> None:
    hide = 'mount --bind /dev/null "$(command -v bpftrace)"; exec "$@"'
    hidden = ("unshare", "--mount", "sh", "-c", hide, "sh")
    line = fusetune.fails("profile", mirror.mountpoint, before=hidden)
    assert line == (
        "fusetune: bpftrace is not installed: apt install bpftrace, or dnf install bpftrace"
    )


def test_without_tracefs(fusetune: Fusetune, mirror: Mirror) -> None:
    hidden = ("unshare", "--mount", "sh", "-c", f'umount {TRACING}; exec "$@"', "sh")
    line = fusetune.fails("profile", mirror.mountpoint, before=hidden)
    assert line.endswith("mount it: mount -t tracefs tracefs /sys/kernel/tracing")


def test_only_for_root(fusetune: Fusetune, mirror: Mirror) -> None:
    as_nobody = ("setpriv", "--reuid", "65534", "--clear-groups", "--")
    line = fusetune.fails("profile", mirror.mountpoint, before=as_nobody)
    assert line == "fusetune: only root may trace the kernel; run fusetune as root"


@pytest.mark.parametrize("given", ["", "0", "0s", "-1"])
def test_an_empty_time_is_wrong_use(fusetune: Fusetune, mirror: Mirror, given: str) -> None:
    line = fusetune.fails("profile", mirror.mountpoint, f"--for={given}", code=2)
    assert "is not a time such as 90, 90s or 2m" in line


def test_offsets_of_the_running_kernel() -> None:
    """Before Linux 6.12 the probes read members of structures, which bpftool also sees."""
    command = ["bpftool", "--json", "btf", "dump", "file", "/sys/kernel/btf/vmlinux"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
    wanted = {"file": ("f_pos", "f_inode"), "inode": ("i_sb", "i_size")}
    expected = {
        (one["name"], member["name"]): member["bits_offset"] // 8
        for one in json.loads(done.stdout)["types"]
        if one["kind"] == "STRUCT"
        for member in one["members"]
        if member["name"] in wanted.get(one["name"], ())
    }
    assert Types(Path("/sys/kernel/btf"), "none").offsets(wanted) == expected
