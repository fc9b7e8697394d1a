# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of the tuned libfuse3, and their check."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fusetune.errors import UsageError

#: Carries options to a server whose own parser would reject them; libfuse/tuned/channels.c.
OPTIONS_VARIABLE = "FUSETUNE_OPTIONS"
_NUMBER, _SIZE = r"[0-9]+", r"[0-9]+[KMG]?"
_WAYS = "(?:read|write|move)"


@dataclass(frozen=True)
class Option:
    """What an option does, what stands for its value, and which values it ``takes``; none: None."""

    summary: str
    value: str = ""
    takes: str | None = None


#: As libfuse/tuned/options.c has them.
OPTIONS: Mapping[str, Option] = {
    "max_pages": Option(
        "pages per request, with buffers as large; at most fs.fuse.max_pages_limit, or 256 where "
        "the kernel has no such limit",
        "N",
        _NUMBER,
    ),
    "max_write": Option(
        "bytes of a WRITE, at most what the server and the kernel take", "SIZE", _SIZE
    ),
    "max_readahead": Option(
        "bytes of readahead, at most what the server and the kernel take", "SIZE", _SIZE
    ),
    "max_background": Option("background requests with the server at once", "N", _NUMBER),
    "congestion_threshold": Option(
        "the number of background requests from which readahead holds back", "N", _NUMBER
    ),
    "max_threads": Option("threads that serve; not with -s", "N", _NUMBER),
    "splice": Option(
        "which data moves through pipes; read, write and move may be joined by +",
        "off|read|write|move",
        rf"off|{_WAYS}(?:\+{_WAYS})*",
    ),
    "writeback_cache": Option(
        "small writes gather in the page cache. Wrong where data changes behind the mount. Files "
        "that the server may write and not read cannot be opened for writing"
    ),
    "direct_io": Option(
        "reads and writes bypass the page cache. Linux before 6.6 has no shared mmap with it"
    ),
    "parallel_direct_writes": Option(
        "with direct I/O, several writers in a file at once; only for thread-safe servers"
    ),
    "clone_fd": Option("a device for each thread; not with -s"),
    "io_uring": Option(
        "requests through io_uring, where libfuse 3.18 is built with it and enable_uring is set"
    ),
    "no_file_caps": Option("with tuned: the mount option of the module fusetuned"),
    "atomic_open": Option(
        "with tuned: the mount option of the module fusetuned, for servers that do not know it. "
        "Not for servers that reply to LOOKUP later, or from another thread than took it"
    ),
    "tuned": Option(
        "mount with the module fusetuned if it is loaded, otherwise with the kernel's FUSE and a "
        "line that says so; root only"
    ),
    "tuned_if_possible": Option(
        "an option that cannot be had is left out with a line, and the mount does not fail"
    ),
}


def check_options(text: str) -> None:
    """Raise UsageError unless ``text`` is a list of options as the library takes them.

    Whether a value works is up to the library at mount time: it depends on kernel and server.
    """
    for word in filter(None, text.split(",")):
        name, equal, value = word.partition("=")
        if name not in OPTIONS:
            raise UsageError(
                f"{name!r} is no option of the tuned libfuse; {', '.join(OPTIONS)} are"
            )
        wanted = OPTIONS[name].takes
        if equal != "" if wanted is None else not re.fullmatch(wanted, value):
            raise UsageError(f"{word!r}: {name} takes {'no value' if wanted is None else wanted}")
