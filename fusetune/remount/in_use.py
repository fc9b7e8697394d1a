# SPDX-License-Identifier: GPL-2.0-or-later
"""What keeps a mount in use: open files, other mounts, and other mount namespaces.

Nothing here sends requests to the mount's server: the kernel reports the file systems of open
files.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fusetune.deadline import each_in_time
from fusetune.host import Host
from fusetune.mounts.daemons import process_ids
from fusetune.mounts.mount import Mount
from fusetune.syscalls import device_below
from fusetune.text import printable, unescape

#: Seconds for one process, and for all of them.
_EACH, _ALL = 0.5, 10.0


@dataclass(frozen=True)
class _Attached:
    """A line of mountinfo, with its propagation (proc_pid_mountinfo(5)); 0: none."""

    number: int
    parent: int
    device: str
    path: str
    shared: int
    master: int


def users(host: Host, mount: Mount) -> list[str]:
    """Return the users of ``mount``, a few words each; root sees every process.

    A copy in another mount namespace counts unless it is unmounted together with this one.
    """
    pids = process_ids(host)
    found = each_in_time(partial(_uses, host, mount.device), pids, _EACH, _ALL)
    processes = [pid for pid in pids if found.get(pid)]
    return [
        *(f"{_name(host, pid)} (pid {pid})" for pid in processes),
        *_mounts(_attached(host, "self"), mount),
        *_elsewhere(host, mount, pids),
    ]


def _uses(host: Host, device: str, pid: str) -> bool:
    """Whether a process has a file, a directory or memory of the file system. Raises OSError."""
    directory = host.path(f"proc/{pid}")
    places = [f"{directory}/cwd", f"{directory}/root"]
    places += [f"{directory}/fd/{fd}" for fd in os.listdir(f"{directory}/fd")]
    for place in places:
        with suppress(OSError):  # it was closed meanwhile
            if device_below(place) == device:
                return True
    major, minor = (int(part) for part in device.split(":"))
    mapped = f"{major:02x}:{minor:02x}"
    with open(f"{directory}/maps", encoding="utf-8", errors="surrogateescape") as lines:
        return any(line.split(maxsplit=4)[3:4] == [mapped] for line in lines)


def _name(host: Host, pid: str) -> str:
    with suppress(OSError):
        return printable(host.read(f"proc/{pid}/comm"))
    return "a process that has ended"


def _mounts(attached: Sequence[_Attached], mount: Mount) -> Iterator[str]:
    ours = {one.number for one in attached if one.device == mount.device}
    for one in attached:
        if one.device == mount.device and one.path != mount.path:
            yield f"its bind mount at {printable(one.path)}"
        elif one.parent in ours and one.device != mount.device:
            yield f"the mount on top of it at {printable(one.path)}"


def _elsewhere(host: Host, mount: Mount, pids: Sequence[str]) -> Iterator[str]:
    """Yield the mount namespaces that keep the mount when it is unmounted here."""
    seen: dict[str, str] = {}
    for pid in ("self", *pids):
        with suppress(OSError):
            seen.setdefault(os.readlink(host.path(f"proc/{pid}/ns/mnt")), pid)
    every = {pid: _attached(host, pid) for pid in seen.values()}
    ours = every.pop("self", [])
    parents = {one.parent for one in ours if one.device == mount.device}
    groups = {one.shared for one in ours if one.number in parents} - {0}
    groups = _reached(groups, [one for lines in every.values() for one in lines])
    for pid, lines in every.items():
        by_number = {one.number: one for one in lines}
        for one in lines:
            # An unmount propagates from the mount that it is attached to (fs/pnode.c,
            # propagate_umount()).
            parent = by_number.get(one.parent)
            goes = parent is not None and {parent.shared, parent.master} & groups
            if one.device == mount.device and not goes:
                where = printable(one.path)
                yield f"the mount namespace of {_name(host, pid)} (pid {pid}), at {where}"
                break


def _reached(groups: set[int], lines: Sequence[_Attached]) -> set[int]:
    """Return peer groups with those that receive from them, directly or indirectly."""
    while more := {one.shared for one in lines if one.master in groups and one.shared} - groups:
        groups = groups | more
    return groups


def _attached(host: Host, pid: str) -> list[_Attached]:
    """Return the mounts of a process's namespace; empty if it has ended."""
    try:
        with open(host.path(f"proc/{pid}/mountinfo"), "rb") as stream:
            lines = [line.split(b" ") for line in stream.read().split(b"\n") if line]
    except OSError:
        return []
    return [
        _Attached(
            *(int(words[0]), int(words[1]), words[2].decode(), unescape(words[4])),
            _group(words, b"shared:"),
            _group(words, b"master:"),
        )
        for words in lines
    ]


def _group(words: Sequence[bytes], kind: bytes) -> int:
    fields = words[6 : words.index(b"-", 6)]
    return next((int(one.removeprefix(kind)) for one in fields if one.startswith(kind)), 0)
