# SPDX-License-Identifier: GPL-2.0-or-later
"""Mount options that override the server: which requests it gets, and when they are refused."""

import errno
import mmap
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.kernel.guest import raw
from tests.kernel.guest.plain import (
    ASYNC_READ,
    BIG_WRITES,
    MAX_PAGES,
    POSIX_ACL,
    Plain,
    opened,
    serving,
)
from tests.kernel.guest.rig import KERNEL, PAGE, expect_errno, fresh_source, load, run, tuned

_HALF, _MIB = 1 << 19, 1 << 20
#: Every option, with values that differ from the kernel's.
_EVERY = (
    *("async_dio", "async_read", "attr_timeout=70", "big_writes", "congestion_threshold=70"),
    *("entry_timeout=71", "keep_cache", "max_background=99", "max_readahead=1048576"),
    *("negative_timeout=72", "no_access", "no_xattr", "parallel_dirops", "request_timeout=900"),
    "writeback_cache",
)


@contextmanager
def _kernel_log() -> Iterator[Callable[[], str]]:
    """Yield a function that returns what the kernel has logged since the start."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)

    def said() -> str:
        lines = ""
        try:
            while True:
                lines += os.read(log, 8192).decode(errors="replace")
        except BlockingIOError:
            return lines

    try:
        yield said
    finally:
        os.close(log)


def _init(server: Plain) -> dict[str, list[str]]:
    """Return the lines of the connection's file "init", by their first word."""
    lines = (server.control / "init").read_text().splitlines()
    return {"forced": [], **{line.split()[0]: line.split()[1:] for line in lines}}


def _options(point: Path) -> list[str]:
    """Return a mount's options from /proc/mounts."""
    lines = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next(words[3].split(",") for words in lines if words[1] == str(point))


def check_forced_options_show() -> None:
    """They are in /proc/mounts, and in "init" beside the server's own flags; none by default."""
    load()
    for flags in (0, ASYNC_READ | BIG_WRITES):
        server = Plain(flags=flags)
        with serving(server, *_EVERY) as point:
            assert set(_EVERY) <= set(_options(point)), _options(point)
            said = _init(server)
            asked = ["async_read", "big_writes"] if flags else []
            assert said["flags"] == asked, said
            assert said["forced"] == [option for option in _EVERY if option not in asked], said
            # A remount changes none of them, whether it succeeds or not.
            run("mount", "-o", "remount,attr_timeout=5", point, check=False)
            assert set(_EVERY) <= set(_options(point)), _options(point)
    with serving(server := Plain(flags=ASYNC_READ)) as point:
        assert (_init(server)["flags"], _init(server)["forced"]) == (["async_read"], [])
        names = {option.partition("=")[0] for option in _EVERY}
        assert not names & {option.partition("=")[0] for option in _options(point)}


def check_forced_options_are_refused() -> None:
    """For values out of range, without CAP_SYS_ADMIN, and if INIT rules them out."""
    load("userns_mounts=Y")
    point = Path("/mnt/plain")
    point.mkdir(exist_ok=True)

    def mount_in_namespace(options: str) -> None:
        raw.unshare(raw.CLONE_NEWUSER | raw.CLONE_NEWNS)
        for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
            Path(f"/proc/self/{name}").write_text(text)
        raw.mount(os.open("/dev/fusetuned", os.O_RDWR), point, options)

    with _kernel_log() as said, Path("/dev/fusetuned").open("r+b", buffering=0) as device:
        for option in (
            *("attr_timeout=0", "max_background=65536", "max_readahead=4095", "big_writes=1"),
            *("entry_timeout=x", "negative_timeout", "max_readahead=2147483648"),
            *("congestion_threshold=0", "no_xattr=0"),
        ):
            expect_errno(errno.EINVAL, partial(raw.mount, device.fileno(), point, f",{option}"))
        lines = said()
        assert "max_background may be 1 to 65535" in lines, lines
        assert "max_readahead may be 4096 to 1073741824" in lines, lines
        for option in _EVERY:
            assert raw.in_child(partial(mount_in_namespace, f",{option}")) == errno.EPERM, option
        assert "big_writes overrides the server, which needs CAP_SYS_ADMIN" in said()
        assert raw.in_child(partial(mount_in_namespace, "")) == 0


