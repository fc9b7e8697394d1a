# SPDX-License-Identifier: GPL-2.0-or-later
"""The mounts of a mount namespace, from /proc/PID/mountinfo."""

import re
from dataclasses import dataclass
from functools import lru_cache

from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.text import unescape


@dataclass(frozen=True)
class Line:
    """One line of mountinfo (proc_pid_mountinfo(5)).

    ``number`` and ``parent``: mount IDs. ``options``: those of the mount, then of the super block;
    ro and rw are those of the super block. ``read_only``: whether the mount is. systemd makes all
    mounts read-only in the namespace of a service that has ProtectSystem=strict (systemd.exec(5)).
    """

    number: int
    parent: int
    device: str
    path: str
    options: tuple[str, ...]
    read_only: bool
    fstype: str
    source: str


@lru_cache(maxsize=4096)  # `watch` reads the same lines again with every mount that comes
def _parse(line: bytes) -> Line | None:
    fields, _, tail = line.partition(b" - ")
    words, rest = fields.split(b" "), tail.split(b" ")
    if len(words) < 6 or len(rest) < 3:
        return None
    flags = unescape(words[5]).split(",")
    own = [flag for flag in flags if flag not in ("ro", "rw")]
    return Line(
        number=int(words[0]),
        parent=int(words[1]),
        device=words[2].decode(),
        path=unescape(words[4]),
        options=(*own, *unescape(rest[2]).split(",")),
        read_only="ro" in flags,
        fstype=unescape(rest[0]),
        source=unescape(rest[1]),
    )


def mountinfo(host: Host, pid: str = "self") -> list[Line]:
    """Return every mount of a process's mount namespace. Raises FusetuneError.

    Up to Linux 6.7, the topmost of a stack comes last; since then, the latest that was made.
    """
    try:
        with open(host.path(f"proc/{pid}/mountinfo"), "rb") as stream:
            return [line for line in map(_parse, stream.read().split(b"\n")) if line]
    except OSError as error:
        raise FusetuneError(f"cannot read /proc/{pid}/mountinfo: {reason(error)}") from error


def fstypes(host: Host, pid: str) -> set[str]:
    """Return the types of all file systems that are mounted where a process is.

    Raises FusetuneError where that cannot be read.
    """
    return {line.fstype for line in mountinfo(host, pid)}


def points_of(host: Host, types: re.Pattern[str]) -> list[str]:
    """Return where file systems are mounted whose whole type ``types`` matches."""
    lines = [line for line in mountinfo(host) if types.fullmatch(line.fstype)]
    return list(dict.fromkeys(line.path for line in lines))
