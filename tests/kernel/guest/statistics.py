# SPDX-License-Identifier: GPL-2.0-or-later
"""A connection's `statistics`, compared with the server's counters."""

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.kernel.guest.rig import (
    KEEPS_FREED,
    PAGE,
    SLOWNESS,
    count,
    expect_errno,
    fresh_source,
    load,
    run,
    tuned,
    unload,
)
from tests.kernel.guest.statistics_file import NONE, Line, begin, file_of, parse, read
from tests.native.mirror import Mirror, wait_for

#: Bytes before the data of a WRITE: struct fuse_write_in.
_WRITE_IN = 40


#: Requests that libfuse replies to by itself.
_LIBFUSE = {"INIT", "INTERRUPT", "IOCTL"}


def _as_the_server_counts(lines: dict[str, Line]) -> dict[str, tuple[int, int, int]]:
    """Return count, errors and bytes by mirrorfs's names."""
    found: dict[str, tuple[int, int, int]] = {}
    for opcode, line in lines.items():
        name = {"RENAME2": "RENAME", "BATCH_FORGET": "FORGET"}.get(opcode, opcode)
        if name in _LIBFUSE:
            continue
        size = {"WRITE": line.sent - _WRITE_IN * line.count, "READ": line.received}.get(name, 0)
        before = found.get(name, (0, 0, 0))
        found[name] = (before[0] + line.count, before[1] + line.errors, before[2] + size)
    return found


def _as_counted(mirror: Mirror) -> dict[str, tuple[int, int, int]]:
    ops = mirror.counters()["ops"].items()
    return {
        name: (op["count"], op["errors"], op["bytes"] if name in ("READ", "WRITE") else 0)
        for name, op in ops
        if op["count"]
    }


def _await_equal_counts(mirror: Mirror) -> None:
    """Let the kernel forget its inodes, and wait until the counts of server and kernel agree."""
    os.sync()
    run("sh", "-c", "echo 3 >/proc/sys/vm/drop_caches")
    try:
        wait_for(
            lambda: _as_the_server_counts(read(mirror)) == _as_counted(mirror),
            "equal counts",
        )
    except TimeoutError:
        lines, counted = _as_the_server_counts(read(mirror)), _as_counted(mirror)
        differ = {
            name: (lines.get(name), counted.get(name))
            for name in lines.keys() | counted.keys()
            if lines.get(name) != counted.get(name)
        }
        raise AssertionError(f"(kernel, server): {differ}") from None


def _work(directory: Path, size: int) -> None:
    """Do some of everything in a new directory; sizes are whole pages, so no READ is short."""
    directory.mkdir()
    path = directory / "file"
    path.write_bytes(os.urandom(size))
    with path.open("r+b", buffering=0) as file:
        assert len(os.pread(file.fileno(), size, 0)) == size
        for page in range(8):
            os.pwrite(file.fileno(), b"x" * PAGE, page * PAGE)
        os.fsync(file.fileno())
        os.posix_fallocate(file.fileno(), 0, size + PAGE)
    os.truncate(path, PAGE)
    path.chmod(0o600)
    os.setxattr(path, "trusted.a", b"1" * 100)
    assert os.listxattr(path)
    os.removexattr(path, "trusted.a")
    path.rename(directory / "other")
    (directory / "link").symlink_to("other")
    assert os.readlink(directory / "link") == "other"
    os.link(directory / "other", directory / "hard")
    for missing in range(5):
        expect_errno(errno.ENOENT, (directory / f"missing{missing}").stat)
    expect_errno(errno.ENOTEMPTY, directory.rmdir)
    assert len(os.listdir(directory)) == 3
    os.statvfs(directory)
    for name in ("other", "link", "hard"):
        (directory / name).unlink()
    directory.rmdir()


