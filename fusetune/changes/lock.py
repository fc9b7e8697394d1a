# SPDX-License-Identifier: GPL-2.0-or-later
"""The exclusive right to change or measure a mount."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from fusetune.changes.journal import key_of, name_of
from fusetune.errors import FusetuneError, reason
from fusetune.files import remove
from fusetune.host import Host
from fusetune.mounts.mount import Mount


class Busy(FusetuneError):
    """Another fusetune process is working on the mount."""


def clear_after_crash(host: Host, mount: Mount) -> None:
    """Remove the lock file of a killed process: the mount has its values again."""
    path = host.run_dir / f"{key_of(mount)}.lock"
    if path.exists():
        clear_lock(host, path)


def _holder(text: bytes) -> tuple[str, str]:
    """Return the process id and the instance of the mount in a lock file; "" if there is none."""
    owner, _, instance = text.decode("ascii", "replace").partition(" ")
    return owner, instance


def instance_in(path: Path) -> str:
    """Return `Mount.instance` from a lock file, "" if there is none.

    Raises FileNotFoundError if the lock was released meanwhile.
    """
    return _holder(path.read_bytes())[1]


def clear_lock(host: Host, path: Path) -> None:
    with suppress(Busy), Lock(host, None, path.stem):
        pass  # releasing it removes it


class Lock:
    """Exclusive right to change or measure one mount or the host's knobs; a crash releases it.

    A file in the run directory, locked with flock(2) and removed on release. It has the holder's
    process id and `Mount.instance`. ``left_behind``: whether the previous holder was killed, and
    may have left its work on this mount unfinished.
    """

    def __init__(
        self, host: Host, mount: Mount | None, key: str | None = None, *, in_passing: bool = False
    ) -> None:
        """Take the lock. Raises `Busy`, naming the other process, if it is taken.

        ``key``: `key_of` a mount that is gone. ``in_passing``: what a killed holder left stays.
        """
        name = key or name_of(mount)
        self._path = host.make_dir(host.run_dir) / f"{key or key_of(mount)}.lock"
        while True:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._fd = os.open(self._path, flags, 0o600)
            except OSError as error:
                raise FusetuneError(
                    f"cannot lock {name}: {self._path}: {reason(error)}; run fusetune as root"
                ) from error
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                owner, _ = _holder(os.pread(self._fd, 64, 0))
                os.close(self._fd)
                raise Busy(
                    f"another fusetune (pid {owner or 'unknown'}) is working on {name}; "
                    "wait until it has finished"
                ) from error
            if self._current():
                break
            os.close(self._fd)  # its holder removed the file between our open and lock
        found = os.pread(self._fd, 64, 0)
        self._kept = found if in_passing else b""
        owner, instance = _holder(found)
        mine = "" if mount is None or mount.instance is None else str(mount.instance)
        self.left_behind = bool(owner) and instance in ("", mine)
        self._note(f"{os.getpid()} {mine}".rstrip().encode())

    def _note(self, holder: bytes) -> None:
        """Write who holds the lock; on a full disk, it is held without."""
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, holder, 0)

    def _current(self) -> bool:
        try:
            return os.stat(self._path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if self._kept:
                self._note(self._kept)
            else:
                remove(self._path)
        finally:
            os.close(self._fd)
