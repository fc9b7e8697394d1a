# SPDX-License-Identifier: GPL-2.0-or-later
"""Which running servers use which libfuse."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from fusetune.deadline import each_in_time
from fusetune.host import Host
from fusetune.libfuse.installed import directories
from fusetune.mounts.daemons import fuse_processes, program_of

_LIBFUSE = re.compile(r"libfuse3?\.so\.")
_FEW = 64  # enough for several times the mappings of one library


@dataclass(frozen=True)
class Server:
    """A process with a FUSE device open.

    ``library``: the libfuse that it has loaded, None if it has none. ``uses``: "tuned", "stock",
    "libfuse2", "none" for servers without libfuse, such as those in Go, or "unknown" if its memory
    map could not be read in time.
    """

    pid: int
    program: str
    library: str | None
    uses: str


def libfuse_users(host: Host) -> list[Server]:
    """Return every process that serves FUSE, by pid; only root sees other users' processes."""
    ours = {str(path) for path in directories(host)}
    programs = {}
    for pid, _ in fuse_processes(host):
        with suppress(OSError):  # it ended, or belongs to another user
            programs[pid] = program_of(host, pid)
    loaded = each_in_time(partial(_libfuses, host), list(programs))
    return [
        Server(int(pid), program, *library_of(host, loaded.get(pid), ours))
        for pid, program in programs.items()
        if pid in loaded or os.path.exists(host.path(f"proc/{pid}"))
    ]


def _libfuses(host: Host, pid: str) -> list[str]:
    """Return the first few libfuse libraries that a process has mapped. Raises OSError."""
    with open(host.path(f"proc/{pid}/maps"), errors="surrogateescape") as maps:
        paths = (line.rstrip("\n").partition("/")[2].removesuffix(" (deleted)") for line in maps)
        ours = (f"/{path}" for path in paths if _LIBFUSE.match(path.rpartition("/")[2]))
        return list(islice(ours, _FEW))


def libfuse_of(host: Host, pid: str) -> str:
    """Return which libfuse a process uses, in the words of `Server`."""
    ours = {str(path) for path in directories(host)}
    return library_of(host, each_in_time(partial(_libfuses, host), [pid]).get(pid), ours)[1]


def library_of(host: Host, loaded: list[str] | None, ours: set[str]) -> tuple[str | None, str]:
    """Return a server's library and its kind; ``loaded`` is None if it was not read in time."""
    if loaded is None:
        return None, "unknown"
    library = min(loaded, default=None)
    return library, _kind(host, library, ours)


def _kind(host: Host, library: str | None, ours: set[str]) -> str:
    if library is None:
        return "none"
    if "/libfuse.so." in library:
        return "libfuse2"
    return "tuned" if os.path.dirname(host.path(library.lstrip("/"))) in ours else "stock"