def check_statistics_agree_with_the_server() -> None:
    """Counts, errors and bytes by opcode for parallel work, and read during it."""
    load()
    for options in (("timeout=1",), ("writeback",), ("direct_io",), ("splice=off", "timeout=0")):
        fresh_source()
        with tuned(*options) as mirror:
            begin(mirror)
            assert read(mirror) == {}
            with ThreadPoolExecutor(4) as pool:
                works = [
                    pool.submit(_work, mirror.mountpoint / str(n), (200 + n) * PAGE)
                    for n in range(8)
                ]
                seen = 0
                while not all(work.done() for work in works):
                    written = read(mirror).get("WRITE", NONE).count
                    assert written >= seen
                    seen = written
                for work in works:
                    work.result()
            _await_equal_counts(mirror)
            lines = read(mirror)
            assert "INIT" not in lines
            assert lines["WRITE"].sent > 8 * 208 * PAGE
            assert lines["READ"].received >= 8 * 200 * PAGE
            assert lines["LOOKUP"].errors >= 40
            assert lines["RMDIR"].errors == 8
            # A reply with an entry has a struct fuse_entry_out of 128 bytes, an error has none.
            made = lines["MKDIR"]
            assert made.received == 128 * made.count == 128 * 8
            # struct fuse_mkdir_in, and the directory's name as a string.
            assert made.sent == (8 + 2) * 8


def check_statistics_agree_while_requests_end() -> None:
    """Whenever it is read, the sum of the buckets is the count (`parse` checks each line)."""
    load()
    fresh_source()
    with tuned("timeout=0") as mirror, ExitStack() as asking:
        begin(mirror)
        for _ in range(2):
            ask = (sys.executable, "-c", f"import os\nwhile True: os.stat('{mirror.mountpoint}')")
            asking.callback(asking.enter_context(subprocess.Popen(ask)).kill)
        wait_for(lambda: count(mirror, "GETATTR") > 100, "requests")
        readings = 100_000 // SLOWNESS
        with file_of(mirror).open("rb") as file:
            # As fast as possible, because few of the reads overlap with the end of a request.
            texts = dict.fromkeys(os.pread(file.fileno(), 2 * PAGE, 0) for _ in range(readings))
        counts = [parse(text.decode())["GETATTR"].count for text in texts]
        assert len(counts) > 100, "requests did not go on"
        assert counts == sorted(counts)


def check_statistics_of_time() -> None:
    """Time and its buckets begin before the server's delay and end after it."""
    load()
    fresh_source()
    with tuned("timeout=0", "delay=20ms", "direct_io") as mirror:
        begin(mirror)
        for _ in range(5):
            expect_errno(errno.ENOENT, (mirror.mountpoint / "missing").stat)
        line = read(mirror)["LOOKUP"]
        assert line.time >= line.count * 20_000_000
        # Bucket k ends before 2 to the k microseconds: 2^14 is less than 20 ms.
        assert not any(line.latency[:15])


def _sleeps(stat: Path) -> bool:
    return stat.read_text().rpartition(")")[2].split()[0] == "S"


def check_statistics_of_what_was_not_answered() -> None:
    """An abort is an error; a request cancelled while pending is not counted; INTERRUPT is."""
    load()
    fresh_source().joinpath("file").touch()
    with tuned("timeout=0", "delay=3s") as mirror:
        begin(mirror)
        with subprocess.Popen(["stat", mirror.mountpoint]) as asking:
            wait_for(lambda: mirror.counters()["all"]["in_flight"] == 1, "a request")
            asking.kill()
        lines = read(mirror)
        assert (lines["INTERRUPT"].count, lines["INTERRUPT"].sent) == (1, 8)
        assert lines["INTERRUPT"].time == 0
        answered = lines["GETATTR"]
        assert (answered.count, answered.errors) == (1, 0)
        mirror.process.send_signal(signal.SIGSTOP)
        # A thread that is still running might take the next request.
        os.waitid(os.P_PID, mirror.process.pid, os.WSTOPPED)
        waiting = file_of(mirror).with_name("waiting")
        for abort in (False, True):
            with subprocess.Popen(["stat", mirror.mountpoint], stderr=subprocess.DEVNULL) as asking:
                wait_for(lambda: waiting.read_text().strip() != "0", "a request")
                # It counts before it is queued; then its caller sleeps.
                stat = Path(f"/proc/{asking.pid}/stat")
                wait_for(partial(_sleeps, stat), "its caller to wait")
                if abort:
                    file_of(mirror).with_name("abort").write_text("1")
                else:
                    asking.kill()
            now = read(mirror)["GETATTR"]
            grown = now.count - answered.count, now.errors
            assert grown == ((1, 1) if abort else (0, 0)), grown
        mirror.process.send_signal(signal.SIGCONT)


