# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmark's folder on a mount: made by us, removed at any exit."""

import errno
import os
import secrets
import select
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from fusetune.child import Owner, Unanswered, call
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts import Mount, printable, still_mounted
from fusetune.store import noted, scratch_note

_PREFIX = ".fusetune-"
_REMOVAL_SECONDS = 3.0

# What an error number met on a mount means to whoever runs a benchmark.
_REMEDIES = {
    errno.ENOSPC: "no space is left in it; free some, or use a smaller --size",
    errno.EDQUOT: "its quota is used up; free some, or use a smaller --size",
    errno.EROFS: "it is read-only; nothing can be measured without a scratch file",
    errno.EACCES: "permission denied; its owner must be able to write in its top folder",
    errno.EPERM: "not permitted; its owner must be able to write in its top folder",
    errno.ENOTCONN: "its server has died; mount it again",
    errno.ECONNABORTED: "its server has died; mount it again",
    errno.ENODEV: "it was unmounted meanwhile",
    errno.ENOENT: "it was unmounted, or its folder removed, meanwhile",
}


def failure(mount: Mount, number: int, doing: str) -> FusetuneError:
    """Return the error for ``number`` (errno) met on ``mount`` while ``doing`` something."""
    remedy = _REMEDIES.get(number, f"{os.strerror(number)}; see its server's log")
    return FusetuneError(f"cannot {doing} in {printable(mount.path)}: {remedy}")


@contextmanager
def scratch(
    host: Host,
    mount: Mount,
    owner: Owner,
    stuck: Sequence[subprocess.Popen[bytes]],
    seconds: float,
) -> Iterator[tuple[str, int | None]]:
    """Give a fresh folder (0700) on ``mount`` and the bytes free there, None if unknown.

    Afterwards it is gone, or, where the server does not answer, a child waits to remove it as soon
    as it does, after the processes that are ``stuck`` in it have ended. Raises FusetuneError where
    it cannot be made, `Unanswered` after ``seconds``.
    """
    remove_left_behind(host, mount)
    folder = os.path.join(mount.path, _PREFIX + secrets.token_hex(8))
    with noted(scratch_note(host, mount), folder):
        try:
            device, free = call(
                lambda: _create(folder), owner, seconds, if_late=lambda: _remove(folder, [])
            )
        except OSError as error:
            number = error.errno or errno.EIO
            raise failure(mount, number, "create a scratch folder") from error
        try:
            if device != mount.device:
                raise FusetuneError(
                    f"{printable(mount.path)} leads to another file system: it was unmounted or "
                    "covered meanwhile"
                )
            yield folder, free
        finally:
            if still_mounted(host, mount):
                _clear(folder, owner, stuck)


def remove_left_behind(host: Host, mount: Mount, seconds: float = _REMOVAL_SECONDS) -> None:
    """Remove the folder of a run that was killed before it could.

    Waits at most ``seconds`` for a server that does not answer; a child then goes on waiting.
    """
    note = scratch_note(host, mount)
    try:
        folder = os.fsdecode(note.read_bytes())
    except FileNotFoundError:
        return
    if os.path.dirname(folder) == mount.path:
        _clear(folder, Owner.of(mount), (), seconds)
    note.unlink(missing_ok=True)


def _clear(
    folder: str,
    owner: Owner,
    stuck: Sequence[subprocess.Popen[bytes]],
    seconds: float = _REMOVAL_SECONDS,
) -> None:
    pidfds = [os.pidfd_open(process.pid) for process in stuck]
    # OSError: a dead server's mount, or one unmounted meanwhile; there is nothing to remove then.
    with suppress(Unanswered, OSError):
        call(lambda: _remove(folder, pidfds), owner, seconds, keep=pidfds)
    for pidfd in pidfds:
        os.close(pidfd)


def _create(folder: str) -> tuple[str, int | None]:
    os.mkdir(folder, 0o700)
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        space = os.statvfs(folder)
    except OSError:
        os.rmdir(folder)
        raise
    device = f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}"
    return device, space.f_bavail * space.f_frsize if space.f_blocks else None


def _remove(folder: str, pidfds: Sequence[int]) -> None:
    """Remove ``folder`` once the processes of ``pidfds`` are gone; links are not followed."""
    for pidfd in pidfds:
        select.select([pidfd], [], [])
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
