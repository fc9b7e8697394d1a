# SPDX-License-Identifier: GPL-2.0-or-later
"""mirrorfs does what its manual page says, shown on real mounts.

Counts and states are asserted, never speeds. A delay's and a bandwidth's lower bound is a state.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.native.mirror import BINARY, Mirror, mounted_at, open_files, unmount, wait_for
from tests.native.requirements import requires

pytestmark = requires()

ASAN = BINARY.with_name("mirrorfs-asan")
KIB = 1024
MIB = 1024 * KIB
NOBODY = 65534

Mount = Callable[..., Mirror]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


@pytest.fixture
def mountpoint(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "mnt"
    directory.mkdir()
    yield directory
    unmount(directory)


@pytest.fixture
def mount(source: Path, mountpoint: Path) -> Iterator[Mount]:
    """Mounts with the options given; all is gone after the test."""
    started: list[Mirror] = []

    def start(*options: str, binary: Path | None = None) -> Mirror:
        mirror = Mirror(source, mountpoint, *options, binary=binary)
        started.append(mirror)
        return mirror

    yield start
    for mirror in started:
        mirror.__exit__(None, None, None)
    assert mounted_at(mountpoint) is None


def run(*arguments: str | Path, binary: Path = BINARY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(binary), *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )


@contextmanager
def serving(mountpoint: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server with just these arguments; must end well by SIGTERM."""
    server = subprocess.Popen([str(BINARY), "-f", *map(str, arguments), str(mountpoint)])
    try:
        wait_for(lambda: mounted_at(mountpoint) is not None, "mount")
        yield server
        server.terminate()
        assert server.wait(20) == 0
        assert mounted_at(mountpoint) is None
    finally:
        server.kill()
        server.wait(20)


def libfuse_version() -> tuple[int, ...]:
    found = re.search(r"libfuse (\d+)\.(\d+)", run("--version").stdout)
    assert found
    return tuple(map(int, found.groups()))


