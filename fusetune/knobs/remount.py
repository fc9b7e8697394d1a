# SPDX-License-Identifier: GPL-2.0-or-later
"""Properties that are fixed at mount time, and how to set them for each server.

None of these can be changed while mounted: FUSE negotiates them in INIT or sets them at open.
``SPELLINGS`` is a table by file system type; add an entry for a new type.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fusetune.host import Host
from fusetune.mounts.bdi import bdi_statistics
from fusetune.mounts.mount import Mount


@dataclass(frozen=True)
class RemountKnob:
    """A property that only a remount can change.

    ``remedy``: one sentence on how to set it for a server. ``source``: the source of the fact.
    ``tuned``: the equivalent mount option of the module fusetuned, None if there is none.
    """

    name: str
    summary: str
    remedy: str
    risk: str
    source: str
    tuned: str | None = None

    def remedy_on(self, mount: Mount | None) -> str:
        """Return the remedy; for a mount of the module fusetuned, its mount option."""
        if mount is None or not mount.is_tuned_type or self.tuned is None:
            return self.remedy
        if mount.fstype == "fusetuned.mirrorfs":
            return f"mount with -o tuned,tuned_options={self.tuned}"
        return f"mount with the module's option {self.tuned}"


_BY_FUSETUNED = (
    "mount with the module fusetuned and its option {0}; 'fusetune module status' shows whether it "
    "is installed"
)
_CONN_OPTION = (
    "servers that parse libfuse's connection options accept -o {0}; others have their own"
)

REMOUNT = (
    RemountKnob(
        "writeback_cache",
        "small writes are combined in the page cache and reach the server in large requests",
        _CONN_OPTION.format("writeback_cache"),
        "wrong if data changes behind the mount",
        "Documentation/filesystems/fuse/fuse-io.rst; FUSE_WRITEBACK_CACHE",
    ),
    RemountKnob(
        "direct_io",
        "reads and writes bypass the page cache",
        "high-level libfuse servers accept -o direct_io",
        "no shared mmap on older kernels; small requests cost more",
        "Documentation/filesystems/fuse/fuse-io.rst; FOPEN_DIRECT_IO",
    ),
    RemountKnob(
        "parallel_direct_writes",
        "several concurrent direct writers in one file",
        "high-level servers on libfuse 3.17 and later accept -o parallel_direct_write",
        "needs a thread-safe server",
        "include/uapi/linux/fuse.h FOPEN_PARALLEL_DIRECT_WRITES",
        tuned="parallel_direct_writes",
    ),
    RemountKnob(
        "parallel_extend",
        "concurrent direct writes past the end of one file, and concurrent appends",
        _BY_FUSETUNED.format("parallel_extend"),
        "needs a thread-safe server that does not append by itself",
        "dkms/fusetuned/tuned/extend.c; no stock kernel has it",
        tuned="parallel_extend",
    ),
    RemountKnob(
        "atomic_open",
        "lookup and open in one request",
        _BY_FUSETUNED.format("atomic_open"),
        "a server without support, by itself or by the tuned libfuse3, gets the usual two requests",
        "dkms/fusetuned/tuned/atomic_open.c; no stock kernel has it",
        tuned="atomic_open",
    ),
    RemountKnob(
        "max_pages",
        "maximum number of pages per request that INIT may negotiate",
        "raise fs.fuse.max_pages_limit, then mount a server that asks for more",
        "larger buffers in server and kernel",
        "fs/fuse/inode.c process_init_reply()",
        tuned="max_pages=N",
    ),
    RemountKnob(
        "max_read",
        "largest read request",
        "mount with -o max_read=BYTES",
        "smaller than readahead splits it",
        "fs/fuse/inode.c fuse_fill_super_common(); mount.fuse3(8)",
    ),
    RemountKnob(
        "max_write",
        "largest write request",
        _CONN_OPTION.format("max_write=BYTES"),
        "larger buffers in the server",
        "fs/fuse/inode.c process_init_reply()",
    ),
    RemountKnob(
        "no_file_caps",
        "no getxattr for security.capability before a write",
        _BY_FUSETUNED.format("no_file_caps"),
        "file capabilities have no effect in the mount",
        "fs/attr.c file_remove_privs(); no stock kernel has it",
        tuned="no_file_caps",
    ),
    RemountKnob(
        "io_uring",
        "requests through io_uring",
        "set enable_uring=1 on the host, then mount a libfuse 3.18 server with -o io_uring",
        "a newer path of kernel and library",
        "Documentation/filesystems/fuse/fuse-io-uring.rst",
    ),
)

# How a server spells a property in its mount options; from each one's own manual.
SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "fuse.mirrorfs": {"writeback_cache": "writeback"},
    "fuse.passthrough_ll": {"writeback_cache": "writeback"},
    "fuse.mergerfs": {"writeback_cache": "cache.writeback=true,cache.files=auto-full"},
    "fuse.juicefs": {"writeback_cache": "writeback_cache"},
}


def remount_hint(mount: Mount, name: str) -> str:
    """Return a sentence: how ``mount`` gets the property ``name`` by a remount."""
    # A server takes the same options whichever module it mounts by.
    spelling = SPELLINGS.get(mount.fstype.replace("fusetuned", "fuse", 1), {}).get(name)
    if spelling:
        return f"unmount it and mount it again with '-o {spelling}' added to its options"
    knob = next(knob for knob in REMOUNT if knob.name == name)
    return f"unmount it and mount it again with {name}: {knob.remedy_on(mount)}"


def dirtied_bytes(host: Host, mount: Mount) -> int | None:
    """Return how many bytes have been dirtied in this mount's page cache since it was mounted.

    0 after buffered writes means that there is no writeback cache. None if debugfs does not show
    it.
    """
    return (bdi_statistics(host, mount) or {}).get("BdiDirtied")
