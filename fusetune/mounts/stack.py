# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mounts a mount lies on: where its server keeps files, found without touching a path.

A server controls its own command line, so each layer has the way it was found. An open file is a
fact from the kernel. An argument may not be a backing directory. The source of a mount is set by
its server and only counts if nothing else is known.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, chain, islice

from fusetune.deadline import each_in_time
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.daemons import Daemons, words_of
from fusetune.mounts.discover import mounts_of
from fusetune.mounts.mount import Mount, is_fuse
from fusetune.mounts.mountinfo import Line, mountinfo
from fusetune.mounts.words import Namespace, holds_files

_MOST_OPEN = 256  # examined files of a process; a server opens its backing files first
_MOST_WORDS = 256  # examined words of a command line
_MOST_TEXT = 1 << 15  # characters of them: a word may hold very many paths
_ABSOLUTE = re.compile(r"/[^:=,]*")
_RELATIVE = re.compile(r"(?:/|\.{1,2}(?:/|$)|[^-:=,/][^:=,/]*/)[^:=,]*")
_OVERLAY = re.compile(r"(?:lowerdir|lowerdir\+|datadir\+|upperdir)=(.*)", re.DOTALL)
_OVERLAYS_WORD = re.compile(r"(?:.*,)?(?:-o)?(?:lowerdir|upperdir|source)=", re.DOTALL)


class FoundBy(StrEnum):
    """How a layer was found, the most reliable way first."""

    OPEN = "open file"
    LOOP = "loop device"
    OPTION = "mount option"
    ARGUMENT = "argument"
    SOURCE = "source"


@dataclass(frozen=True)
class Layer:
    """A mount that another mount lies on.

    ``mount``: the FUSE mount that it is, None for a file system of the kernel. ``path``: its mount
    point. ``elsewhere``: whether that is in the server's mount namespace instead of ours.
    """

    device: str
    path: str
    fstype: str
    found_by: FoundBy
    mount: Mount | None = None
    elsewhere: bool = False
    line: Line | None = None


Found = tuple[FoundBy, Line]