def write_all(path: Path, *chunks: bytes, flags: int = 0) -> None:
    """Each chunk by one write(2)."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        for chunk in chunks:
            assert os.write(fd, chunk) == len(chunk)
    finally:
        os.close(fd)


def direct_io(path: Path, size: int, offset: int, write: bool = False) -> None:
    """One O_DIRECT read or write of whole pages."""
    fd = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_DIRECT)
    try:
        with mmap.mmap(-1, size) as memory:
            call = os.pwritev if write else os.preadv
            assert call(fd, [memory], offset) == size
    finally:
        os.close(fd)


def in_parallel(count: int, work: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(work, index) for index in range(count)]:
            future.result(timeout=60)


# What a POSIX program expects of a directory. Each gets an empty directory on the mount.


def check_rename_over_open_file(root: Path) -> None:
    (root / "old").write_bytes(b"old")
    (root / "new").write_bytes(b"new")
    with (root / "old").open("rb") as old:
        (root / "new").rename(root / "old")
        assert old.read() == b"old"
    assert (root / "old").read_bytes() == b"new"
    assert os.listdir(root) == ["old"]


def check_rename_flags(root: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    one, two = root / "one", root / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    at_fdcwd, noreplace, exchange = -100, 1, 2
    names = (at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(two))
    assert libc.renameat2(*names, noreplace) == -1
    assert ctypes.get_errno() == errno.EEXIST
    assert libc.renameat2(*names, exchange) == 0
    assert (one.read_bytes(), two.read_bytes()) == (b"2", b"1")


def check_unlinked_open_file(root: Path) -> None:
    with (root / "gone").open("w+b", buffering=0) as file:
        file.write(b"before")
        (root / "gone").unlink()
        file.write(b" after")
        file.truncate(9)
        os.fchmod(file.fileno(), 0o600)
        file.seek(0)
        assert file.read() == b"before af"
        assert os.fstat(file.fileno()).st_nlink == 0
        # The name is free for another file meanwhile.
        (root / "gone").write_bytes(b"second")
        assert (root / "gone").stat().st_ino != os.fstat(file.fileno()).st_ino
    assert (root / "gone").read_bytes() == b"second"


def check_hard_links(root: Path) -> None:
    (root / "a").write_bytes(b"x")
    os.link(root / "a", root / "b")
    assert (root / "a").stat().st_ino == (root / "b").stat().st_ino
    assert (root / "b").stat().st_nlink == 2
    with (root / "b").open("ab") as file:
        file.write(b"y")
    (root / "a").unlink()
    assert (root / "b").read_bytes() == b"xy"
    assert (root / "b").stat().st_nlink == 1


def check_symlinks(root: Path) -> None:
    (root / "target").write_bytes(b"t")
    (root / "link").symlink_to("target")
    assert os.readlink(root / "link") == "target"
    assert (root / "link").read_bytes() == b"t"
    os.link(root / "link", root / "second", follow_symlinks=False)
    assert (root / "second").is_symlink()
    os.utime(root / "link", ns=(10**18, 10**18), follow_symlinks=False)
    assert (root / "link").lstat().st_mtime_ns == 10**18
    assert (root / "target").stat().st_mtime_ns != 10**18
    (root / "dangling").symlink_to("n" * 4000)
    assert len(os.readlink(root / "dangling")) == 4000


def check_append(root: Path) -> None:
    log = root / "log"
    log.write_bytes(b"0")
    with log.open("ab", buffering=0) as first, log.open("ab", buffering=0) as second:
        for _ in range(5):
            first.write(b"1")
            second.write(b"2")
    assert log.read_bytes() == b"0" + b"12" * 5


def check_truncate(root: Path) -> None:
    file = root / "file"
    file.write_bytes(b"0123456789")
    os.truncate(file, 4)
    assert file.read_bytes() == b"0123"
    with file.open("r+b") as opened:
        opened.truncate(6)
    assert file.read_bytes() == b"0123\0\0"
    os.close(os.open(file, os.O_WRONLY | os.O_TRUNC))
    assert file.stat().st_size == 0


def check_write_only_middle(root: Path) -> None:
    file = root / "file"
    file.write_bytes(b"a" * 10000)
    fd = os.open(file, os.O_WRONLY)
    os.pwrite(fd, b"BBB", 5000)
    os.close(fd)
    assert file.read_bytes() == b"a" * 5000 + b"BBB" + b"a" * 4997


def check_extended_attributes(root: Path) -> None:
    file = root / "file"
    file.touch()
    os.setxattr(file, "user.one", b"1")
    os.setxattr(file, "user.two", b"\0" * 1000)
    os.setxattr(file, "user.empty", b"")
    assert sorted(os.listxattr(file)) == ["user.empty", "user.one", "user.two"]
    assert os.getxattr(file, "user.two") == b"\0" * 1000
    assert os.getxattr(file, "user.empty") == b""
    with pytest.raises(FileExistsError):
        os.setxattr(file, "user.one", b"", os.XATTR_CREATE)
    os.removexattr(file, "user.one")
    with pytest.raises(OSError, match="No data available"):
        os.getxattr(file, "user.one")


def check_shared_mmap(root: Path) -> None:
    with (root / "mapped").open("w+b") as file:
        file.truncate(64 * KIB)
        with mmap.mmap(file.fileno(), 64 * KIB) as memory:
            memory[40000:40004] = b"mmap"
            memory.flush()
    assert (root / "mapped").read_bytes()[40000:40004] == b"mmap"


def check_many_names(root: Path) -> None:
    names = {f"{'n' * 60}-{number}" for number in range(1000)}
    for name in names:
        (root / name).touch()
    assert set(os.listdir(root)) == names
    assert {entry.name for entry in os.scandir(root) if entry.stat().st_size == 0} == names
    directory = os.open(root, os.O_RDONLY)
    try:
        assert len(os.listdir(directory)) == len(os.listdir(directory)) == 1000
        os.fsync(directory)
    finally:
        os.close(directory)
    for name in names:
        (root / name).unlink()
    assert os.listdir(root) == []


def check_sparse_file(root: Path) -> None:
    with (root / "sparse").open("w+b", buffering=0) as file:
        file.truncate(4 * MIB)
        os.pwrite(file.fileno(), b"data", 2 * MIB)
        os.fsync(file.fileno())
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) == 2 * MIB
        assert 2 * MIB < os.lseek(file.fileno(), 2 * MIB, os.SEEK_HOLE) <= 2 * MIB + 64 * KIB
        os.posix_fallocate(file.fileno(), 0, 5 * MIB)
        assert os.fstat(file.fileno()).st_size == 5 * MIB


def check_copy_file_range(root: Path) -> None:
    (root / "from").write_bytes(os.urandom(100000))
    with (root / "from").open("rb") as there, (root / "to").open("w+b") as here:
        copied = 0
        while copied < 100000:
            copied += os.copy_file_range(there.fileno(), here.fileno(), 100000 - copied)
        os.fdatasync(here.fileno())
    assert (root / "to").read_bytes() == (root / "from").read_bytes()


def check_attributes(root: Path) -> None:
    file = root / "file"
    file.touch()
    os.chown(file, 1234, 4321)
    file.chmod(0o6711)
    os.utime(file, ns=(1_000_000_001, 2_000_000_002))
    found = file.stat()
    assert (found.st_uid, found.st_gid) == (1234, 4321)
    assert stat.S_IMODE(found.st_mode) == 0o6711
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    os.utime(file)
    assert file.stat().st_mtime_ns > 10**18
    assert os.statvfs(root).f_blocks > 0


def check_set_id_bits_end_with_a_write(root: Path) -> None:
    program = root / "program"
    program.touch()
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o4755)
    root.chmod(0o777)
    # Root's own writes keep the bit; it has CAP_FSETID.
    subprocess.run(["/bin/sh", "-c", f"echo x >> '{program}'"], check=True, user=NOBODY, timeout=20)
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


def check_special_files(root: Path) -> None:
    os.mkfifo(root / "fifo", 0o640)
    assert stat.S_ISFIFO((root / "fifo").stat().st_mode)
    os.mknod(root / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    assert (root / "null").stat().st_rdev == os.makedev(1, 3)
    (root / "directory").mkdir(0o1770)
    assert stat.S_IMODE((root / "directory").stat().st_mode) == 0o1750
    (root / "directory" / "full").touch()
    with pytest.raises(OSError, match="not empty"):
        (root / "directory").rmdir()
    (root / "directory" / "full").unlink()
    (root / "directory").rmdir()
    with pytest.raises(FileNotFoundError):
        (root / "directory").stat()


def check_exclusive_create(root: Path) -> None:
    os.close(os.open(root / "lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    with pytest.raises(FileExistsError):
        os.open(root / "lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


POSIX_CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


def do_all(mirror: Mirror) -> None:
    """Every check, each in its own directory of the mount, and a look at the source after it."""
    mirror.source.chmod(0o755)
    for check in POSIX_CHECKS:
        root = mirror.mountpoint / check.__name__
        root.mkdir()
        check(root)
        on_source = mirror.source / check.__name__
        assert sorted(os.listdir(root)) == sorted(os.listdir(on_source))


@pytest.fixture
def reachable(tmp_path: Path) -> None:
    """Lets other users reach the mount: pytest keeps its directories to itself."""
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        directory.chmod(0o755)


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
    """Workers make, link, rename over, list and remove the same few names at once."""

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
    """Each inode holds a descriptor, so a wrong lookup count shows as one that stays."""
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


# Counters


def test_requests_are_counted(mount: Mount) -> None:
    mirror = mount("no_xattr")
    mirror.reset_counters()
    write_all(mirror.mountpoint / "file", b"x" * MIB, b"y" * 5000)
    counted = mirror.counters()
    ops = counted["ops"]
    assert ops["CREATE"]["count"] == 1
    assert ops["LOOKUP"] | {"in_flight": 0} == ops["LOOKUP"]
    assert (ops["LOOKUP"]["count"], ops["LOOKUP"]["errors"]) == (1, 1)
    assert ops["WRITE"]["count"] == 2
    assert ops["WRITE"]["bytes"] == MIB + 5000
    assert ops["WRITE"]["largest_bytes"] == MIB
    assert ops["WRITE"]["most_in_flight"] == 1
    assert ops["FLUSH"]["count"] == 1
    assert counted["write_files"] == {
        "file": {"count": 2, "bytes": MIB + 5000, "largest_bytes": MIB, "most_in_flight": 1}
    }
    (mirror.mountpoint / "directory").mkdir()
    os.rename(mirror.mountpoint / "file", mirror.mountpoint / "directory" / "moved")
    (mirror.mountpoint / "directory" / "moved").unlink()
    ops = mirror.counters()["ops"]
    for op in ("MKDIR", "RENAME", "UNLINK"):
        assert (ops[op]["count"], ops[op]["errors"]) == (1, 0), op

    def is_at_rest() -> bool:
        ops = mirror.counters()["ops"]
        return all(numbers["in_flight"] == 0 for numbers in ops.values())

    # A RELEASE goes out after close(2) has returned, and what is answered is counted as such after.
    wait_for(is_at_rest, "no request in flight")


def test_reads_are_counted_at_their_size(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * 4 * MIB)
    mirror = mount()
    direct_io(mirror.mountpoint / "file", 512 * KIB, 0)
    direct_io(mirror.mountpoint / "file", 64 * KIB, MIB)
    read = mirror.counters()["ops"]["READ"]
    assert (read["count"], read["bytes"]) == (2, 576 * KIB)
    assert read["largest_bytes"] == 512 * KIB


@pytest.mark.parametrize(("max_write", "requests"), [("64K", 16), ("4096", 256), ("1M", 1)])
def test_max_write(mount: Mount, max_write: str, requests: int) -> None:
    mirror = mount(f"max_write={max_write}")
    write_all(mirror.mountpoint / "file", b"x" * MIB)
    counted = mirror.counters()
    assert counted["init"]["max_write"] == MIB // requests
    assert counted["ops"]["WRITE"]["count"] == requests
    assert counted["ops"]["WRITE"]["largest_bytes"] == MIB // requests


def test_init_values_reach_the_kernel(mount: Mount) -> None:
    mirror = mount("max_background=33", "max_readahead=64K", "writeback", "splice=off")
    init = mirror.counters()["init"]
    assert (init["max_background"], init["congestion_threshold"]) == (33, 24)
    assert init["max_readahead"] == 64 * KIB
    assert (init["proto_major"], init["proto_minor"] >= 31) == (7, True)
    assert "writeback_cache" in init["want"]
    assert not [name for name in init["want"] if name.startswith("splice")]
    assert set(init["want"]) <= set(init["capable"])
    assert Path(f"/sys/class/bdi/{mirror.bdi}/read_ahead_kb").read_text() == "64\n"


def test_reset_sets_all_to_zero(mount: Mount) -> None:
    mirror = mount()
    write_all(mirror.mountpoint / "kept", b"x")
    write_all(mirror.mountpoint / "gone", b"x")
    (mirror.mountpoint / "gone").unlink()
    assert set(mirror.counters()["write_files"]) == {"kept", "gone"}

    def at_rest() -> bool:
        counted = mirror.counters()
        asked = [counted["ops"][name]["count"] for name in ("RELEASE", "FORGET")]
        return asked == [2, 1] and counted["all"]["in_flight"] == 0

    wait_for(at_rest, "what nobody waits for")
    mirror.reset_counters()
    counted = mirror.counters()
    assert counted["resets"] == 1
    assert counted["all"]["count"] == 0
    assert counted["write_files"] == {}
    assert all(not any(numbers.values()) for numbers in counted["ops"].values())


def test_files_are_counted_by_path(mount: Mount) -> None:
    mirror = mount()
    (mirror.mountpoint / "directory").mkdir()
    strange = os.fsdecode(b'directory/\xff\xc3\xa4"\\\n\xed\xa0\x80')
    write_all(mirror.mountpoint / strange, b"123")
    write_all(mirror.mountpoint / "before", b"12")
    (mirror.mountpoint / "before").rename(mirror.mountpoint / "after")
    for _ in range(3):  # three files of one name after another
        write_all(mirror.mountpoint / "again", b"1234", b"5")
        (mirror.mountpoint / "again").unlink()

    def is_forgotten() -> bool:
        return f"{mirror.source}/again (deleted)" not in open_files(mirror.process.pid)

    wait_for(is_forgotten, "FORGET of the removed")
    files = mirror.counters()["write_files"]
    assert {os.fsencode(path) for path in files} == {os.fsencode(strange), b"after", b"again"}
    assert files["again"] == {
        "count": 6,
        "bytes": 15,
        "largest_bytes": 4,
        "most_in_flight": 1,
    }


def test_readers_see_whole_documents(source: Path, mountpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "counters.json"
    path.write_text("left over")
    with serving(mountpoint, "-o", f"counters={path}", source) as server:
        wait_for(lambda: path.read_text() != "left over", "the first document")
        seen = []

        def read() -> bool:
            server.send_signal(signal.SIGUSR1)
            seen.append(json.loads(path.read_bytes())["sequence"])
            return len(seen) >= 300 and seen[-1] > seen[0]

        wait_for(read, "a later document")
        assert seen == sorted(seen)
    last = json.loads(path.read_bytes())
    assert (last["final"], last["sequence"] > seen[-1]) == (True, True)
    assert [entry.name for entry in tmp_path.glob("counters*")] == ["counters.json"]


# Faults


def test_faults_of_writes(mount: Mount, source: Path) -> None:
    """The third fails, the fifth is short; then the sixth and the tenth, and so on."""
    mirror = mount("direct_io", "fail_every=3", "short_every=5")
    done: list[int] = []
    fd = os.open(mirror.mountpoint / "file", os.O_WRONLY | os.O_CREAT)
    for number in range(10):
        done.append(0)
        with suppress(OSError):
            done[-1] = os.pwrite(fd, b"x" * 1000, number * 1000)
    os.close(fd)
    assert done == [1000, 1000, 0, 1000, 500, 0, 1000, 1000, 0, 500]
    expected = b"".join((b"x" * size).ljust(1000, b"\0") for size in done)[:-500]
    assert (source / "file").read_bytes() == expected
    assert mirror.counters()["ops"]["WRITE"]["errors"] == 3


# Throttle


def test_served_limits_what_is_served_at_once(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * MIB)
    mirror = mount("delay=20ms", "served=4", "max_background=64", "threads=1")
    in_parallel(16, lambda index: direct_io(mirror.mountpoint / "file", 4096, index * 4096))
    throttle = mirror.counters()["throttle"]
    assert throttle["most_in_service"] == 4
    assert 1 <= throttle["most_waiting"] <= 12


def test_unlimited_service_serves_all_at_once(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * MIB)
    mirror = mount("read_delay=2s", "max_background=64")
    in_parallel(16, lambda index: direct_io(mirror.mountpoint / "file", 4096, index * 4096))
    counted = mirror.counters()
    assert counted["ops"]["READ"]["most_in_flight"] == 16
    assert counted["throttle"] == {"most_in_service": 16, "most_waiting": 0}


def test_each_request_takes_its_delay(mount: Mount) -> None:
    mirror = mount("delay=2ms", "timeout=0")
    (mirror.mountpoint / "file").touch()
    mirror.reset_counters()
    begun = monotonic()
    for _ in range(100):
        os.stat(mirror.mountpoint / "file")
    elapsed = monotonic() - begun
    requests = mirror.counters()["all"]["count"]
    assert requests >= 100
    assert elapsed >= requests * 0.002


def test_served_requests_queue_for_the_whole_delay(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * MIB)
    mirror = mount("read_delay=10ms", "served=2")
    begun = monotonic()
    in_parallel(8, lambda index: direct_io(mirror.mountpoint / "file", 4096, index * 4096))
    assert monotonic() - begun >= 8 / 2 * 0.010


def test_read_delay_is_for_reads_alone(mount: Mount) -> None:
    mirror = mount("delay=0s", "read_delay=1ms")
    write_all(mirror.mountpoint / "file", b"x" * 4096)
    assert mirror.counters()["throttle"]["most_in_service"] == 0
    direct_io(mirror.mountpoint / "file", 4096, 0)
    assert mirror.counters()["throttle"]["most_in_service"] == 1


def test_bandwidth_holds_for_reads_and_writes_together(mount: Mount, source: Path) -> None:
    (source / "there").write_bytes(b"x" * 2 * MIB)
    mirror = mount("bandwidth=16M")
    begun = monotonic()
    in_parallel(
        2,
        lambda index: (
            (mirror.mountpoint / "there").read_bytes()
            if index
            else write_all(mirror.mountpoint / "here", *[b"x" * 128 * KIB] * 16)
        ),
    )
    # 4 MiB at 16 MiB/s; the link may catch up 2 ms.
    assert monotonic() - begun >= 4 / 16 - 0.002


def test_end_does_not_wait_for_delays(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * MIB)
    mirror = mount("read_delay=60s", "served=1")
    readers = [
        threading.Thread(target=lambda: _ignore_errors(mirror.mountpoint / "file"), daemon=True)
        for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    wait_for(lambda: mirror.counters()["ops"]["READ"]["in_flight"] >= 1, "a READ in flight")
    assert mirror.stop() == 0
    for reader in readers:
        reader.join(20)
        assert not reader.is_alive()
    assert mounted_at(mirror.mountpoint) is None


def _ignore_errors(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError:
        return


# Caching options


def test_writeback_gathers_small_writes(mount: Mount) -> None:
    mirror = mount("writeback")
    fd = os.open(mirror.mountpoint / "file", os.O_WRONLY | os.O_CREAT)
    for _ in range(256):
        os.write(fd, b"x" * KIB)
    os.fsync(fd)
    os.close(fd)
    write = mirror.counters()["ops"]["WRITE"]
    assert write["bytes"] >= 256 * KIB
    assert write["count"] < 16


@pytest.mark.parametrize(("options", "reads_again"), [([], True), (["keep_cache"], False)])
def test_keep_cache(mount: Mount, source: Path, options: list[str], reads_again: bool) -> None:
    (source / "file").write_bytes(b"x" * 64 * KIB)
    mirror = mount("timeout=60", *options)
    (mirror.mountpoint / "file").read_bytes()
    mirror.reset_counters()
    (mirror.mountpoint / "file").read_bytes()
    assert (mirror.counters()["ops"]["READ"]["count"] > 0) == reads_again


def test_direct_io_reads_each_time(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * 64 * KIB)
    mirror = mount("direct_io")
    fd = os.open(mirror.mountpoint / "file", os.O_RDONLY)
    for _ in range(5):
        assert os.pread(fd, 1000, 500) == b"x" * 1000
    os.close(fd)
    read = mirror.counters()["ops"]["READ"]
    assert (read["count"], read["largest_bytes"]) == (5, 1000)


@pytest.mark.parametrize(("timeout", "asks"), [("0", True), ("0.02", True), ("60", False)])
def test_timeout(mount: Mount, source: Path, timeout: str, asks: bool) -> None:
    (source / "file").touch()
    mirror = mount(f"timeout={timeout}")
    os.stat(mirror.mountpoint / "file")
    mirror.reset_counters()
    for _ in range(3):
        sleep(0.05)
        os.stat(mirror.mountpoint / "file")
    ops = mirror.counters()["ops"]
    assert (ops["LOOKUP"]["count"] + ops["GETATTR"]["count"] >= 3) == asks


def test_entry_timeout_is_for_names_alone(mount: Mount, source: Path) -> None:
    (source / "file").touch()
    mirror = mount("timeout=60", "entry_timeout=0")
    os.stat(mirror.mountpoint / "file")
    mirror.reset_counters()
    for _ in range(3):
        os.stat(mirror.mountpoint / "file")
    ops = mirror.counters()["ops"]
    assert (ops["LOOKUP"]["count"], ops["GETATTR"]["count"]) == (3, 0)


@pytest.mark.parametrize(("options", "asked"), [((), 3), (("negative_timeout=60",), 1)])
def test_negative_timeout(mount: Mount, options: tuple[str, ...], asked: int) -> None:
    mirror = mount("timeout=60", *options)
    os.stat(mirror.mountpoint)
    mirror.reset_counters()
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            os.stat(mirror.mountpoint / "none")
    assert mirror.counters()["ops"]["LOOKUP"]["count"] == asked
    (mirror.mountpoint / "none").touch()
    assert (mirror.mountpoint / "none").exists()


def test_no_xattr_asks_once(mount: Mount) -> None:
    mirror = mount("no_xattr")
    for _ in range(10):
        write_all(mirror.mountpoint / "file", b"x")
    assert mirror.counters()["ops"]["GETXATTR"]["count"] == 1


def two_direct_writers(mirror: Mirror) -> dict[str, Any]:
    """The counters of two writers of one file, at once, inside its size."""
    (mirror.source / "file").write_bytes(b"x" * MIB)

    def work(index: int) -> None:
        for step in range(4):
            offset = index * 512 * KIB + step * 4096
            direct_io(mirror.mountpoint / "file", 4096, offset, write=True)

    in_parallel(2, work)
    return mirror.counters()


def test_direct_writes_to_one_file_are_serial(mount: Mount) -> None:
    counted = two_direct_writers(mount("write_delay=30ms"))
    assert counted["write_files"]["file"]["count"] == 8
    assert counted["write_files"]["file"]["most_in_flight"] == 1


def test_parallel_direct_writes(mount: Mount, source: Path, mountpoint: Path) -> None:
    if libfuse_version() < (3, 15):
        refused(1, "libfuse 3.15", "-o", "parallel_direct_writes", source, mountpoint)
        return
    counted = two_direct_writers(mount("parallel_direct_writes", "write_delay=30ms"))
    assert counted["write_files"]["file"]["most_in_flight"] == 2


def test_passthrough(mount: Mount, source: Path, mountpoint: Path) -> None:
    if libfuse_version() < (3, 17):
        refused(1, "libfuse 3.17", "-o", "passthrough", source, mountpoint)
        return
    mirror = mount("passthrough")
    write_all(mirror.mountpoint / "file", b"x" * MIB)
    assert (mirror.mountpoint / "file").read_bytes() == b"x" * MIB
    ops = mirror.counters()["ops"]
    assert (ops["CREATE"]["count"], ops["READ"]["count"], ops["WRITE"]["count"]) == (1, 0, 0)


# Users


def as_nobody(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )


@pytest.mark.usefixtures("reachable")
def test_what_a_caller_makes_is_the_callers(mount: Mount, source: Path) -> None:
    source.chmod(0o777)
    (source / "shared").mkdir()
    os.chown(source / "shared", 0, 77)
    (source / "shared").chmod(0o2777)
    mirror = mount("allow_other")
    root = mirror.mountpoint
    made = as_nobody(
        f"cd '{root}' && umask 022 && echo x > file && mkdir directory && ln -s file link &&"
        " mkfifo fifo && touch shared/file && mkdir shared/directory"
    )
    assert made.returncode == 0, made.stderr
    for name in ("file", "directory", "link", "fifo"):
        found = (source / name).lstat()
        assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY), name
    # A set-group-id directory gives its own group.
    for name in ("shared/file", "shared/directory"):
        found = (source / name).stat()
        assert (found.st_uid, found.st_gid) == (NOBODY, 77), name
    # An existing file stays its owner's, also by O_CREAT.
    (source / "roots").write_text("r")
    (source / "roots").chmod(0o666)
    assert as_nobody(f"echo x >> '{root}/roots'").returncode == 0
    assert (source / "roots").stat().st_uid == 0


@pytest.mark.usefixtures("reachable")
def test_permissions_hold_for_other_users(mount: Mount, source: Path) -> None:
    (source / "secret").write_text("s")
    (source / "secret").chmod(0o600)
    mirror = mount("allow_other")
    assert "Permission denied" in as_nobody(f"cat '{mirror.mountpoint}/secret'").stderr
    assert "Permission denied" in as_nobody(f"touch '{mirror.mountpoint}/new'").stderr
    assert not (source / "new").exists()


# Start and end


def refused(status: int, reason: str, *arguments: str | Path) -> None:
    mountpoint = Path(arguments[-1])
    try:
        result = run("-f", *arguments)  # one that is not refused after all ends by the time limit
        assert result.returncode == status, result.stderr
        assert reason in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""
        assert mounted_at(mountpoint) is None
    finally:
        unmount(mountpoint)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("max_write=4095", "give 4K to"),
        ("max_write=1T", "give 4K to"),
        ("max_write=64KB", "give 4K to"),
        ("max_readahead=", "give 4K to"),
        ("max_background=0", "give 1 to 65535"),
        ("max_background=65536", "give 1 to 65535"),
        ("max_background=1.0", "give 1 to 65535"),
        ("threads=-1", "give 1 to"),
        ("served=0,delay=1ms", "give 1 to 1024"),
        ("served=4", "give delay="),
        ("fail_every=0", "give 1 to 4294967295"),
        ("delay=5", "us, ms or s"),
        ("delay=1.ms", "us, ms or s"),
        ("delay=61s", "us, ms or s"),
        ("delay=99999999999999999999s", "us, ms or s"),
        ("timeout=soon", "seconds"),
        ("entry_timeout=soon", "seconds"),
        ("negative_timeout=-1", "seconds"),
        ("atomic_open=yes", "off, echo or on"),
        ("bandwidth=1K", "bytes a second"),
        ("splice=move", "splice=move"),
        ("splice=read+", "splice=read+"),
        ("writeback=1", "writeback=1"),
        ("no_such_option", "no_such_option"),
        ("writeback,direct_io", "leave one out"),
        ("passthrough,writeback", "leave one out"),
        ("counters=", "counters="),
        ("tuned,allow_other", "give it in tuned_options="),
        ("tuned,clone_fd", "leave one out"),
        ("tuned_options=max_pages=64", "give tuned too"),
        ("tuned,tuned_options=", "joined by +"),
    ],
)
def test_bad_options_are_refused(source: Path, mountpoint: Path, option: str, reason: str) -> None:
    refused(2, reason, "-o", option, source, mountpoint)


def test_bad_places_are_refused(source: Path, mountpoint: Path, tmp_path: Path) -> None:
    inside = source / "inside"
    inside.mkdir()
    file = tmp_path / "file"
    file.touch()
    refused(2, "MOUNTPOINT: missing", source)
    refused(2, "one argument too many", source, mountpoint, inside)
    refused(2, "inside MOUNTPOINT", inside, source)
    refused(2, "inside SOURCE", source, inside)
    refused(2, "inside MOUNTPOINT", source, source)
    refused(2, "inside MOUNTPOINT", "-o", f"counters={mountpoint}/c", source, mountpoint)
    refused(1, "No such file", "-o", f"counters={tmp_path}/no/c", source, mountpoint)
    refused(1, "No such file", tmp_path / "missing", mountpoint)
    refused(1, "Not a directory", source, file)


def test_help_names_every_option() -> None:
    manual = (BINARY.parents[1] / "man" / "mirrorfs.1").read_text()
    shown = run("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    options = re.findall(r"^    -o (\w+)", shown.stdout.split("Options of libfuse")[0], re.M)
    assert len(set(options)) >= 18
    for option in options:
        assert f"Cm {option}" in manual, option


def test_background_start_is_ready_and_final_document_is_written(
    source: Path, mountpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Relative names must survive the change to /.
    monkeypatch.chdir(tmp_path)
    counters = tmp_path / "counters.json"
    (source / "file").write_text("x")
    try:
        started = run("-o", "counters=counters.json", "source", "mnt")
        assert (started.returncode, started.stderr) == (0, "")
        assert mounted_at(mountpoint) is not None
        assert (mountpoint / "file").read_text() == "x"
    finally:
        unmount(mountpoint)
    wait_for(lambda: bool(json.loads(counters.read_bytes())["final"]), "the final document")
    document = json.loads(counters.read_bytes())
    assert document["ops"]["READ"]["count"] == 1
    # Nobody reaps it here but init, so a zombie counts as ended.
    wait_for(lambda: not running(document["pid"]), "the server's end")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_cleanly(mount: Mount, sig: signal.Signals) -> None:
    mirror = mount()
    write_all(mirror.mountpoint / "file", b"x")
    # A busy mount ends all the same.
    fd = os.open(mirror.mountpoint / "file", os.O_RDONLY)
    mirror.process.send_signal(sig)
    assert mirror.process.wait(20) == 0
    with pytest.raises(OSError, match="not connected"):
        os.close(fd)
    assert mounted_at(mirror.mountpoint) is None
    last = mirror.counters()
    assert last["final"] is True
    assert last["ops"]["WRITE"]["count"] == 1


def test_one_thread_serves_and_ends(source: Path, mountpoint: Path) -> None:
    with serving(mountpoint, "-s", source):
        write_all(mountpoint / "file", b"x")
        assert (source / "file").read_bytes() == b"x"


def test_a_crash_leaves_nothing_that_hinders_the_next_start(mount: Mount) -> None:
    mirror = mount()
    write_all(mirror.mountpoint / "file", b"x")
    mirror.kill()
    with pytest.raises(OSError, match="not connected"):
        os.stat(mirror.mountpoint / "file")
    mirror.unmount()
    assert mounted_at(mirror.mountpoint) is None
    again = mount()
    assert (again.mountpoint / "file").read_bytes() == b"x"
