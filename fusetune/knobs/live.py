# SPDX-License-Identifier: GPL-2.0-or-later
"""Knobs of one mount that take effect at once: its bdi in sysfs and its connection in fusectl."""

import os

from fusetune.knobs.base import Knob, Scope

_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
_NO_BDI = "the mount is gone, or this kernel does not offer it (strict_limit: Linux 6.2)"
_NO_CONNECTION = "its control file system is not mounted; run 'fusetune list' as root to mount it"

LIVE = (
    Knob(
        name="read_ahead_kb",
        unit="KiB",
        scope=Scope.MOUNT,
        file="sys/class/bdi/{bdi}/read_ahead_kb",
        low=0,
        high=None,
        stock=128,
        step=_PAGE_KIB,
        summary="how far the kernel reads ahead of a sequential reader",
        risk="too much wastes bandwidth and page cache if reads are short or random",
        source="mm/backing-dev.c read_ahead_kb_store(); fs/fuse/inode.c process_init_reply()",
        absent=_NO_BDI,
    ),
    Knob(
        name="max_background",
        unit="requests",
        scope=Scope.MOUNT,
        file="{control}/{connection}/max_background",
        low=1,  # with 0, background requests wait for ever (fs/fuse/dev.c, flush_bg_queue())
        high=65535,
        stock=12,
        summary="how many background requests (readahead, writeback, async direct I/O) may be "
        "at the server at once",
        risk="a server that is slow or keeps a buffer for each request needs more memory",
        source="fs/fuse/control.c fuse_conn_max_background_write(); FUSE_DEFAULT_MAX_BACKGROUND",
        absent=_NO_CONNECTION,
    ),
    Knob(
        name="congestion_threshold",
        unit="requests",
        scope=Scope.MOUNT,
        file="{control}/{connection}/congestion_threshold",
        low=0,
        high=65535,
        stock=9,
        summary="number of background requests above which readahead is throttled",
        risk="like max_background; the kernel sets it to three quarters of that",
        source="fs/fuse/control.c; fs/fuse/file.c fuse_readahead()",
        absent=_NO_CONNECTION,
    ),
    Knob(
        name="max_ratio",
        unit="percent",
        scope=Scope.MOUNT,
        file="sys/class/bdi/{bdi}/max_ratio",
        low=0,
        high=100,
        stock=1,
        summary="share of the host's dirty-page limit that this mount may fill",
        finer="sys/class/bdi/{bdi}/max_ratio_fine",
        risk="a hung server keeps that much more memory dirty",
        source="Documentation/ABI/testing/sysfs-class-bdi; fs/fuse/inode.c fuse_bdi_init()",
        absent=_NO_BDI,
    ),
    Knob(
        name="strict_limit",
        unit="switch",
        scope=Scope.MOUNT,
        file="sys/class/bdi/{bdi}/strict_limit",
        low=0,
        high=1,
        stock=1,
        summary="1: max_ratio always applies; 0: only when the host's dirty pages reach the limit",
        risk="0 lets a hung server pin dirty memory up to the host's limit",
        source="Documentation/ABI/testing/sysfs-class-bdi; mm/page-writeback.c",
        absent=_NO_BDI,
    ),
    Knob(
        name="max_pages",
        unit="pages",
        scope=Scope.MOUNT,
        file="{control}/{connection}/max_pages",
        low=1,
        high=65535,
        stock=None,
        init_line="max_pages",
        takes="the range is 1 to the negotiated max_pages (see the connection's init)",
        summary="maximum number of pages per request",
        risk="a smaller value than the server supports splits the same data into more requests",
        source="dkms/fusetuned/tuned/control.c",
        absent="only mounts of the module fusetuned can change it live; others need a remount with "
        "a larger fs.fuse.max_pages_limit, and a server that requests more",
    ),
)
