# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mounts the words of a command line, or a source, lead to, judged by text alone."""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property

from fusetune.mounts.mount import is_fuse
from fusetune.mounts.mountinfo import Line
from fusetune.mounts.tree import MountTree

# File systems in which no server keeps files.
_KERNELS_OWN = {"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "autofs", "mqueue"}
_LONGEST = 4096  # bytes of a path: PATH_MAX
_MOST_GLOBS = 16  # per word; each is compared with all mount points
_NAME = re.compile(r"(?:[^/:]*=)?(/.*)", re.DOTALL)
_ITEM = re.compile(r"(?:[^/:]*=)?(/.*?)(?:=(?:RW|RO|NC))?", re.DOTALL | re.IGNORECASE)
_GLOB = re.compile(r"[*?\[]")


def holds_files(line: Line) -> bool:
    """Whether a server may keep files in a mount: of FUSE, a disk, a network or memory."""
    return line.fstype not in _KERNELS_OWN and line.path != "/dev"


def paths_in(word: str) -> Iterator[str]:
    """Yield the absolute paths in a word: ``/a``, ``--x=/a``, ``a=/b,c=/d``, ``/a=RW:/b=NC,1G``.

    Paths after a host, as in ``host:/a``, do not count. Words longer than a path can be are
    left out.
    """
    for item in re.split(r"(?<!\\),", word):
        if not _NAME.fullmatch(item):
            continue
        for branch in item.split(":"):
            match = _ITEM.fullmatch(branch)
            if match and len(match[1]) <= _LONGEST:
                yield "/" + os.path.normpath(match[1]).lstrip("/")


class Namespace:
    """The mounts that a process sees, by number, and by the words that lead to them."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self._tree = MountTree(lines)

    @cached_property
    def by_number(self) -> dict[int, Line]:
        """The mounts by their ID."""
        return {line.number: line for line in self.lines}

    @cached_property
    def devices_at(self) -> dict[str, set[str]]:
        """The devices of the FUSE mounts at each mount point."""
        found: dict[str, set[str]] = {}
        for line in self.lines:
            if is_fuse(line.fstype):
                found.setdefault(line.path, set()).add(line.device)
        return found

    def led_to(self, word: str, device: str = "") -> Iterator[Line]:
        """Yield the mounts that the paths in ``word`` lead to.

        ``device``: of a mount whose server gave the word. Its mount point then means what it
        covers.
        """
        match = _NAME.fullmatch(word) if len(word) <= _LONGEST else None
        whole = self._tree.leads_to(match[1]) if match else None
        if whole and re.search("[,:]", whole.path):
            yield whole  # a path that contains a separator
            return
        paths = dict.fromkeys(paths_in(word))
        globs = [path for path in paths if _GLOB.search(path)]
        too_many = set(globs[_MOST_GLOBS:])
        for path in paths:
            if path not in too_many:
                yield from self._at(path, device)

    def _at(self, path: str, device: str) -> Iterator[Line]:
        line = self._tree.leads_to(path)
        glob = _GLOB.search(path)
        if glob and not (line and _GLOB.search(line.path)):  # no mount has that literal name
            yield from self._fitting(path) or self._at(path[: glob.start()] or "/", device)
            return
        if line and (line.device, line.path) == (device, path):
            line = self._tree.leads_to(path, besides=device)
        if line:
            yield line

    def _fitting(self, pattern: str) -> list[Line]:
        """Return the mounts whose mount point matches a shell pattern."""
        parts = pattern.split("/")
        return [
            line
            for line in self.lines
            if line.path.count("/") == len(parts) - 1
            and all(map(fnmatchcase, line.path.split("/"), parts))
        ]
