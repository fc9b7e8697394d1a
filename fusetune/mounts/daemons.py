# SPDX-License-Identifier: GPL-2.0-or-later
"""Which program serves a mount."""

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from fusetune.deadline import each_in_time
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.syscalls import device_number

_DEVICES = ("fuse", "fusetuned")
# Fields of fdinfo for /dev/fuse. Files of other kinds may have lines chosen by their owner.
_FDINFO = {"pos", "flags", "mnt_id", "ino", "lock", "fuse_connection"}
_OTHERS_SECONDS = 5.0  # for the open files of processes that are not root's
_LARGEST = 1 << 21  # bytes of all arguments: 16 times the kernel's MAX_ARG_STRLEN


class Daemons:
    """The programs that serve mounts, found in one pass over all processes.

    The kernel shows the connection of each open /dev/fuse (fs/fuse/dev.c,
    fuse_dev_show_fdinfo(); seen on 6.18, absent on 6.12). On other kernels, a process counts as the
    server if it has /dev/fuse open, the mount point among its arguments, and only user ids of root
    or the mount's owner: other users cannot pose as its server.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._looked = False
        self._by_connection: dict[str, dict[str, str]] = defaultdict(dict)
        self._untold: dict[str, frozenset[int]] = {}
        self._by_argument: dict[int, Mapping[str, dict[str, str]]] = {}

    def forget(self) -> None:
        """Forget the results, because there are new mounts."""
        self._looked = False

    def of(self, mount: Mount) -> Collection[str]:
        """Return the programs that serve ``mount``; empty if unknown."""
        return set(self.processes(mount).values())

    def processes(self, mount: Mount) -> Mapping[str, str]:
        """Return the programs that serve ``mount`` by process id; empty if unknown."""
        if named := self.named(mount):
            return named
        # In a container the server's argument is the path on the node, which may not come first.
        by_path = self._arguments(mount.owner_uid)
        found = (by_path.get(path) for path in (mount.path, *mount.also_at))
        return next(filter(None, found), {})

    def named(self, mount: Mount) -> Mapping[str, str]:
        """Return those of `processes` for which the kernel shows the connection."""
        if not self._looked:
            self._look()
        major, minor = (int(part) for part in mount.device.split(":"))
        return self._by_connection.get(str(major << 20 | minor), {})

    def _look(self) -> None:
        self._by_connection.clear()
        self._untold.clear()
        self._by_argument.clear()
        for pid, connections in fuse_processes(self._host):
            # The process may have ended, or belong to another user.
            with suppress(OSError):
                program = program_of(self._host, pid)
                for connection in filter(None, connections):
                    self._by_connection[connection][pid] = program
                if None in connections:
                    self._untold[pid] = _uids(self._host, pid)
        self._looked = True

    def _arguments(self, owner: int) -> Mapping[str, dict[str, str]]:
        """Return the processes that may serve ``owner``'s mounts, by path in their arguments."""
        if owner not in self._by_argument:
            found: dict[str, dict[str, str]] = defaultdict(dict)
            pids = [pid for pid, uids in self._untold.items() if uids <= {0, owner}]
            for pid, (program, paths) in each_in_time(self._paths, pids).items():
                for path in paths:
                    found[path][pid] = program
            self._by_argument[owner] = found
        return self._by_argument[owner]

    def _paths(self, pid: str) -> tuple[str, list[str]]:
        """Return a process's program, and its arguments as paths."""
        directory = os.readlink(self._host.path(f"proc/{pid}/cwd"))
        words = words_of(self._host, "cmdline", pid)[1:]
        paths = [os.path.normpath(os.path.join(directory, word)) for word in words]
        return program_of(self._host, pid), paths


def program_of(host: Host, pid: str) -> str:
    """Return the path of the program that a process runs. Raises OSError."""
    return os.readlink(host.path(f"proc/{pid}/exe")).removesuffix(" (deleted)")


