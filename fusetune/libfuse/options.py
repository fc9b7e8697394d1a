# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of the tuned libfuse3, and their validation."""

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
    """What an option does, the name of its value, and the pattern of values, None for none."""

    summary: str
    value: str = ""
    takes: str | None = None


#: As in libfuse/tuned/options.c.
OPTIONS: Mapping[str, Option] = {
    "max_pages": Option(
        "pages per request, with buffers of that size; at most fs.fuse.max_pages_limit, or 256 if "
        "the kernel has no such limit",
        "N",
        _NUMBER,
    ),
    "max_write": Option(
        "maximum bytes of a WRITE, limited by the server and the kernel", "SIZE", _SIZE
    ),
    "max_readahead": Option(
        "bytes of readahead, limited by the server and the kernel", "SIZE", _SIZE
    ),
    "max_background": Option("number of concurrent background requests", "N", _NUMBER),
    "congestion_threshold": Option(
        "number of background requests above which readahead is throttled", "N", _NUMBER
    ),
    "max_threads": Option("number of threads that serve requests; not with -s", "N", _NUMBER),
    "splice": Option(
        "which data is spliced through pipes; read, write and move may be combined with +",
        "off|read|write|move",
        rf"off|{_WAYS}(?:\+{_WAYS})*",
    ),
    "writeback_cache": Option(
        "combine small writes in the page cache. Wrong if data changes behind the mount. Files "
        "that the server may write but not read cannot be opened for writing"
    ),
    "direct_io": Option(
        "reads and writes bypass the page cache. Before Linux 6.6, shared mmap does not work with "
        "it"
    ),
    "parallel_direct_writes": Option(
        "with direct I/O, several concurrent writers in a file; only for thread-safe servers"
    ),
    "clone_fd": Option("a separate device for each thread; not with -s"),
    "io_uring": Option(
        "requests through io_uring, if libfuse 3.18 is built with it and enable_uring is set"
    ),
    "no_file_caps": Option("with tuned: the mount option of the module fusetuned"),
    "atomic_open": Option(
        "with tuned: the mount option of the module fusetuned, for servers that do not support it "
        "themselves. Not for servers that reply to LOOKUP later, or from another thread"
    ),
    "tuned": Option(
        "mount with the module fusetuned if it is loaded, otherwise with the kernel's FUSE and a "
        "warning; root only"
    ),
    "tuned_if_possible": Option(
        "an option that is not available is left out with a warning, and the mount does not fail"
    ),
}


def check_options(text: str) -> None:
    """Raise UsageError unless ``text`` is a valid list of options of the library.

    The library decides at mount time whether a value works: it depends on kernel and server.
    """
    for word in filter(None, text.split(",")):
        name, equal, value = word.partition("=")
        if name not in OPTIONS:
            raise UsageError(
                f"{name!r} is not an option of the tuned libfuse3; give one of {', '.join(OPTIONS)}"
            )
        wanted = OPTIONS[name].takes
        if equal != "" if wanted is None else not re.fullmatch(wanted, value):
            raise UsageError(f"{word!r}: {name} takes {'no value' if wanted is None else wanted}")