def check_forced_options_that_init_rules_out() -> None:
    """The mount works without them; "init" does not name them, and the kernel log says why."""
    load()
    flags = ("async_read", "big_writes", "async_dio", "parallel_dirops")
    for server, options, reason in (
        (Plain(max_write=PAGE), ("big_writes",), "the server takes writes of one page"),
        (Plain(minor=5), flags, "the server's protocol is older than 7.6"),
        (Plain(minor=38, flags=POSIX_ACL), ("no_xattr",), "the server has POSIX ACLs"),
    ):
        server.add("file", bytes(8 * PAGE))
        with _kernel_log() as said, serving(server, *options, "attr_timeout=9") as point:
            lines = said()
            for option in options:
                assert f"{option} is not in force: {reason}" in lines, (option, lines)
            assert _init(server)["forced"] == ["attr_timeout=9"]
            assert len((point / "file").read_bytes()) == 8 * PAGE


def _write_sizes(server: Plain, *options: str) -> list[int]:
    """Return the bytes of each WRITE for one write(2) of 32 pages."""
    server.add("file", bytes(PAGE))
    with serving(server, *options) as point, opened(point / "file", os.O_WRONLY) as fd:
        assert os.write(fd, b"x" * 32 * PAGE) == 32 * PAGE
    assert server.files["file"].data == b"x" * 32 * PAGE
    return server.sizes["WRITE"]


def check_big_writes() -> None:
    """One WRITE of at most the server's max_write, instead of one for each page."""
    load()
    assert _write_sizes(Plain()) == [PAGE] * 32
    assert _write_sizes(Plain(), "big_writes") == [32 * PAGE]
    assert _write_sizes(Plain(max_write=8 * PAGE), "big_writes") == [8 * PAGE] * 4
    assert _write_sizes(Plain(max_write=PAGE), "big_writes") == [PAGE] * 32


def _asked(server: Plain, action: Callable[[], object], *ops: str) -> list[int]:
    """Return how many requests of each kind ten calls of ``action`` send."""
    server.counts.clear()
    for _ in range(10):
        action()
    return [server.counts[op] for op in ops]


def _missing(path: Path) -> None:
    expect_errno(errno.ENOENT, path.stat)


def check_timeouts() -> None:
    """Names, attributes and missing names are asked for once; on stock each time."""
    load()
    server = Plain()
    server.add("file", b"data")
    with serving(server) as point, opened(point / "file", os.O_RDONLY) as fd:
        assert _asked(server, (point / "file").stat, "LOOKUP") == [10]
        assert _asked(server, partial(os.fstat, fd), "GETATTR") == [10]
        assert _asked(server, partial(_missing, point / "none"), "LOOKUP") == [10]
    with (
        serving(server, "attr_timeout=3600") as point,
        opened(point / "file", os.O_RDONLY) as fd,
    ):
        assert _asked(server, partial(os.fstat, fd), "GETATTR") == [0]
        assert _asked(server, (point / "file").stat, "LOOKUP") == [10]
        os.fchmod(fd, 0o600)
        assert os.fstat(fd).st_mode == 0o100600
        assert _asked(server, partial(os.fstat, fd), "GETATTR") == [0]
    with serving(server, "entry_timeout=3600") as point:
        assert _asked(server, (point / "file").stat, "LOOKUP", "GETATTR") == [1, 10]
        assert _asked(server, partial(_missing, point / "none"), "LOOKUP") == [10]
    with serving(server, "negative_timeout=3600") as point:
        assert _asked(server, partial(_missing, point / "none"), "LOOKUP") == [1]
        assert _asked(server, (point / "file").stat, "LOOKUP") == [10]
        (point / "none").write_bytes(b"made")
        assert (point / "none").read_bytes() == b"made"
    with serving(server, "attr_timeout=1") as point, opened(point / "file", os.O_RDONLY) as fd:
        time.sleep(1.2)
        assert os.fstat(fd).st_size == 4
        assert server.counts["GETATTR"] == 1


