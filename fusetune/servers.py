# SPDX-License-Identifier: GPL-2.0-or-later
"""Which program serves a mount."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterator

from fusetune.host import Host
from fusetune.mounts import Mount

_DEVICES = ("fuse", "fusetuned")


class Servers:
    """The programs that serve mounts, found by one look at every process.

    The kernel names the connection beside each open /dev/fuse (fs/fuse/dev.c,
    fuse_dev_show_fdinfo(); seen on 6.18, absent on 6.12). Elsewhere a process with /dev/fuse open
    and the mount point among its arguments is taken for its server.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._looked = False
        self._by_connection: dict[str, set[str]] = defaultdict(set)
        self._by_argument: dict[str, set[str]] = defaultdict(set)

    def look_again(self) -> None:
        """Forget what was found: there are new mounts."""
        self._looked = False

    def of(self, mount: Mount) -> Collection[str]:
        """Return the programs that have ``mount`` open as its server; none if it cannot be told."""
        if not self._looked:
            self._look()
        major, minor = (int(part) for part in mount.device.split(":"))
        found = self._by_connection.get(str(major << 20 | minor))
        return found or self._by_argument.get(mount.path) or ()

    def _look(self) -> None:
        self._by_connection.clear()
        self._by_argument.clear()
        for pid in filter(str.isdigit, os.listdir(self._host.path("proc"))):
            connections = list(device_connections(self._host, pid))
            if connections:
                self._note(pid, connections)
        self._looked = True

    def _note(self, pid: str, connections: list[str | None]) -> None:
        try:
            program = os.readlink(self._host.path(f"proc/{pid}/exe")).removesuffix(" (deleted)")
            folder = os.readlink(self._host.path(f"proc/{pid}/cwd"))
            words = self._host.read(f"proc/{pid}/cmdline").split("\0")
        except OSError:
            return  # it ended, or it is not ours to look at
        for connection in filter(None, connections):
            self._by_connection[connection].add(program)
        if None in connections:
            for word in words[1:]:
                self._by_argument[os.path.normpath(os.path.join(folder, word))].add(program)


def device_connections(host: Host, pid: str) -> Iterator[str | None]:
    """Yield, for each /dev/fuse that the process has open, its connection, None if not told."""
    try:
        for fd, _ in open_devices(host, pid):
            lines = host.read(f"proc/{pid}/fdinfo/{fd}").splitlines()
            fields = dict(line.split(":", 1) for line in lines if ":" in line)
            yield fields.get("fuse_connection", "").strip() or None
    except OSError:
        return  # as above


def open_devices(host: Host, pid: str) -> Iterator[tuple[str, str]]:
    """Yield descriptor and name, "fuse" or "fusetuned", of each device that a process has open.

    Raises OSError where the process ended, or is not ours to look at.
    """
    for fd in os.listdir(host.path(f"proc/{pid}/fd")):
        try:
            # By name alone: where another mount namespace has its /dev is not told.
            name = os.path.basename(os.readlink(host.path(f"proc/{pid}/fd/{fd}")))
        except FileNotFoundError:
            continue  # closed since it was listed
        if name in _DEVICES:
            yield fd, name
