# SPDX-License-Identifier: GPL-2.0-or-later
"""The writeback cache for a server that does not support it."""

import errno
import fcntl
import os
import struct
import time
from functools import partial

from tests.kernel.guest import raw
from tests.kernel.guest.plain import (
    INIT_EXT,
    PASSTHROUGH,
    WRITEBACK_CACHE,
    Plain,
    opened,
    serving,
)
from tests.kernel.guest.rig import KERNEL, PAGE, expect_errno, load

#: FUSE_DEV_IOC_BACKING_OPEN of linux/fuse.h; returns the number of the backing file.
_BACKING_OPEN = 0x4010E501
_NOBODY = 65534


def _modes(server: Plain) -> list[int]:
    """Return the access modes of the opens since the last call."""
    modes = [flags & os.O_ACCMODE for flags in server.opened]
    assert not any(flags & os.O_APPEND for flags in server.opened)
    server.opened.clear()
    return modes


def check_writeback_cache_gathers_writes() -> None:
    """Also for write-only files, whose pages are read first if they are written in part."""
    load()
    old = os.urandom(64 * PAGE)
    for options, gathered in (((), False), (("writeback_cache",), True)):
        server = Plain()
        server.add("file", old)
        with serving(server, *options) as point:
            with opened(point / "file", os.O_WRONLY) as fd:
                for place in range(100):
                    assert os.pwrite(fd, b"x" * 10, place * 1000 + 500) == 10
            expected = bytearray(old)
            for place in range(100):
                expected[place * 1000 + 500 : place * 1000 + 510] = b"x" * 10
            assert server.files["file"].data == expected
            assert (point / "file").read_bytes() == expected
            assert (len(server.writes) <= 30) == gathered, server.writes
            assert _modes(server)[0] == (os.O_RDWR if gathered else os.O_WRONLY)
            with opened(point / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
                os.write(fd, b"new")
            assert server.files["new"].data == b"new"
            assert _modes(server)[-1] == (os.O_RDWR if gathered else os.O_WRONLY)


def check_writeback_cache_appends() -> None:
    """The kernel, not the server, positions appended data, from two files at once."""
    load()
    server = Plain()
    server.add("log", b"begin")
    with serving(server, "writeback_cache") as point:
        path, append = point / "log", os.O_WRONLY | os.O_APPEND
        with opened(path, append) as first, opened(path, append) as second:
            for number in range(50):
                os.write(first, b"<%d>" % number)
                os.write(second, b"[%d]" % number)
            os.fsync(first)
        expected = b"begin" + b"".join(b"<%d>[%d]" % (number, number) for number in range(50))
        assert path.read_bytes() == expected
        assert server.files["log"].data == expected
        assert path.stat().st_size == len(expected)
        _modes(server)


def check_writeback_cache_of_what_the_server_lets_nobody_read() -> None:
    """It is opened write-only; its writes bypass the cache, ordered with cached ones."""
    load()
    server = Plain()
    server.add("file", b"." * 4 * PAGE)
    with serving(server, "writeback_cache") as point:
        path = point / "file"
        with opened(path, os.O_RDWR) as cached:
            os.pwrite(cached, b"a" * 3 * PAGE, 0)
            server.unreadable = True
            _modes(server)
            before = path.stat().st_mtime_ns
            time.sleep(0.02)  # longer than the granularity of the kernel's file time stamps
            with opened(path, os.O_WRONLY | os.O_APPEND) as past:
                assert _modes(server) == [os.O_RDWR, os.O_WRONLY]
                os.write(past, b"end")
                assert server.files["file"].data[-3:] == b"end"
            with opened(path, os.O_WRONLY) as past:
                os.pwrite(cached, b"b" * PAGE, PAGE)
                os.pwrite(past, b"c" * 100, PAGE + 100)
                assert server.files["file"].data[PAGE + 99 : PAGE + 201] == b"b" + b"c" * 100 + b"b"
                assert os.pread(cached, 102, PAGE + 99) == b"b" + b"c" * 100 + b"b"
                os.pwrite(cached, b"d" * 10, PAGE + 110)
            assert path.stat().st_mtime_ns > before
            os.fsync(cached)
        page = b"b" * 100 + b"c" * 10 + b"d" * 10 + b"c" * 80 + b"b" * (PAGE - 200)
        expected = b"a" * PAGE + page + b"a" * PAGE + b"." * PAGE + b"end"
        assert server.files["file"].data == expected
        with opened(point / "made", os.O_WRONLY | os.O_CREAT) as fd:
            os.write(fd, b"made")
            assert server.files["made"].data == b"made"


def check_writes_past_the_cache_remove_set_id_bits() -> None:
    """As writes through the cache do, although a server that is root keeps the bits."""
    load()
    for options in ((), ("parallel_direct_writes", "parallel_extend")):
        server = Plain(unreadable=True)
        file = server.add("file", b"." * PAGE, 0o106777)
        with (
            serving(server, "writeback_cache", *options, "allow_other") as point,
            opened(point / "file", os.O_WRONLY) as fd,
        ):
            os.pwrite(fd, b"root", 0)
            assert file.mode == 0o106777
            assert raw.in_child(partial(_write_as_a_user, fd)) == 0
        assert file.mode == 0o100777, (options, oct(file.mode))
        assert file.data[:4] == b"user"


def _write_as_a_user(fd: int) -> None:
    os.setgroups([])
    os.setresgid(*3 * (_NOBODY,))
    os.setresuid(*3 * (_NOBODY,))
    os.pwrite(fd, b"user", 0)


def check_writeback_cache_by_the_server() -> None:
    """If the server asks for it, opens are as on stock, and nothing is forced."""
    load()
    server = Plain(flags=WRITEBACK_CACHE)
    server.add("file", b"data")
    with serving(server, "writeback_cache") as point:
        with opened(point / "file", os.O_WRONLY | os.O_APPEND):
            assert server.opened[0] & os.O_ACCMODE == os.O_WRONLY
            assert server.opened[0] & os.O_APPEND
        assert "\nforced" not in (server.control / "init").read_text()


def check_writeback_cache_instead_of_passthrough() -> None:
    """A server that offers passthrough gets the writeback cache, and no backing files."""
    load()
    with open("/etc/passwd") as backing:
        request = struct.pack("=iIQ", backing.fileno(), 0, 0)
        for options, gathered in (((), False), (("writeback_cache",), True)):
            server = Plain(minor=41, flags=INIT_EXT | PASSTHROUGH, max_stack_depth=1)
            server.add("file", bytes(64 * PAGE))
            with serving(server, *options) as point:
                if KERNEL >= (6, 12):
                    offer = partial(fcntl.ioctl, server.device, _BACKING_OPEN, request)
                    expect_errno(errno.EPERM, offer) if gathered else offer()
                with opened(point / "file", os.O_WRONLY) as fd:
                    for place in range(64):
                        assert os.pwrite(fd, b"x" * PAGE, place * PAGE) == PAGE
                assert server.files["file"].data == b"x" * 64 * PAGE
                assert (len(server.writes) <= 32) == gathered, server.writes
                assert ("\nforced" in (server.control / "init").read_text()) == gathered