def check_keep_cache() -> None:
    """Pages survive an open only if size, mtime and ctime are unchanged."""
    load()
    first, second = os.urandom(16 * PAGE), os.urandom(16 * PAGE)

    def reads(path: Path, expected: bytes) -> int:
        server.counts.clear()
        assert path.read_bytes() == expected
        return server.counts["READ"]

    for option, kept in (("", False), ("keep_cache", True), ("keep_cache,attr_timeout=99", True)):
        server = Plain()
        file = server.add("file", first)
        with serving(server, *filter(None, [option])) as point:
            path = point / "file"
            assert reads(path, first) > 0
            for _ in range(3):
                assert (reads(path, first) == 0) == kept
                assert not kept or server.counts["GETATTR"] >= 1
            # Another client's changes: with the same size, then of the size only.
            file.data, file.mtime = bytearray(second), file.mtime + 1
            assert reads(path, second) > 0
            assert (reads(path, second) == 0) == kept
            del file.data[PAGE:]
            if "attr_timeout" not in option:  # otherwise the size is already known
                assert reads(path, second[:PAGE]) > 0
            # Our own.
            path.write_bytes(first)
            assert reads(path, first) >= 0
            assert file.data == first


def check_keep_cache_of_a_file_that_was_put_back() -> None:
    """Pages of a version in between are dropped, although size and mtime are the noted ones."""
    load()
    first, second = os.urandom(16 * PAGE), os.urandom(16 * PAGE)
    for option in ("", "attr_timeout=99", "writeback_cache"):
        server = Plain()
        file = server.add("file", first)
        with serving(server, "keep_cache", *filter(None, [option])) as point:
            path = point / "file"
            with opened(path, os.O_RDONLY) as fd:  # notes the first version
                file.data, file.mtime, file.ctime = bytearray(second), 2000, 2000
                assert os.pread(fd, len(second), 0) == second
            file.data, file.mtime, file.ctime = bytearray(first), 1000, 3000
            assert path.read_bytes() == first, option
            server.counts.clear()
            assert path.read_bytes() == first
            assert server.counts["READ"] == 0
    # A real file, whose ctime nobody can set.
    source = fresh_source() / "file"
    source.write_bytes(first)
    before = source.stat()
    with tuned(mount="keep_cache+attr_timeout=99") as mirror:
        path = mirror.mountpoint / "file"
        with opened(path, os.O_RDONLY) as fd:
            source.write_bytes(second)
            assert os.pread(fd, len(second), 0) == second
        source.write_bytes(first)
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.read_bytes() == first


def check_keep_cache_with_the_kernels_own_times() -> None:
    """With the writeback cache, the kernel's ctime is not the server's; pages survive even so."""
    load()
    data = os.urandom(16 * PAGE)
    server = Plain()
    file = server.add("file")
    with serving(server, "keep_cache", "writeback_cache") as point:
        path = point / "file"
        path.write_bytes(data)
        with opened(path, os.O_RDONLY):  # keeps the inode, and the kernel's times
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("1\n")
            for reads in (True, None, False, False):  # the second open may drop the pages
                server.counts.clear()
                assert path.read_bytes() == file.data == data
                assert reads in (None, server.counts["READ"] > 0)


