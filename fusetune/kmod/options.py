# SPDX-License-Identifier: GPL-2.0-or-later
"""The mount options of the module fusetuned: what each does, and to which servers it is right.

fusetuned(4) and the advice on a mount are made from this table; dkms/fusetuned/tuned/options.c and
forced.c carry it out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_MOST, _MOST_16 = (1 << 32) - 1, (1 << 16) - 1
_NO_ONE = "no one changes the files behind the mount"


@dataclass(frozen=True)
class ModuleOption:
    """What a mount option does.

    ``class_``, ``condition``, ``otherwise``: as a recipe has them, for a server of which nothing is
    known. ``more``: further sentences. ``range``: the least and the greatest value, none for a
    flag; ``unit``: of the value, as a recipe has it; ``value``: what stands for it in the manual.
    ``overrules``: whether it overrules what the server says, which only root may.
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
        "send the requests of one large direct read or write at once",
        "the server takes requests in any order",
        "it may fail",
    ),
    "async_read": _conditional(
        "send the requests of readahead at once",
        "the server takes reads in any order",
        "a server that reads a stream becomes slow or fails",
    ),
    "atomic_open": ModuleOption(
        "look a name up and open or create the file in one request, if the server supports the "
        "request TUNED_OPEN of tuned/protocol.h",
        "safe",
        more="The server mirrorfs supports it, and the tuned libfuse3 does so for its servers. "
        "Other servers get the usual requests.",
        overrules=False,
    ),
    "attr_timeout": _timeout(
        "cache attributes for at least so long",
        _NO_ONE,
        "old sizes and times are seen for so long, and so is a permission that was taken away "
        "where the server leaves permissions to the kernel",
    ),
    "big_writes": _conditional(
        "put up to max_write bytes into a WRITE, as for servers on libfuse 3",
        "the server takes writes as large as the max_write of its reply to INIT",
        "a server that relied on small writes without saying so may fail",
        "Servers on libfuse 2 otherwise get each page by itself. Not in force if the server's "
        "max_write is one page.",
    ),
    "congestion_threshold": ModuleOption(
        "the number of background requests from which readahead holds back, 1 to 65535",
        "safe",
        range=(1, _MOST_16),
        unit="requests",
        value="N",
    ),
    "entry_timeout": _timeout(
        "cache names for at least so long",
        _NO_ONE,
        "a name that was removed, renamed or replaced behind the mount still leads to the old file",
    ),
    "keep_cache": _conditional(
        "keep a file's cached pages when it is opened again while its size and mtime are the same",
        "each change of a file behind the mount changes its size or mtime",
        "a program reads old data",
        "The open of a file with cached pages then sends a GETATTR.",
    ),
    "max_background": ModuleOption(
        "the number of background requests at once, 1 to 65535, from the first request on",
        "conditional",
        "the host can spare the memory of so many requests",
        "so many requests of a server that hangs keep memory",
        "The parameter max_user_bgreq does not bound it.",
        (1, _MOST_16),
        "requests",
        "N",
    ),
    "max_pages": ModuleOption(
        "the largest number of pages per request that INIT may negotiate, from 1",
        "safe",
        more="Without CAP_SYS_ADMIN it may not exceed the parameter max_pages_per_req. Larger "
        "requests also require the server to ask for them at INIT.",
        range=(1, _MOST_16),
        unit="pages",
        value="N",
        overrules=False,
    ),
    "max_readahead": ModuleOption(
        "read ahead so far, whatever the server says, from a page to 1 GiB",
        "safe",
        more="One large read(2) also makes requests as large as INIT allows, even if it is larger "
        "than this; on Linux 7.3 it does so on every mount. More may be read than is used.",
        range=(4096, 1 << 30),
        unit="bytes",
        value="BYTES",
    ),
    "negative_timeout": _timeout(
        "cache for at least so long that a name does not exist",
        "no one makes files behind the mount",
        "a file that is made behind the mount is not found until then",
    ),
    "no_access": _conditional(
        "do not send ACCESS",
        "the server does not check permissions itself",
        "access(2) and chdir(2) succeed where it would have refused, and opening a file still "
        "fails",
    ),
    "no_file_caps": ModuleOption(
        "do not ask the server for security.capability before each write",
        "conditional",
        "no program under the mount has file capabilities",
        "such a program runs without them, and a write does not remove those that the server's "
        "file has",
        "File capabilities do not exist on the mount.",
        overrules=False,
    ),
    "no_xattr": _conditional(
        "extended attributes do not exist on the mount, and no request for them is sent",
        "no program here needs extended attributes, ACLs or file capabilities",
        "copies and backups lack them, and a write does not remove the capabilities that the "
        "server's file has",
        "Not in force if the server has POSIX ACLs, because the group's permission bits would then "
        "be taken for the group's own.",
    ),
    "parallel_direct_writes": ModuleOption(
        "send overwrites of one file at once where the server uses direct I/O, even if it did not "
        "ask for that",
        "conditional",
        "the server is made for parallel writes of one file",
        "it may mix or lose data",
        "With passthrough, direct overwrites of one backing file then also run at once, on mounts "
        "with no_file_caps or no_xattr: elsewhere the kernel removes file capabilities before each "
        "write, and for that it lets writers in one by one.",
        overrules=False,
    ),
    "parallel_dirops": _conditional(
        "send lookups and reads of one directory at once",
        "the server is made for requests of one directory at once",
        "it may fail",
    ),
    "parallel_extend": ModuleOption(
        "imply parallel_direct_writes, and also send appends and writes past the end of the file "
        "at once",
        "unsafe",
        "only this mount extends the files, and no write fails",
        "appends of another client and of this mount overwrite each other, the writes behind a "
        "failed one stay behind a hole, and overlapping writes of more than one request may mix",
        "The kernel chooses the place of each append and does not pass O_APPEND to the server.",
        overrules=False,
    ),
    "request_timeout": ModuleOption(
        "abort the connection when a request has had no reply for so long, 1 to 65535",
        "conditional",
        "no request takes so long by itself, such as for a lock that somebody else holds or for a "
        "file that has long to come",
        "the mount is gone",
        "The kernel looks every 15 seconds, or every SECONDS if that is less. From Linux 7.2 on it "
        "takes no less than 15 seconds, and no more than "
        "/proc/sys/fs/fusetuned/max_request_timeout if that is set.",
        (1, _MOST_16),
        "seconds",
        "SECONDS",
    ),
    "writeback_cache": _conditional(
        "gather small writes in the page cache",
        f"{_NO_ONE}, and the server needs neither writes in order nor the user of each write",
        "either side overwrites the other's data, and a server that needs order or the user fails",
        "Opens for writing are sent as O_RDWR without O_APPEND. A file that the server does not "
        "let one read is opened as asked, and its writes go past the cache. Not in force if the "
        "server uses passthrough. A write may fail after write(2) succeeded; fsync(2) and close(2) "
        "report that.",
    ),
}
