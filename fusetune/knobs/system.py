# SPDX-License-Identifier: GPL-2.0-or-later
"""Knobs of the whole host; they matter to mounts (and pipes) made after the change."""

import os

from fusetune.knobs.base import Knob, Scope

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARAMETERS = "sys/module/fuse/parameters"

SYSTEM = (
    Knob(
        name="fs.pipe-max-size",
        unit="bytes",
        scope=Scope.HOST,
        file="proc/sys/fs/pipe-max-size",
        low=_PAGE,
        high=1 << 31,
        stock=1 << 20,
        summary="largest pipe of an unprivileged process: a server splices only if its whole "
        "buffer fits",
        risk="a user may keep that much kernel memory in each pipe (fs.pipe-user-pages-soft "
        "bounds the sum)",
        source="pipe(7); fs/pipe.c round_pipe_size(); libfuse fuse_lowlevel.c",
        absent="this kernel has no fs.pipe-max-size",
    ),
    Knob(
        name="fs.fuse.max_pages_limit",
        unit="pages",
        scope=Scope.HOST,
        file="proc/sys/fs/fuse/max_pages_limit",
        low=1,
        high=65535,
        stock=256,
        summary="maximum number of pages per request that a new mount may negotiate",
        risk="a server that asks for more keeps larger buffers",
        source="Documentation/admin-guide/sysctl/fs.rst; fs/fuse/sysctl.c",
        absent="this kernel has no fs.fuse.max_pages_limit (Linux 6.13 and later have it)",
    ),
    Knob(
        name="max_user_bgreq",
        unit="requests",
        scope=Scope.HOST,
        file=f"{_PARAMETERS}/max_user_bgreq",
        low=0,
        high=65535,
        stock=None,
        summary="maximum max_background of an unprivileged user's mount",
        risk="users' servers may keep more requests, each with its pages, in flight",
        source="fs/fuse/inode.c max_user_bgreq, sanitize_global_limit()",
        absent="the fuse module is not loaded",
    ),
    Knob(
        name="max_user_congthresh",
        unit="requests",
        scope=Scope.HOST,
        file=f"{_PARAMETERS}/max_user_congthresh",
        low=0,
        high=65535,
        stock=None,
        summary="maximum congestion_threshold of an unprivileged user's mount",
        risk="like max_user_bgreq",
        source="fs/fuse/inode.c max_user_congthresh, sanitize_global_limit()",
        absent="the fuse module is not loaded",
    ),
    Knob(
        name="enable_uring",
        unit="switch",
        scope=Scope.HOST,
        file=f"{_PARAMETERS}/enable_uring",
        low=0,
        high=1,
        stock=0,
        words={0: "N", 1: "Y"},
        summary="whether servers may use io_uring instead of read and write for requests",
        risk="a newer code path of the kernel; a server must request it (libfuse 3.18: io_uring)",
        source="Documentation/filesystems/fuse/fuse-io-uring.rst; fs/fuse/dev_uring.c",
        absent="this kernel has no FUSE over io_uring (Linux 6.14 and later may have it)",
    ),
    Knob(
        name="max_pages_per_req",
        unit="pages",
        scope=Scope.HOST,
        file="sys/module/fusetuned/parameters/max_pages_per_req",
        low=0,
        high=65535,
        stock=0,
        takes="the range is 0 (like the kernel's FUSE), or 32 to the pages of fs.pipe-max-size",
        summary="maximum number of pages per request that a new mount of the module fusetuned may "
        "negotiate; 0: like the kernel's FUSE",
        risk="a server that asks for more keeps larger buffers",
        source="dkms/fusetuned/tuned/options.c",
        absent="the module fusetuned is not loaded; 'fusetune module status' says why",
    ),
)