def words_of(host: Host, name: str, pid: str) -> list[str]:
    """Return the strings of a process's ``cmdline`` or ``environ``. Raises OSError.

    A hostile process can delay the reader: see `fusetune.deadline`.
    """
    with open(host.path(f"proc/{pid}/{name}"), "rb") as stream:
        content = stream.read(_LARGEST)
    return [os.fsdecode(word) for word in content.removesuffix(b"\0").split(b"\0") if content]


def _uids(host: Host, pid: str) -> frozenset[int]:
    """Return a process's real, effective, saved and file system uids. Raises OSError."""
    for line in host.lines(f"proc/{pid}/status"):
        if line.startswith("Uid:"):
            return frozenset(int(word) for word in line.split()[1:])
    raise FileNotFoundError(f"/proc/{pid}/status has no Uid line")


def process_ids(host: Host) -> list[str]:
    """Return the id of every process, in order."""
    return sorted(filter(str.isdigit, os.listdir(host.path("proc"))), key=int)


def fuse_processes(host: Host) -> Iterator[tuple[str, list[str | None]]]:
    """Yield each process that has /dev/fuse or /dev/fusetuned open, and its connections.

    None stands for a connection that the kernel does not show. In order of process id; only root
    sees other users' processes. Root's are examined first, because other users may have so many
    files open, or let a reader of them wait, that the time does not suffice for all.
    """
    numbers = _device_numbers(host)
    devices: dict[str, list[str]] = {}
    pids = process_ids(host)
    roots = {pid for pid in pids if _is_roots(host, pid)}
    end = time.monotonic() + _OTHERS_SECONDS
    for pid in sorted(pids, key=lambda pid: pid not in roots):
        if pid not in roots and time.monotonic() > end:
            break
        # The process may have ended, or belong to another user.
        with suppress(OSError):
            if found := [fd for fd, _ in _open_devices(host, pid, numbers)]:
                devices[pid] = found
    shown = each_in_time(
        lambda pid: [_connection(host, pid, fd) for fd in devices[pid]], list(devices)
    )
    yield from ((pid, shown[pid]) for pid in sorted(shown, key=int))


def _is_roots(host: Host, pid: str) -> bool:
    with suppress(OSError):
        return os.stat(host.path(f"proc/{pid}")).st_uid == 0
    return False


def _connection(host: Host, pid: str, fd: str) -> str | None:
    """Return the connection of a descriptor for /dev/fuse.

    Call it in a child with a time limit: the process can put an epoll instance in its place, and
    fdinfo of that waits, even for SIGKILL, as long as it likes (fs/eventpoll.c, ep_show_fdinfo()).
    """
    lines = host.lines(f"proc/{pid}/fdinfo/{fd}")
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if fields.keys() - _FDINFO:
        return None  # the descriptor's number was reused
    return fields.get("fuse_connection", "").strip() or None


def open_devices(host: Host, pid: str) -> Iterator[str]:
    """Yield the name, "fuse" or "fusetuned", of each such device that a process has open.

    Raises OSError if the process ended or belongs to another user.
    """
    for _, name in _open_devices(host, pid, _device_numbers(host)):
        yield name


def _device_numbers(host: Host) -> Mapping[str, str]:
    """Return the names of the existing devices, by number such as "10:229"."""
    found = {}
    for name in _DEVICES:
        with suppress(FileNotFoundError):
            found[host.read(f"sys/class/misc/{name}/dev")] = name
    return found


def _open_devices(host: Host, pid: str, numbers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for fd in os.listdir(host.path(f"proc/{pid}/fd")):
        path = host.path(f"proc/{pid}/fd/{fd}")
        # It may have been closed since, or be in a mount that root cannot access.
        with suppress(OSError):
            # Sockets and the like have no path. The name proves nothing: any file can be "fuse".
            if os.readlink(path).startswith("/") and (name := numbers.get(device_number(path))):
                yield fd, name
