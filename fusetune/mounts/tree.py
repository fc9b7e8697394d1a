# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mount a path leads to, from the kernel's tree of mounts, without touching the path."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fusetune.host import Host
from fusetune.mounts.mountinfo import mountinfo


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
    return [Place(one.number, one.parent, one.device, one.path) for one in mountinfo(host)]


class Attached(Protocol):
    """A mount, as far as needed for the kernel's walk along a path; see `Place`."""

    @property
    def number(self) -> int: ...
    @property
    def parent(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def path(self) -> str: ...


A = TypeVar("A", bound=Attached)


class MountTree(Generic[A]):
    """The mounts of one namespace, indexed by parent and place of attachment."""

    def __init__(self, every: Sequence[A]) -> None:
        numbers = {one.number for one in every}
        self._on: dict[int | None, dict[str, A]] = defaultdict(dict)
        for one in every:
            is_root = one.parent == one.number or one.parent not in numbers
            self._on[None if is_root else one.parent][one.path] = one

    def leads_to(self, path: str, besides: str | None = None) -> A | None:
        """Return the mount that the kernel's walk along ``path`` ends in; None if there is none.

        ``path`` is absolute and without symbolic links. ``besides``: the device of a super block
        that is ignored, as if it were not mounted.
        """
        here, on = None, self._on.get(None, {})
        while found := _first(on, path, besides):
            # The walk meets the shortest first. It ends below the mount point, so what is attached
            # to the same mount further along the path is found only if nothing covers it.
            here, on = found, self._on.get(found.number, {})
        return here


def _first(on: dict[str, A], path: str, besides: str | None) -> A | None:
    """Return which of the mounts on one mount the walk along ``path`` meets first."""
    if not on:
        return None
    points = (on.get(point) for point in _above(path))
    return next((one for one in points if one and one.device != besides), None)


def _above(path: str) -> Iterator[str]:
    """Yield the directories that the walk along ``path`` passes, and ``path``, from "/" on."""
    yield "/"
    end = 0
    while path != "/" and end < len(path):
        end = (path + "/").index("/", end + 1)
        yield path[:end]


def leads_to(every: Sequence[Place], path: str) -> Place | None:
    """Return where `MountTree.leads_to` leads among these mounts."""
    return MountTree(every).leads_to(path)


def mount_of(host: Host, descriptor: int) -> int:
    """Return the ID of the mount in which ``descriptor`` of this process is open (fdinfo)."""
    lines = host.lines(f"proc/self/fdinfo/{descriptor}")
    return next(int(line.split()[1]) for line in lines if line.startswith("mnt_id:"))
