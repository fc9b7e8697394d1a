# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mount a path leads to, by the kernel's tree of mounts, without touching the path."""

from dataclasses import dataclass

from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.text import unescape


@dataclass(frozen=True)
class Place:
    """A mount and where it is attached (proc_pid_mountinfo(5)).

    ``number`` and ``parent``: mount IDs, which the kernel reuses after an unmount. ``device``:
    that of the super block, such as ``0:43``.
    """

    number: int
    parent: int
    device: str
    path: str


def places(host: Host) -> list[Place]:
    """Return all mounts of this process's namespace. Raises FusetuneError if it cannot be read."""
    try:
        with open(host.path("proc/self/mountinfo"), "rb") as stream:
            lines = [line.split(b" ") for line in stream.read().splitlines()]
    except OSError as error:
        raise FusetuneError(f"cannot read /proc/self/mountinfo: {reason(error)}") from error
    return [Place(int(w[0]), int(w[1]), w[2].decode(), unescape(w[4])) for w in lines]


def leads_to(every: list[Place], path: str) -> Place | None:
    """Return the mount that the kernel's walk along ``path`` ends in; None if there is none.

    ``path`` is absolute and without symbolic links.
    """
    numbers = {place.number for place in every}
    here = None
    below = [p for p in every if p.parent == p.number or p.parent not in numbers]
    while below := [place for place in below if _is_above(place.path, path)]:
        # The walk meets the shortest first. It ends below the mount point, so what is attached to
        # the same mount further along the path comes into view only if nothing covers it.
        here = min(below, key=lambda place: len(place.path))
        below = [p for p in every if p.parent == here.number and p.number != here.number]
    return here


def _is_above(point: str, path: str) -> bool:
    return point in ("/", path) or path.startswith(point + "/")


def mount_of(host: Host, descriptor: int) -> int:
    """Return the ID of the mount in which ``descriptor`` of this process is open (fdinfo)."""
    text = host.read(f"proc/self/fdinfo/{descriptor}")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("mnt_id:"))
