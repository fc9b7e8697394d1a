# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that serves a mount: its program, command line, environment, library and unit."""

import fnmatch
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from fusetune.deadline import each_in_time
from fusetune.host import Host
from fusetune.libfuse.users import libfuse_of
from fusetune.mounts.daemons import Daemons, words_of
from fusetune.mounts.mount import Mount

_LIBRARIES = {"tuned": "libfuse3", "stock": "libfuse3", "libfuse2": "libfuse2", "none": "none"}


@dataclass(frozen=True)
class Served:
    """What is known about the process that serves a mount; None or empty if unknown.

    ``library``: "libfuse2", "libfuse3", or "none" for a server that uses neither. ``root``: whether
    it runs as root. ``unit``: its systemd service. ``notes``: what could not be read, one sentence
    each. ``pid``: the process. ``elsewhere``: whether it is in another mount namespace. ``began``:
    when it started, as in /proc/PID/stat, and ``given``: all its words. See `is_still`.
    """

    program: str | None = None
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    library: str | None = None
    root: bool = False
    unit: str | None = None
    notes: tuple[str, ...] = ()
    pid: int | None = None
    elsewhere: bool = False
    began: str | None = None
    given: tuple[str, ...] = ()


def served(host: Host, mount: Mount, daemons: Daemons | None = None) -> Served:
    """Return what is known about the process that serves ``mount``, without touching its path.

    ``daemons``: the processes found before, to examine several mounts.
    """
    if mount.fstype == "virtiofs":
        return Served(root=True)  # the hypervisor's host serves it
    processes = (daemons or Daemons(host)).processes(mount)
    if not processes:
        run = "; run fusetune as root" if os.geteuid() else ""
        return Served(notes=(f"the process that serves the mount was not found{run}",))
    pid = min(processes, key=int)
    began = _began(host, pid)
    words, variables = _words(host, "cmdline", pid), _words(host, "environ", pid)
    notes = []
    if not words:
        why = "cannot be read" if words is None else "is empty: the process is ending"
        notes.append(f"the command line of process {pid}, which serves the mount, {why}")
    if variables is None:
        notes.append(f"the environment of process {pid}, which serves the mount, cannot be read")
    elsewhere = _elsewhere(host, pid)
    if elsewhere:
        notes.append(
            f"process {pid}, which serves the mount, is in another mount namespace: paths in its "
            "command line refer to that namespace"
        )
    return Served(
        processes[pid],
        tuple(words or ()),
        _variables(variables or ()),
        _LIBRARIES.get(libfuse_of(host, pid)),
        _is_root(host, pid),
        _unit(host, pid),
        tuple(notes),
        int(pid),
        elsewhere,
        began,
        tuple(words or ()),
    )


def is_still(host: Host, process: Served) -> bool:
    """Return whether a process is the one that was examined, with the same words and variables.

    Its number may belong to another user's process by now, or it may have executed a program that
    runs with other rights.
    """
    pid = str(process.pid)
    words, variables = _words(host, "cmdline", pid), _words(host, "environ", pid)
    same = (tuple(words or ()), _variables(variables or ())) == (process.given, process.environment)
    return same and process.began is not None and _began(host, pid) == process.began


def _words(host: Host, name: str, pid: str) -> list[str] | None:
    """Return the strings of ``cmdline`` or ``environ``; None if they cannot be read in time."""
    return each_in_time(partial(words_of, host, name), [pid]).get(pid)


def _began(host: Host, pid: str) -> str | None:
    with suppress(OSError, IndexError):  # the program's name may contain spaces and parentheses
        return host.read(f"proc/{pid}/stat").rpartition(")")[2].split()[19]
    return None


def _variables(words: Sequence[str]) -> dict[str, str]:
    return dict(one.partition("=")[::2] for one in words if "=" in one)


def without_background(words: tuple[str, ...], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return a command line as it was before the server added words (`ServerFacts.background`)."""
    end = 1 + len(patterns)
    added = words[1:end]
    if len(added) < len(patterns) or not all(map(fnmatch.fnmatchcase, added, patterns)):
        return words
    return words[:1] + words[end:]


def _elsewhere(host: Host, pid: str) -> bool:
    try:
        theirs, ours = (os.readlink(host.path(f"proc/{one}/ns/mnt")) for one in (pid, "self"))
    except OSError:
        return False
    return theirs != ours


def _is_root(host: Host, pid: str) -> bool:
    with suppress(OSError):
        match = re.search(r"^Uid:\s+\d+\s+(\d+)", host.read(f"proc/{pid}/status"), re.MULTILINE)
        return match is not None and match[1] == "0"
    return False


def _unit(host: Host, pid: str) -> str | None:
    """Return the service that a process belongs to, from its control group (cgroups(7)).

    None for services of a user's systemd, which has other unit directories.
    """
    with suppress(OSError):
        for line in host.lines(f"proc/{pid}/cgroup"):
            _, controllers, path = line.split(":", 2)
            parts = path.split("/")
            if controllers not in ("", "name=systemd") or any(p.startswith("user@") for p in parts):
                continue
            for part in reversed(parts):
                if part.endswith(".service"):
                    return part
    return None


def version_of(host: Host, program: str, packages: list[str]) -> str | None:
    """Return the version of the package among ``packages`` that ``program`` belongs to.

    None if it belongs to none of them. Debian's epoch (before ``:``) and revision (after the last
    ``-``) are left out (deb-version(7)).
    """
    known = {program, program.removeprefix("/usr")}
    for package in packages:
        if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", package):
            continue
        with suppress(OSError):
            names = os.listdir(host.path("var/lib/dpkg/info"))
            lists = [n for n in names if re.fullmatch(rf"{re.escape(package)}(:\w+)?\.list", n)]
            if any(known.intersection(_lines(host, f"var/lib/dpkg/info/{one}")) for one in lists):
                return _packaged(host, package)
    return None


def _lines(host: Host, relative: str) -> list[str]:
    with open(host.path(relative), encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read().splitlines()


def _packaged(host: Host, package: str) -> str | None:
    text = "\n".join(_lines(host, "var/lib/dpkg/status"))
    entry = re.search(rf"^Package: {re.escape(package)}\n(?:.+\n)*?Version: (.+)$", text, re.M)
    if not entry:
        return None
    return re.sub(r"-[^-]*$", "", entry[1].partition(":")[2] or entry[1])
