# SPDX-License-Identifier: GPL-2.0-or-later
"""A host on which every metric has a value, in a tree instead of /sys and /proc."""

import shutil

from fusetune.desired.results import save
from fusetune.mounts.discover import discover
from tests.unit.conftest import INIT, Tree

TUNED = "sys/fs/fusetuned/connections"
STATISTICS = f"{TUNED}/41/statistics"
DEBUG = "sys/kernel/debug/bdi/0:40/stats"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
#: 24 counts: those above 1 us and below 2, of the two slowest finite buckets, and the rest.
_LATENCY = " ".join(["0", "6", *["0"] * 19, "2", "1", "4"])
COUNTED = (
    "LOOKUP count 1 errors 1 sent_bytes 5 received_bytes 0 time_ns 1500 "
    f"latency_us 0 1{' 0' * 22}\n"
    f"FORGET count 7 errors 0 sent_bytes 56 received_bytes 0 time_ns 0 latency_us{' 0' * 24}\n"
    f"READ count 13 errors 2 sent_bytes 520 received_bytes 53248 time_ns 4250000000 "
    f"latency_us {_LATENCY}\n"
)
PAGES = (
    "BdiWriteback: 30 kB\nBdiReclaimable: 70 kB\nBdiDirtyThresh: 1000 kB\nDirtyThresh: 4000 kB\n"
    "BackgroundThresh: 2000 kB\nBdiDirtied: 7 kB\nBdiWritten: 12 kB\nBdiWriteBandwidth: 0 kBps\n"
)


def fill(tree: Tree) -> None:
    """Make three mounts, one of the module and one on another; old parts; saved values."""
    tree.write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n")
    tree.write("proc/sys/kernel/osrelease", "6.12.117+deb13-amd64\n")
    tree.write("proc/sys/kernel/version", "#1 SMP Debian 6.12.117-1 (date)\n")
    source = (("version", "0.1.0"), ("parameters/source", "6.12.94"))
    for name, text in (("initstate", "live"), *source):
        tree.write(f"sys/module/fusetuned/{name}", f"{text}\n")
    tree.write(f"{_LIBRARIES}/fusetune/libfuse3.so.4", "")
    tree.write(f"{_LIBRARIES}/fusetune/libfuse3.source", "3.17.2\n")
    tree.write(f"{_LIBRARIES}/libfuse3.so.3.17.4", "")
    (tree.root / _LIBRARIES / "libfuse3.so.4").symlink_to("libfuse3.so.3.17.4")
    tree.system()
    tree.mount("/mnt/one")
    tree.live(values={"max_ratio": 20}, waiting=3)
    tree.write(DEBUG, PAGES)
    tree.mount("/mnt/tuned", "0:41", "fusetuned.mirrorfs", number=51)
    tree.live("0:41", "41", TUNED, {"max_pages": 256})
    tree.write(f"{TUNED}/41/init", INIT.format(256, "async_read max_pages"))
    tree.write(STATISTICS, COUNTED)
    tree.mount("/mnt/up", "0:49", source="/mnt/one/x", number=60)
    tree.live("0:49", "49")
    tree.write("etc/fusetune.toml", '[[mount]]\npath = "/mnt/one"\nmax_ratio = 30\n')
    mount = next(one for one in discover(tree.host) if one.path == "/mnt/one")
    save(tree.host, mount, {"read_ahead_kb": 128}, "auto", 1.5, (1.2, 1.9))


def empty(tree: Tree) -> None:
    """Make a host without FUSE mounts, and without parts of ours."""
    tree.write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n")
    tree.write("proc/sys/kernel/osrelease", "6.12\n")
    tree.system()
    shutil.rmtree(tree.root / "sys/module/fusetuned", ignore_errors=True)