class Stacks:
    """The layers below each mount of this host.

    Each process and each mount namespace is read only once, for any number of mounts. ``daemons``:
    the processes found.
    """

    def __init__(self, host: Host, mounts: Sequence[Mount]) -> None:
        """``mounts``: all FUSE mounts of this mount namespace. Raises FusetuneError."""
        self._host = host
        self._mounts = {mount.device: mount for mount in mounts}
        self.daemons = Daemons(host)
        self._here = Namespace(mountinfo(host))
        self._devices = {line.device for line in self._here.lines}
        self._namespaces: dict[str, Namespace | None] = {}
        self._words: dict[str, Sequence[str]] = {}
        self._open: dict[str, Sequence[tuple[int, bool]]] = {}
        self._serves: dict[str, set[str]] = defaultdict(set)
        self._below: dict[str, Sequence[Layer]] = {}
        for mount in mounts:
            for pid in self.daemons.named(mount):
                self._serves[pid].add(mount.device)
        pids = {pid for mount in mounts for pid in self.daemons.processes(mount)}
        self._read_words(pids)
        self._read_open(pids)

    def below(self, mount: Mount) -> Sequence[Layer]:
        """Return the layers directly below ``mount``."""
        return self._of(mount.device, mount, None)

    def below_layer(self, layer: Layer) -> Sequence[Layer]:
        """Return the layers directly below a layer."""
        return self._of(layer.device, layer.mount, layer.line)

    def down(self, mount: Mount) -> list[Layer]:
        """Return all layers below ``mount``, each once and after the layers below it.

        Cycles are followed only once.
        """
        found: list[Layer] = []
        seen = {mount.device}
        trail: list[Layer] = []
        todo = [iter(self.below(mount))]
        while todo:
            layer = next(todo[-1], None)
            if layer is None:
                todo.pop()
                found += [trail.pop()] if trail else []
            elif layer.device not in seen:
                seen.add(layer.device)
                trail.append(layer)
                todo.append(iter(self.below_layer(layer)))
        return found

    def _of(self, device: str, mount: Mount | None, line: Line | None) -> Sequence[Layer]:
        if device not in self._below:
            evidence = chain(
                self._by_device(device),
                self._by_server(mount) if mount else self._by_options(line),
            )
            best: dict[str, Found] = {}
            rank = list(FoundBy).index
            for found_by, one in evidence:
                known = best.get(one.device)
                if one.device != device and (not known or rank(found_by) < rank(known[0])):
                    best[one.device] = (found_by, one)
            self._below[device] = [self._layer(*found) for found in best.values()]
        return self._below[device]

    def _layer(self, found_by: FoundBy, line: Line) -> Layer:
        elsewhere = line.device not in self._devices
        mount = self._mounts.get(line.device)
        if mount is None and is_fuse(line.fstype):
            (mount,) = mounts_of(self._host, [line])
        path = mount.path if mount else line.path
        return Layer(line.device, path, line.fstype, found_by, mount, elsewhere, line)

    # What the kernel says

    def _by_device(self, device: str) -> Iterator[Found]:
        """Yield where the image of a loop device is, if ``device`` is one or a partition of one."""
        if device.startswith("0:"):
            return  # no block device
        for place in ("loop", "../loop"):
            with suppress(OSError):
                file = self._host.read(f"sys/dev/block/{device}/{place}/backing_file")
                for line in self._here.led_to(file.removesuffix(" (deleted)")):
                    yield FoundBy.LOOP, line

    def _by_options(self, line: Line | None) -> Iterator[Found]:
        """Yield the layers of the kernel's own overlayfs."""
        for option in line.options if line and line.fstype == "overlay" else ():
            if match := _OVERLAY.fullmatch(option):
                for found in self._here.led_to(match[1]):
                    yield FoundBy.OPTION, found

    # What the server has open, and says

    def _by_server(self, mount: Mount) -> Iterator[Found]:
        told = False
        for pid in self._processes(mount):
            space = self._namespace(pid)
            if space is None:
                continue
            own = self._serves[pid] | {mount.device}
            found = chain(
                ((FoundBy.OPEN, line) for line in self._open_in(pid, space)),
                ((FoundBy.ARGUMENT, line) for line in self._arguments(pid, space, mount)),
            )
            for found_by, line in found:
                if line.device not in own and holds_files(line):
                    told = True
                    yield found_by, line
        if not told and not mount.source.startswith("/dev/"):
            for line in self._here.led_to(mount.source, mount.device):
                if holds_files(line):
                    yield FoundBy.SOURCE, line

    def _processes(self, mount: Mount) -> list[str]:
        """Return the processes that serve ``mount``.

        If the kernel does not show them, the mount point of another mount may be among a server's
        arguments as its source: its own mount point is the last one.
        """
        if certain := self.daemons.named(mount):
            return list(certain)
        found = []
        for pid in self.daemons.processes(mount):
            points = [self._here.devices_at.get(word) for word in self._words_once(pid)]
            last = next(filter(None, reversed(points)), {mount.device})
            found += [pid] if mount.device in last else []
        return found

    def _open_in(self, pid: str, space: Namespace) -> Sequence[Line]:
        """Return the mounts with open files of a process; for kernel file systems, directories."""
        if pid not in self._open:
            self._read_open({pid})
        found = {}
        for number, is_directory in self._open[pid]:
            line = space.by_number.get(number)
            if line and (is_directory or is_fuse(line.fstype)):
                found[line.device] = line
        return list(found.values())

    def _read_open(self, pids: set[str]) -> None:
        """Read in which mounts processes have files open."""
        self._open |= dict.fromkeys(pids, ())
        self._open |= each_in_time(self._open_of, sorted(pids, key=int)) if pids else {}

    def _open_of(self, pid: str) -> list[tuple[int, bool]]:
        """Return the ID of the mount of each open file, and whether that is a directory.

        A file without a path, such as an epoll instance, may make the reader of its fdinfo wait.
        """
        found = []
        directory = self._host.path(f"proc/{pid}/fd")
        numbers = sorted(map(int, os.listdir(directory)))
        for number in islice(filter(lambda one: one > 2, numbers), _MOST_OPEN):
            with suppress(OSError, KeyError, ValueError):  # it is closed by now
                if os.readlink(f"{directory}/{number}").startswith("/"):
                    lines = self._host.lines(f"proc/{pid}/fdinfo/{number}")
                    fields = dict(line.split(":", 1) for line in lines[:4])
                    flags = int(fields.get("flags", "0"), 8)
                    found.append((int(fields["mnt_id"]), bool(flags & os.O_DIRECTORY)))
        return found

    def _arguments(self, pid: str, space: Namespace, mount: Mount) -> Iterator[Line]:
        """Yield the FUSE mounts to which a process's arguments lead.

        A mount of the kernel's own file systems only counts if it is the source: the word before
        the mount point, or a directory of an overlay. Others are for logs, keys and the like.
        """
        words = self._words_once(pid)
        points = {mount.path, *mount.also_at}
        last = max((n for n, word in enumerate(words) if word in points), default=None)
        for number, word in enumerate(words):
            if number == last:
                continue
            is_source = _OVERLAYS_WORD.match(word) or (
                last is not None and number == last - 1 and word.startswith("/")
            )
            for line in space.led_to(word, mount.device):
                if is_source or is_fuse(line.fstype):
                    yield line

    def _words_once(self, pid: str) -> Sequence[str]:
        if pid not in self._words:
            self._read_words({pid})
        return self._words[pid]

    def _read_words(self, pids: set[str]) -> None:
        """Read the arguments of processes; apparent relative paths are made absolute."""
        self._words |= dict.fromkeys(pids, ())
        self._words |= each_in_time(self._words_of, sorted(pids, key=int)) if pids else {}

    def _words_of(self, pid: str) -> list[str]:
        directory = os.readlink(self._host.path(f"proc/{pid}/cwd"))
        words = words_of(self._host, "cmdline", pid)[1:_MOST_WORDS]
        lengths = accumulate(map(len, words))
        words = [word for word, length in zip(words, lengths, strict=True) if length <= _MOST_TEXT]
        # A server in the background has changed to "/".
        relative = _RELATIVE if directory != "/" else _ABSOLUTE
        return [
            os.path.normpath(os.path.join(directory, word)) if relative.fullmatch(word) else word
            for word in words
        ]

    def _namespace(self, pid: str) -> Namespace | None:
        """Return the mounts that a process sees; None if they cannot be read."""
        try:
            name = os.readlink(self._host.path(f"proc/{pid}/ns/mnt"))
            ours = os.readlink(self._host.path("proc/self/ns/mnt"))
        except OSError:
            return self._here
        if name == ours:
            return self._here
        if name not in self._namespaces:
            self._namespaces[name] = None
            with suppress(FusetuneError):
                self._namespaces[name] = Namespace(mountinfo(self._host, pid))
        return self._namespaces[name]
