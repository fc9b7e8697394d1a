# SPDX-License-Identifier: GPL-2.0-or-later
"""The mount options of the module fusetuned: what each does, and for which servers it is correct.

fusetuned(4) and the advice on a mount are made from this table; dkms/fusetuned/tuned/options.c and
forced.c implement it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_MOST, _MOST_16 = (1 << 32) - 1, (1 << 16) - 1
_NO_ONE = "no one changes the files behind the mount"


@dataclass(frozen=True)
class ModuleOption:
    """What a mount option does.

    ``class_``, ``condition``, ``otherwise``: as in a recipe, for an unknown server. ``more``:
    further sentences. ``range``: the smallest and the largest value, empty for a flag; ``unit``: of
    the value, as in a recipe; ``value``: its name in the manual. ``overrules``: whether it
    overrides the server's reply, which only root may do.
    """

    about: str
    class_: str
    condition: str | None = None
    otherwise: str | None = None
    more: str = ""
    range: tuple[int, ...] = ()
    unit: str | None = None
    value: str = ""
    overrules: bool = True


def _conditional(about: str, condition: str, otherwise: str, more: str = "") -> ModuleOption:
    return ModuleOption(about, "conditional", condition, otherwise, more)


def _timeout(about: str, condition: str, otherwise: str, more: str = "") -> ModuleOption:
    how = (more, (1, _MOST), "seconds", "SECONDS")
    return ModuleOption(about, "conditional", condition, otherwise, *how)


#: By name.
OPTIONS: Mapping[str, ModuleOption] = {
    "async_dio": _conditional(
        "send the requests of one large direct read or write concurrently",
        "the server accepts requests in any order",
        "it may fail",
    ),
    "async_read": _conditional(
        "send the requests of readahead concurrently",
        "the server accepts reads in any order",
        "a server that reads a stream becomes slow or fails",
    ),
    "atomic_open": ModuleOption(
        "look a name up and open or create the file in one request, if the server supports the "
        "request TUNED_OPEN of tuned/protocol.h",
        "safe",
        more="The server mirrorfs supports it, and so does the tuned libfuse3 for its servers. "
        "Other servers get the usual requests.",
        overrules=False,
    ),
    "attr_timeout": _timeout(
        "cache attributes for at least this long",
        _NO_ONE,
        "programs see outdated sizes and times for this long, and revoked permissions remain valid "
        "if the server leaves permission checks to the kernel",
    ),
    "big_writes": _conditional(
        "put up to max_write bytes into a WRITE, as for servers on libfuse 3",
        "the server accepts writes up to the max_write of its reply to INIT",
        "a server that implicitly relies on small writes may fail",
        "Otherwise, servers on libfuse 2 get each page separately. No effect if the server's "
        "max_write is one page.",
    ),
    "congestion_threshold": ModuleOption(
        "the number of background requests above which readahead is throttled, 1 to 65535",
        "safe",
        range=(1, _MOST_16),
        unit="requests",
        value="N",
    ),
    "entry_timeout": _timeout(
        "cache names for at least this long",
        _NO_ONE,
        "a name that was removed, renamed or replaced behind the mount still refers to the old "
        "file",
    ),
    "keep_cache": _conditional(
        "keep a file's cached pages when it is opened again while its size, mtime and ctime are "
        "the same",
        "every change behind the mount changes a file's size, mtime or ctime",
        "a program reads outdated data",
        "The open of a file with cached pages then sends a GETATTR.",
    ),
    "max_background": ModuleOption(
        "the number of concurrent background requests, 1 to 65535, from the first request on",
        "conditional",
        "the host can spare the memory for this many requests",
        "a hung server keeps the memory of this many requests",
        "The parameter max_user_bgreq does not limit it.",
        (1, _MOST_16),
        "requests",
        "N",
    ),
    "max_pages": ModuleOption(
        "the largest number of pages per request that INIT may negotiate, from 1",
        "safe",
        more="It may not exceed what fits into a pipe of fs.pipe-max-size bytes nor, without "
        "CAP_SYS_ADMIN, the parameter max_pages_per_req. Larger requests also require the server "
        "to ask for them at INIT.",
        range=(1, _MOST_16),
        unit="pages",
        value="N",
        overrules=False,
    ),
    "max_readahead": ModuleOption(
        "the readahead, regardless of the server's reply, from a page to 1 GiB",
        "safe",
        more="A read(2) larger than this also makes requests as large as INIT allows; on Linux 7.3 "
        "it does so on every mount. More may be read than is used.",
        range=(4096, 1 << 30),
        unit="bytes",
        value="BYTES",
    ),
    "negative_timeout": _timeout(
        "cache for at least this long that a name does not exist",
        "no one creates files behind the mount",
        "a file that is created behind the mount is not found for that long",
    ),
    "no_access": _conditional(
        "do not send ACCESS",
        "the server does not check permissions itself",
        "access(2) and chdir(2) succeed even if it would refuse, and opening a file still fails",
    ),
    "no_file_caps": ModuleOption(
        "do not ask the server for security.capability before each write",
        "conditional",
        "no program in the mount has file capabilities",
        "such a program runs without its capabilities, and a write does not remove those of the "
        "server's file",
        "File capabilities do not exist on the mount.",
        overrules=False,
    ),
    "no_xattr": _conditional(
        "extended attributes do not exist on the mount, and no request for them is sent",
        "no program here needs extended attributes, ACLs or file capabilities",
        "copies and backups lack them, and a write does not remove the capabilities of the "
        "server's file",
        "No effect if the server has POSIX ACLs, because the group's permission bits would then "
        "be mistaken for the owning group's entry.",
    ),
    "parallel_direct_writes": ModuleOption(
        "send overwrites of one file concurrently if the server uses direct I/O, even if it did "
        "not request that",
        "conditional",
        "the server supports parallel writes to one file",
        "it may mix or lose data",
        "With passthrough, direct overwrites of one backing file also run concurrently, but only "
        "on mounts with no_file_caps or no_xattr: on others the kernel removes file capabilities "
        "before each write, which requires the exclusive lock.",
        overrules=False,
    ),
    "parallel_dirops": _conditional(
        "send lookups and reads of one directory concurrently",
        "the server supports concurrent requests on one directory",
        "it may fail",
    ),
    "parallel_extend": ModuleOption(
        "imply parallel_direct_writes, and also send appends and writes past the end of the file "
        "concurrently",
        "unsafe",
        "only this mount extends the files, and no write fails",
        "appends of another client and of this mount overwrite each other, the writes behind a "
        "failed one stay behind a hole, and overlapping writes of more than one request may mix",
        "The kernel chooses the place of each append and does not pass O_APPEND to the server.",
        overrules=False,
    ),
    "request_timeout": ModuleOption(
        "abort the connection if a request gets no reply for this long, 1 to 65535",
        "conditional",
        "no request legitimately takes that long, such as for a lock held by another program or a "
        "file that arrives slowly",
        "the mount is lost",
        "The kernel checks every 15 seconds, or every SECONDS if that is less. From Linux 7.2 on "
        "it accepts no less than 15 seconds, and no more than "
        "/proc/sys/fs/fusetuned/max_request_timeout if that is set.",
        (1, _MOST_16),
        "seconds",
        "SECONDS",
    ),
    "writeback_cache": _conditional(
        "combine small writes in the page cache",
        f"{_NO_ONE}, and the server needs neither writes in order nor the user of each write",
        "either side overwrites the other's data, and a server that needs order or the user fails",
        "Opens for writing are sent as O_RDWR without O_APPEND. A file that the server does not "
        "let a user read is opened as requested, and its writes bypass the cache. The server "
        "cannot use passthrough. A write may fail after write(2) succeeded; fsync(2) and "
        "close(2) report that.",
    ),
}