def check_no_xattr_and_no_access() -> None:
    """Neither is sent; there are no xattrs, and access(2) leaves the decision to the request."""
    load()
    for options, asked in (((), True), (("no_xattr", "no_access"), False)):
        server = Plain()
        server.add("file", b"data")
        with serving(server, *options) as point:
            path = point / "file"
            with path.open("r+b", buffering=0) as file:
                for _ in range(10):
                    file.write(b"x")
            assert os.access(path, os.R_OK)
            missing = errno.ENODATA if asked else errno.EOPNOTSUPP
            expect_errno(missing, partial(os.getxattr, path, "user.any"))
            expect_errno(missing, partial(os.setxattr, path, "user.any", b""))
            expect_errno(missing, partial(os.listxattr, path))
            expect_errno(missing, partial(os.removexattr, path, "user.any"))
            ops = ("GETXATTR", "SETXATTR", "LISTXATTR", "REMOVEXATTR", "ACCESS")
            counts = [server.counts[op] for op in ops]
            assert (min(counts) >= 1) if asked else (max(counts) == 0), counts


def _most_reads(server: Plain, flags: int, *options: str) -> int:
    """Return how many READs are in flight for one read(2) of 512 KiB."""
    server.held = ("READ",)
    data = os.urandom(_HALF)
    server.add("file", data)
    with (
        serving(server, *options) as point,
        mmap.mmap(-1, _HALF) as buffer,
        opened(point / "file", os.O_RDONLY | flags) as fd,
    ):
        assert os.preadv(fd, [buffer], 0) == _HALF
        assert buffer[:] == data
    return server.most["READ"]


def check_requests_at_once() -> None:
    """Readahead, one large direct read, and lookups in one directory; one by one on stock."""
    load()
    ahead = "max_readahead=524288"
    assert _most_reads(Plain(), 0, ahead) == 1
    assert _most_reads(Plain(), 0, ahead, "async_read") == 4
    assert _most_reads(Plain(), os.O_DIRECT) == 1
    assert _most_reads(Plain(), os.O_DIRECT, "async_dio") == 4
    for options, most in (((), 1), (("parallel_dirops",), 4)):
        server = Plain(held=("LOOKUP",))
        names = [f"file{number}" for number in range(4)]
        for name in names:
            server.add(name)
        with serving(server, *options) as point, ThreadPoolExecutor(4) as pool:
            list(pool.map(os.stat, [point / name for name in names]))
        assert server.most["LOOKUP"] == most


def check_forced_limits() -> None:
    """The options for readahead and background requests apply from the first request on."""
    load()
    ahead = "max_readahead=1048576"
    assert _most_reads(Plain(), 0, ahead, "async_read", "max_background=3") == 3
    server = Plain()
    with serving(server, ahead, "max_background=99", "congestion_threshold=98") as point:
        device = os.stat(point).st_dev
        bdi = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
        assert bdi.read_text() == "1024\n"
        assert (server.control / "max_background").read_text() == "99\n"
        assert (server.control / "congestion_threshold").read_text() == "98\n"
        assert _init(server)["max_readahead"] == [str(1 << 17)]
    # One large read(2) is one READ, although no more is read ahead than before; Linux 7.3 does so
    # by itself.
    stock = 1 << 17 if KERNEL < (7, 3) else _MIB
    for options, largest in (((), stock), (("max_readahead=131072",), _MIB)):
        server = Plain(minor=38, flags=MAX_PAGES, max_pages=256)
        server.add("file", bytes(_MIB))
        with serving(server, *options) as point, opened(point / "file", os.O_RDONLY) as fd:
            assert len(os.read(fd, _MIB)) == _MIB
        assert max(server.sizes["READ"]) == largest, server.sizes


def check_request_timeout() -> None:
    """A request without a reply ends the connection; without the option it waits."""
    load()
    for option, seconds in (("request_timeout=1", 45), ("", 3)):
        server = Plain(silent=("GETXATTR",))
        server.add("file", b"data")
        with _kernel_log() as said, serving(server, *filter(None, [option])) as point:
            reader = raw.start(partial(os.getxattr, point / "file", "user.any"))
            status = raw.ended(reader, seconds)
            assert status == (errno.ECONNABORTED if option else None), status
            if option and KERNEL < (6, 15):
                assert "no reply within 1 s, aborted" in said()
            if not option:
                (server.control / "abort").write_text("1")
                assert raw.ended(reader, 10) == errno.ECONNABORTED
