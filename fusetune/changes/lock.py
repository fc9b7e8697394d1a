# SPDX-License-Identifier: GPL-2.0-or-later
"""The exclusive right to change or measure a mount."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from fusetune.changes.journal import key_of, name_of
from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.mounts.mount import Mount


class Busy(FusetuneError):
    """Another fusetune process is working on the mount."""


def clear_after_crash(host: Host, mount: Mount) -> None:
    """Remove the lock file of a killed process: the mount has its values by now."""
    path = host.run_dir / f"{key_of(mount)}.lock"
    if path.exists():
        clear_lock(host, path)


def clear_lock(host: Host, path: Path) -> None:
    with suppress(Busy), Lock(host, None, path.stem):
        pass  # releasing it removes it


class Lock:
    """Exclusive right to change or measure one mount or the host's knobs; a crash releases it.

    A file in the run directory, locked with flock(2) and removed on release. ``left_behind``:
    whether the previous holder was killed, and may have left its work unfinished.
    """

    def __init__(self, host: Host, mount: Mount | None, key: str | None = None) -> None:
        """Take the lock. Raises `Busy`, naming the other process, if it is taken.

        ``key``: `key_of` a mount that is gone, to remove its lock file.
        """
        name = key or name_of(mount)
        self._path = host.make_dir(host.run_dir) / f"{key or key_of(mount)}.lock"
        while True:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._fd = os.open(self._path, flags, 0o600)
            except OSError as error:
                raise FusetuneError(
                    f"cannot lock {name}: {self._path}: {reason(error)}; run it as root"
                ) from error
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                owner = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
                os.close(self._fd)
                raise Busy(
                    f"another fusetune (pid {owner or 'unknown'}) is working on {name}; "
                    "wait until it ends"
                ) from error
            if self._current():
                break
            os.close(self._fd)  # its holder removed the file between our open and lock
        self.left_behind = os.fstat(self._fd).st_size > 0
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def _current(self) -> bool:
        try:
            return os.stat(self._path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)