def check_statistics_file_and_its_connection() -> None:
    """It is read-only, and an open one outlives its connection as an error."""
    load()
    fresh_source()
    with tuned() as mirror:
        path = file_of(mirror)
        assert path.stat().st_mode & 0o777 == 0o400
        expect_errno(errno.EINVAL, partial(path.write_text, "0"))
        begin(mirror)

        def counted() -> bool:
            os.statvfs(mirror.mountpoint)
            return b"STATFS" in path.read_bytes()

        # A processor's first request is not counted if memory for it is not free at once.
        wait_for(counted, "a request that is counted")
        file = path.open("rb", buffering=0)
        assert b"STATFS" in file.read(PAGE)
    expect_errno(errno.ENODEV, partial(os.pread, file.fileno(), 4, 0))
    file.close()


def _kib(*names: str) -> int:
    """Return the sum of some fields of /proc/meminfo."""
    fields = Path("/proc/meminfo").read_text().split()
    return sum(int(fields[fields.index(f"{name}:") + 1]) for name in names)


def _charged_kib() -> float:
    """Return the slab memory that is charged to a memory cgroup."""
    lines = Path("/proc/slabinfo").read_text().splitlines()
    sizes = (line.split() for line in lines if line.startswith("kmalloc-cg-"))
    return sum(int(words[1]) * int(words[3]) for words in sizes) / 1024


def _work_on(mirrors: list[Mirror]) -> None:
    for mirror in mirrors:
        (mirror.mountpoint / "file").write_text("x")
        (mirror.mountpoint / "file").unlink()


def check_statistics_take_memory_when_they_are_read() -> dict[str, float]:
    """A mount takes no memory for them before, and then only for opcodes and CPUs in use.

    Returns KiB per mount: for each possible CPU, and charged slab memory.
    """
    load()
    fresh_source()
    mounts, found = 20, {}
    possible = int(Path("/sys/devices/system/cpu/possible").read_text().rpartition("-")[2]) + 1
    with ExitStack() as stack:
        before = _kib("Percpu")
        mirrors = [stack.enter_context(tuned(point=f"/mnt/{n}")) for n in range(mounts)]
        _work_on(mirrors)
        now = _kib("Percpu"), _charged_kib()
        found = {"possible": possible, "percpu_mounted": (now[0] - before) / mounts}
        # A mount's bdi has some counters there.
        assert found["percpu_mounted"] < 4 * possible, found
        assert [file_of(mirror).read_text() for mirror in mirrors] == [""] * mounts
        _work_on(mirrors)
        read_now = _kib("Percpu"), _charged_kib()
        assert all("CREATE" in read(mirror) for mirror in mirrors)
        found["percpu_read"] = (read_now[0] - now[0]) / mounts
        found["charged_read"] = round((read_now[1] - now[1]) / mounts, 1)
        lines = [len(read(mirror)) for mirror in mirrors]
        found["opcodes"] = sum(lines) / mounts
    assert found["percpu_read"] < 1, found
    assert 1 < found["charged_read"] < 32, found
    return found


def check_statistics_go_with_their_connection() -> None:
    """What is allocated for each mount is freed with it."""
    fresh_source()
    load()

    def counted() -> None:
        with tuned() as mirror:
            begin(mirror)
            _work_on([mirror])
            assert "CREATE" in read(mirror)

    for _ in range(5):
        counted()
    kinds = ("Percpu",) if KEEPS_FREED else ("Percpu", "SUnreclaim")
    before = _kib(*kinds)
    for _ in range(60):
        counted()
    assert _kib(*kinds) - before < 60 * 4
    unload()
    # The second name of a merged cache stays; with slub_debug no cache is merged.
    slabs = Path("/sys/kernel/slab").glob("fusetuned*")
    assert not [path.name for path in slabs if not path.is_symlink()]
