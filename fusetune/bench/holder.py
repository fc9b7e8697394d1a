# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that makes the scratch directory, holds it by descriptor, and removes it.

Only this process makes calls into the mount, because a call on files of a hung server cannot be
interrupted. It resolves the mount's path once, because the owner of a directory above it may
rename that directory meanwhile.
"""

import errno
import json
import mmap
import os
import re
import socket
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from fusetune import syscalls
from fusetune.bench import sandbox
from fusetune.bench.worker import Owner, forked, hear, respond
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.mounts.tree import leads_to, mount_of, places
from fusetune.text import printable

_RETRY_SECONDS = 1.0  # for files that a server shows late instead of those still open
_MOST_ENTRIES = 10_000  # to examine: the directory of a hostile server may be endless
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_XDEV
#: The file that readers use, written before the first sample.
LAID_OUT = "read-data"
# The names that jobs in workloads/ and papers/ give by ``filename=`` and ``filename_format=``.
_SCRATCH_FILE = re.compile(
    r"(read|write|checkpoint)-data|shared|(small|stream|storm|source|copy|w|own-\d+)\.\d+"
)


def is_scratch_file(name: str) -> bool:
    """Whether a job makes files of this name in the scratch directory."""
    return bool(_SCRATCH_FILE.fullmatch(name))


def remove_by_name(host: Host, mount: Mount, name: str) -> list[str]:
    """Remove the directory ``name`` of the mount's root; return the names of what remains.

    Raises FusetuneError if the path leads elsewhere, OSError.
    """
    top = open_top(host, mount)
    return Directory(top, name, syscalls.openat2(top, name, _DIRECTORY, _BENEATH)).remove()


def open_top(host: Host, mount: Mount) -> int:
    """Return a descriptor (O_PATH) of the root of exactly this mount.

    Raises FusetuneError if the path leads elsewhere, OSError.
    """
    place = leads_to(places(host), mount.path)
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    top = syscalls.openat2(syscalls.AT_FDCWD, mount.path, flags, syscalls.RESOLVE_NO_SYMLINKS)
    if place is None or place.device != mount.device or mount_of(host, top) != place.number:
        os.close(top)
        raise FusetuneError(
            f"{printable(mount.path)} leads to another mount; a directory above it was renamed or "
            "covered"
        )
    return top


class Directory:
    """The scratch directory, held by descriptor, with its identity at creation."""

    def __init__(self, top: int, name: str, fd: int) -> None:
        """``fd``: of the directory ``name`` in the mount's root, which is open as ``top``."""
        self.top, self.name, self.fd = top, name, fd
        status = os.fstat(fd)
        self.identity = _identity(status)
        self._maker = status.st_uid, status.st_gid
        self._laid_out: tuple[int, ...] | None = None
        self._read: int | None = None

    def is_there(self) -> bool:
        """Whether its name still leads to it. Raises OSError if it or the mount's root fails."""
        os.fstat(self.top)
        found = os.stat(self.name, dir_fd=self.top, follow_symlinks=False)
        return _identity(found) == _identity(os.fstat(self.fd)) == self.identity

    def examine(self, names: Sequence[str]) -> dict[str, tuple[str, int, bool]] | None:
        """Return each existing file's type letter (as in ls), size, and whether it was replaced.

        Only the file that is laid out beforehand is reported as replaced. None if the name of the
        directory leads to another one.
        """
        if not self.is_there():
            return None
        found = {}
        for name in names:
            with suppress(FileNotFoundError):
                found[name] = self._examine(name)
        return found

    def _examine(self, name: str) -> tuple[str, int, bool]:
        fd = syscalls.openat2(self.fd, name, os.O_PATH | os.O_NOFOLLOW, _BENEATH)
        status = os.fstat(fd)
        kind, size = stat.filemode(status.st_mode)[0], status.st_size
        if name != LAID_OUT:
            os.close(fd)
            return kind, size, False  # fio itself removes and recreates it
        if self._laid_out:
            os.close(fd)
            return kind, size, _identity(status) != self._laid_out
        # Keep it open, so that the server cannot forget it and assign a new inode number.
        self._laid_out = _identity(status)
        return kind, size, False

    def prepare(self) -> None:
        """Let every reader of the laid-out file begin in the same state. Raises OSError.

        What the last reader left in the page cache is dropped here; otherwise the next open(2)
        would do it, and would take longer the more there is. The kernel asks the server for the
        directory and the file again; otherwise the server's last reply might expire during a
        sample. mkdir(2) fails, because both exist, but looks up the name even if the last reply is
        still valid (LOOKUP_EXCL in fs/fuse/dir.c, fuse_dentry_revalidate).
        """
        os.posix_fadvise(self._reader(), 0, 0, os.POSIX_FADV_DONTNEED)
        for fd, name in ((self.top, self.name), (self.fd, LAID_OUT)):
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
                os.rmdir(name, dir_fd=fd)  # it was gone; `examine` reports that

    def give(self, *owner: int) -> None:
        """Change its owner to a uid and gid, or restore the owner if none is given. OSError."""
        os.fchown(self.fd, *(owner or self._maker))
        self.identity = _identity(os.fstat(self.fd))

    def cached_bytes(self) -> int:
        """Return how many bytes of the laid-out file the last reader brought into the page cache.

        `prepare` must have opened the file, because opening it may empty the cache. Raises OSError.
        """
        return syscalls.pages_brought(self._reader()) * mmap.PAGESIZE

    def _reader(self) -> int:
        """Return a descriptor that stays open until the directory is removed. Raises OSError."""
        if self._read is None:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            self._read = syscalls.openat2(self.fd, LAID_OUT, flags, _BENEATH)
        return self._read

    def rename(self, count: int, old: str, new: str) -> float:
        """Rename a file over another one; return the time in seconds. Raises OSError."""
        began = time.monotonic()
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        return time.monotonic() - began

    def copy_times(self, count: int, sources: str, copies: str) -> float:
        """Give ``count`` copies the times of their sources; return the time in seconds.

        The files are called ``sources`` and ``copies`` with a number from 0. The copies are removed
        afterwards, which is not included in the time. Raises OSError.
        """
        began = time.monotonic()
        for number in range(count):
            status = os.stat(f"{sources}.{number}", dir_fd=self.fd, follow_symlinks=False)
            times = (status.st_atime_ns, status.st_mtime_ns)
            os.utime(f"{copies}.{number}", ns=times, dir_fd=self.fd, follow_symlinks=False)
        seconds = time.monotonic() - began
        for number in range(count):
            os.unlink(f"{copies}.{number}", dir_fd=self.fd)
        return seconds

    def remove(self) -> list[str]:
        """Remove it and the files that workloads create; return the names of what remains.

        Links are not followed, and only files of the kind that fusetune creates are removed. If
        that fails for one of them, the others are still removed. Raises OSError.
        """
        if self._read is not None:
            os.close(self._read)
            self._read = None
        deadline = time.monotonic() + _RETRY_SECONDS
        while True:
            others, disguised = self._empty()
            if not others and not disguised and self._remove_itself():
                return []
            if disguised or time.monotonic() > deadline:
                return [printable(name)[:40] for name in (*disguised, *others)[:3]]
            time.sleep(0.05)

    def _empty(self) -> tuple[list[str], list[str]]:
        """Remove our files; return the other names, and ours that are not regular files."""
        with os.scandir(self.fd) as entries:
            names = [entry.name for entry in islice(entries, _MOST_ENTRIES)]
        disguised, failed = [], None
        for name in filter(is_scratch_file, names):
            try:
                status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    os.unlink(name, dir_fd=self.fd)
                else:
                    disguised.append(name)
            except FileNotFoundError:
                continue
            except OSError as error:
                failed = error
        if failed:
            raise failed
        return [name for name in names if not is_scratch_file(name)], disguised

    def _remove_itself(self) -> bool:
        """Return whether it is gone or replaced; False if it is not empty."""
        try:
            if self.is_there():
                os.rmdir(self.name, dir_fd=self.top)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False
        return True


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode), status.st_uid


