# SPDX-License-Identifier: GPL-2.0-or-later
"""Sections of the configuration: which mounts they match, and which takes precedence."""

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from functools import cache, partial

from fusetune.host import Host
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.disks import disk_names
from fusetune.mounts.kubelet import ROOTS, kubelet_volume
from fusetune.mounts.mount import Mount
from fusetune.toml.file import Origin

#: Keys that the tuned libfuse3 also knows.
LIBRARY_MATCHES = ("path", "source", "server", "fstype")
#: Keys by which a section matches mounts, the most specific first.
MATCHES = (
    *("path", "volume_handle", "volume", "label", "source", "server", "namespace", "csi_driver"),
    *("fstype", "mount_option"),
)
#: Directories of the kubelet, where each mount has a new path and only root mounts.
SHARED_BY_DEFAULT = tuple(f"{root}/**" for root in ROOTS)


class Layer(IntEnum):
    """Where a value comes from; the higher one takes precedence."""

    VENDOR = 0
    SHARED = 1
    SAVED = 2
    ADMIN = 3


@dataclass(frozen=True)
class Section:
    """One ``[[mount]]``: ``matches`` by key of `MATCHES`, ``values`` by knob name.

    ``leave_alone``: whether such mounts are left alone, None if not set. ``options``: of the tuned
    libfuse3, which reads them from the file itself. ``needs``: sizes of `NEEDS` that the server
    requests, in bytes. ``accept``: options of the server whose condition holds, None if not set.
    ``volume_class``: mounts of one class share results although their sources differ.
    """

    layer: Layer
    origin: Origin
    matches: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    leave_alone: bool | None = None
    options: str | None = None
    needs: Mapping[str, int] = field(default_factory=dict)
    accept: tuple[str, ...] | None = None
    volume_class: str | None = None

    @property
    def rank(self) -> tuple[Layer, list[tuple[int, int]]]:
        """Of two sections for a mount, the one with the greater rank wins.

        By layer, then by the keys of `MATCHES` in their order: an exact value before a pattern, and
        the pattern with more literal characters before the other.
        """
        return self.layer, [_specificity(self.matches.get(key)) for key in MATCHES]


@dataclass(frozen=True)
class Settings:
    """Settings of the whole host.

    ``allow_users``: names or uids whose mounts may get more dirty memory. ``max_dirty_percent``:
    the dirty memory allowed to all tuned mounts together, in percent of the host's limit.
    ``exclude``: patterns of file system types to leave alone. ``max_pipe_size`` (bytes),
    ``max_pages``: how far the host's limits may be raised for mounts that need it.
    ``idle_seconds``: after which `watch` ends; 0: never. ``keep``: entries of a mount's history; 0:
    none. ``share_results``: patterns of mount points that get saved results of similar volumes.
    """

    allow_users: tuple[str, ...] = ()
    max_dirty_percent: int = 100
    exclude: tuple[str, ...] = ()
    idle_seconds: int = 60
    max_pipe_size: int = 8 << 20
    max_pages: int = 1024
    keep: int = 50
    share_results: tuple[str, ...] = SHARED_BY_DEFAULT


@dataclass(frozen=True)
class Described:
    """What is known about a mount, possibly a future one: the possible values of each property.

    ``more``: properties that take time to find, by the other keys of `MATCHES`.
    """

    paths: Collection[str]
    sources: Collection[str]
    fstypes: Collection[str]
    servers: Callable[[], Collection[str]]
    more: Callable[[], Mapping[str, Collection[str]]] = dict


@dataclass(frozen=True)
class Config:
    """All files together; ``sections`` in the order of files and lines."""

    sections: tuple[Section, ...] = ()
    settings: Settings = field(default_factory=Settings)

    @property
    def by_namespace(self) -> bool:
        """Whether some section matches mounts by the namespace of a pod."""
        return any("namespace" in section.matches for section in self.sections)

    def matching(self, host: Host, mount: Mount, servers: Daemons) -> Iterator[Section]:
        """Yield the sections that match ``mount``, not ordered by rank."""
        paths = (mount.path, *mount.also_at)
        servers_of, more = partial(servers.of, mount), cache(partial(_more, host, mount))
        described = Described(paths, [mount.source], [mount.fstype], servers_of, more)
        yield from self.matching_any(described)

    def matching_any(self, described: Described) -> Iterator[Section]:
        """Yield the sections that may match what is ``described``, not ordered by rank."""
        for section in self.sections:
            if _about(section.matches, described):
                yield section


def ranked(sections: list[Section]) -> list[Section]:
    """Return the sections by precedence, highest first; of equals the later one."""
    order = sorted(range(len(sections)), key=lambda n: (sections[n].rank, n), reverse=True)
    return [sections[number] for number in order]


def _specificity(pattern: str | None) -> tuple[int, int]:
    if pattern is None:
        return 0, 0
    literal = len(re.sub(r"[*?]|\[[^]]*\]", "", pattern))
    return (2, literal) if literal == len(pattern) else (1, literal)


def path_matches(pattern: str, path: str) -> bool:
    """``*`` stays within a directory's name; ``**`` is any number of directories."""
    return _parts_match(pattern.split("/"), path.split("/"))


def _parts_match(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_parts_match(patterns[1:], parts[n:]) for n in range(len(parts) + 1))
    return (
        bool(parts)
        and fnmatch.fnmatchcase(parts[0], patterns[0])
        and _parts_match(patterns[1:], parts[1:])
    )


def _about(matches: Mapping[str, str], described: Described) -> bool:
    for key, pattern in matches.items():
        if key == "path":
            found = any(path_matches(pattern, path) for path in described.paths)
        elif key == "server":
            found = any(_is_program(pattern, path) for path in described.servers())
        else:
            known = {"source": described.sources, "fstype": described.fstypes}
            words = known[key] if key in known else described.more().get(key, ())
            found = any(fnmatch.fnmatchcase(word, pattern) for word in words)
        if not found:
            return False
    return True


def _more(host: Host, mount: Mount) -> dict[str, Collection[str]]:
    """Return further properties of a mount, by the keys of `MATCHES`."""
    label, volume = disk_names(host, mount.source).label, kubelet_volume(host, mount)
    found: dict[str, str | None] = {"label": label, **(asdict(volume) if volume else {})}
    return {"mount_option": mount.options} | {key: [word] for key, word in found.items() if word}


def _is_program(pattern: str, executable: str) -> bool:
    """A pattern without a slash is compared with the program's name only."""
    if "/" not in pattern:
        return fnmatch.fnmatchcase(os.path.basename(executable), pattern)
    return path_matches(pattern, executable)
