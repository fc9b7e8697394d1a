# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a benchmark runs on a mount: held by a separate process, accessed only by descriptor.

The process that holds it resolves the mount's path only once, because the owner of a directory
above the mount may rename that directory meanwhile, and the server may show anything.
"""

import errno
import os
from collections.abc import Callable, Collection, Sequence
from socket import socket
from typing import Any

from fusetune.bench import sandbox
from fusetune.bench.sandbox import Rights
from fusetune.bench.worker import Companion
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.control import still_mounted
from fusetune.mounts.mount import Mount
from fusetune.mounts.tree import leads_to, places
from fusetune.text import printable

#: Types of files that are not regular, by their letter in ls.
KINDS = {
    "l": "a symbolic link",
    "d": "a directory",
    "p": "a FIFO",
    "s": "a socket",
    "c": "a device",
    "b": "a device",
}
#: A server that cannot make a directory at all replies ENOSYS.
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
# Remedies by errno.
_REMEDIES = {
    errno.ENOSPC: "no space is left in it, or less than mergerfs's minfreespace; free some, or use "
    "a smaller --size",
    errno.EDQUOT: "its quota is used up; free some, or use a smaller --size",
    errno.EROFS: "it is read-only",
    errno.EACCES: "its owner may not write in its top directory",
    errno.EPERM: "its server does not permit it (rclone does with --vfs-cache-mode=writes)",
    errno.ENOSYS: "its server cannot write",
    errno.ENOTCONN: "its server has died; mount it again",
    errno.ECONNABORTED: "its server has died; mount it again",
    errno.ENODEV: "it was unmounted meanwhile",
    errno.ENOENT: "it was unmounted, or its directory removed, meanwhile",
    errno.ELOOP: "its server shows a symbolic link under a name that fusetune created",
}


class Unwritable(FusetuneError):
    """No file can be created in the mount's top directory."""


def failure(mount: Mount, number: int, doing: str) -> FusetuneError:
    """Return the error for errno ``number`` on ``mount`` while ``doing`` something."""
    remedy = _REMEDIES.get(number, f"{os.strerror(number)}; check its server's log")
    kind = Unwritable if number in _UNWRITABLE else FusetuneError
    return kind(f"cannot {doing} in {printable(mount.path)}: {remedy}")


class BenchPlace:
    """A process that holds a place on a mount, and the means to run programs there."""

    def __init__(
        self,
        host: Host,
        mount: Mount,
        serve: Callable[[socket], None],
        inherited: Collection[int] = (),
    ) -> None:
        """Start the process, which runs ``serve``; ``inherited``: descriptors that it keeps open.

        Raises FusetuneError if the path of ``mount`` leads elsewhere.
        """
        self._host, self._mount = host, mount
        place = leads_to(places(host), mount.path)
        if place is None or place.device != mount.device:
            raise FusetuneError(
                f"{printable(mount.path)} leads to another file system: it was unmounted, or "
                "another mount covers it"
            )
        self._place = place
        self._confined = False
        self._rights: Rights | None = None
        self._companion = Companion(serve, inherited)

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs ``words`` there."""
        return sandbox.command(self._companion.pid, self._confined, self._rights, words)

    def cached_bytes(self) -> int | None:
        """Return how many bytes of the file are in the page cache after a run, None if unknown.

        Evicted pages are included.
        """
        return None

    def _ask(self, seconds: float, verb: str, *arguments: Any) -> Any:
        """Ask the process that holds the place.

        Raises FusetuneError if it fails, `Unanswered` after ``seconds``.
        """
        try:
            return self._companion.ask(seconds, verb, *arguments)
        except OSError as error:
            raise failure(self._mount, error.errno or errno.EIO, "measure") from error

    def check_path(self) -> None:
        """Raise FusetuneError unless the path still leads to the mount."""
        every = places(self._host)
        if not self._is_among(every):
            raise failure(self._mount, errno.ENODEV, "measure")
        if leads_to(every, self._mount.path) != self._place:
            raise FusetuneError(
                f"cannot measure in {printable(self._mount.path)}: the path no longer leads to "
                "this mount; a directory above it was renamed or covered"
            )

    def _is_among(self, every: Sequence[Any]) -> bool:
        same = (self._place.number, self._place.device)
        return still_mounted(self._host, self._mount) and any(
            (place.number, place.device) == same for place in every
        )