class Holder:
    """The process that makes the directory, holds it, serves requests for it and removes it."""

    def __init__(self, host: Host, mount: Mount, name: str, program: str) -> None:
        self._host, self._mount, self._name, self._program = host, mount, name, program
        self._directory: Directory | None = None

    def serve(self, line: socket.socket) -> None:
        """Create it, serve requests until the other end closes, and always remove it."""
        try:
            if respond(line, self._begin):
                while request := line.recv(1 << 16):
                    verb, *arguments = json.loads(request)
                    respond(line, partial(self._do, verb, arguments))
        finally:
            with suppress(OSError, FusetuneError):
                self._remove()

    def _begin(self) -> tuple[int | None, bool]:
        """Return free space in bytes, None if unknown, and whether programs are confined."""
        confined = sandbox.own_namespaces()
        top, fd = self._opened()
        try:
            if confined:
                sandbox.confine(fd, self._program)
            else:
                os.fchdir(fd)
        finally:
            Owner.of(self._mount).become()
            self._directory = Directory(top, self._name, fd)
        space = os.fstatvfs(fd)
        return space.f_bavail * space.f_frsize if space.f_blocks else None, confined

    def _opened(self) -> tuple[int, int]:
        """Create and open it as the mount's owner, because root may have no access to the mount.

        Returns descriptors of the mount's root and of the directory.
        """
        owner = Owner.of(self._mount)
        if owner.uid == os.geteuid():
            return self._make()
        with forked(owner, self._send) as line:
            hear(line)
            top, fd = socket.recv_fds(line, 1, 2)[1]
        return top, fd

    def _send(self, line: socket.socket) -> None:
        made: list[int] = []
        if respond(line, lambda: made.extend(self._make())):
            socket.send_fds(line, [b" "], made)

    def _make(self) -> tuple[int, int]:
        top = open_top(self._host, self._mount)
        os.mkdir(self._name, 0o700, dir_fd=top)
        try:
            return top, syscalls.openat2(top, self._name, _DIRECTORY, _BENEATH)
        except OSError:
            with suppress(OSError):
                os.rmdir(self._name, dir_fd=top)
            raise

    def _do(self, verb: str, arguments: Sequence[Any]) -> Any:
        actions: dict[str, Callable[..., Any]] = {"remove": self._remove}
        if self._directory:
            here = self._directory
            actions |= {"give": here.give, "examine": here.examine}
            actions |= {"rename": here.rename, "copy_times": here.copy_times}
            actions |= {"cached_bytes": here.cached_bytes, "prepare": here.prepare}
        return actions[verb](*arguments)

    def _remove(self) -> list[str]:
        """Remove it as the mount's owner; return the names of what remains."""
        directory, self._directory = self._directory, None
        return directory.remove() if directory else []
