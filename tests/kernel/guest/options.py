# SPDX-License-Identifier: GPL-2.0-or-later
"""What INIT negotiated, and mounts without file capabilities."""

import errno
import os
from functools import partial
from pathlib import Path

from tests.kernel.guest.rig import (
    CONTROL,
    KERNEL,
    SOURCE,
    count,
    expect_errno,
    fresh_source,
    load,
    stock,
    tuned,
)
from tests.native.mirror import Mirror


def check_what_init_negotiated() -> None:
    """The connection's `init` agrees with the server's own counters."""
    load()
    fresh_source()
    for options, flagged in ((("max_write=256K",), False), (("writeback",), True)):
        with tuned(*options, "max_readahead=64K", mount="max_pages=200+max_read=131072") as mirror:
            file = CONTROL / mirror.bdi.partition(":")[2] / "init"
            said = dict(line.split(" ", 1) for line in file.read_text().splitlines())
            server = mirror.counters()["init"]
            expected = 64 if not flagged else 200
            assert said["max_pages"] == str(expected), said
            assert said["max_write"] == str(server["max_write"]), said
            assert said["max_read"] == "131072", said
            assert said["max_readahead"] == "65536", said
            assert 38 <= int(said["minor"]) <= server["proto_minor"] or KERNEL < (6, 12), said
            flags = said["flags"].split()
            assert ("writeback_cache" in flags) == flagged, flags
            assert {"async_read", "max_pages", "parallel_dirops", "init_ext"} <= set(flags)
            assert not [flag for flag in flags if flag.startswith("bit")]
            expect_errno(errno.EINVAL, partial(file.write_text, "x"))


def check_no_file_caps() -> None:
    """No write asks for file capabilities; such a mount has none."""
    load()
    asked = []
    for mounting, options in ((stock, ()), (tuned, ())):
        fresh_source()
        with mounting(*options) as mirror:
            asked.append(_getxattrs_of_100_writes(mirror))
    assert min(asked) >= 100, asked
    fresh_source()
    with tuned(mount="no_file_caps") as mirror:
        assert ",no_file_caps" in Path("/proc/self/mountinfo").read_text()
        assert _getxattrs_of_100_writes(mirror) == 0
        path, caps = mirror.mountpoint / "file", "security.capability"
        value = bytes.fromhex("0100000200200000000000000000000000000000")
        os.setxattr(SOURCE / "file", caps, value)
        expect_errno(errno.ENODATA, lambda: os.getxattr(path, caps))
        expect_errno(errno.EOPNOTSUPP, lambda: os.setxattr(path, caps, value))
        os.removexattr(path, caps)
        assert caps not in os.listxattr(SOURCE / "file")
        os.setxattr(path, "trusted.other", b"1")
        assert os.getxattr(path, "trusted.other") == b"1"


def _getxattrs_of_100_writes(mirror: Mirror) -> int:
    with (mirror.mountpoint / "file").open("wb", buffering=0) as file:
        before = count(mirror, "GETXATTR")
        for _ in range(100):
            file.write(b"x" * 100)
    return count(mirror, "GETXATTR") - before
