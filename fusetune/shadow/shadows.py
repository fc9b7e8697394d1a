# SPDX-License-Identifier: GPL-2.0-or-later
"""Shadow mounts: second instances of a mount's file system in a separate mount namespace.

fusetune itself enters that namespace to measure there, and covers its own directory in /run: what
it creates there vanishes with the namespace.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from fusetune import syscalls
from fusetune.bench.worker import Companion, Unanswered
from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.shadow.conditions import Conditions
from fusetune.shadow.guard import MOUNTED, Guard, Start

#: Seconds for a guard to end its processes: more than it waits itself.
_ENDED = 10.0


class Shadow:
    """One shadow mount, until it is ended."""

    def __init__(self, mount: Mount, companion: Companion) -> None:
        self.mount = mount
        self._companion = companion

    def end(self) -> None:
        """Unmount it and stop its server. Raises FusetuneError if that fails."""
        try:
            self._companion.ask(_ENDED, "end")
        except (OSError, Unanswered) as error:
            raise FusetuneError(
                f"the server of the shadow mount {self.mount.bdi} was not stopped: {error}"
            ) from error
        finally:
            self._companion.close(_ENDED)


class Shadows:
    """Mounts shadows under given conditions; a context manager that ends them all.

    ``inherited``: a descriptor that each process keeps open which has something to remove in a
    shadow mount.
    """

    def __init__(self, host: Host, conditions: Conditions) -> None:
        self._host, self._conditions = host, conditions
        self._shadows: list[Shadow] = []
        self._count = 0
        self._contexts = ExitStack()
        self._alive = self.inherited = -1

    def __enter__(self) -> Self:
        """Enter a mount namespace. Raises FusetuneError if that is not allowed."""
        here = str(self._host.make_dir(self._host.run_dir))
        with ExitStack() as contexts:
            self._alive, self.inherited = os.pipe()
            contexts.callback(os.close, self._alive)
            contexts.callback(os.close, self.inherited)
            try:
                syscalls.unshare(syscalls.CLONE_NEWNS)
                syscalls.propagate("/", syscalls.MS_SLAVE)
                tmpfs = syscalls.new_tmpfs(mode="755", size="1m")
                syscalls.attach(tmpfs, syscalls.AT_FDCWD, here)
            except OSError as error:
                raise FusetuneError(
                    f"cannot create a mount namespace for shadow mounts: {reason(error)}; run "
                    "fusetune as root with CAP_SYS_ADMIN"
                ) from error
            os.close(tmpfs)
            contexts.callback(syscalls.detach, here)
            self._contexts = contexts.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._contexts:
            for shadow in self._shadows.copy():
                if error is None:
                    self.end(shadow)
                else:
                    with suppress(FusetuneError):  # the user sees the first failure
                        self.end(shadow)

    def mount(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        interceptor: Sequence[str] = (),
    ) -> Shadow:
        """Start a server and return its mount; for ``words`` and ``interceptor`` see `Start`.

        Raises FusetuneError if it does not mount.
        """
        self._count += 1
        point = self._host.run_dir / str(self._count)
        point.mkdir(mode=0o700)
        os.chown(point, self._conditions.uid, self._conditions.gid)
        start = Start(words, environment, str(point), interceptor)
        guard = Guard(self._host, self._conditions, start, self._alive)
        companion = Companion(guard.serve, [self._alive, *self._conditions.descriptors])
        try:
            companion.hear(MOUNTED + _ENDED)
            mount = next((one for one in discover(self._host) if one.path == str(point)), None)
            if mount is None:
                raise FusetuneError("the server unmounted it immediately")
        except BaseException:
            companion.close(_ENDED)
            raise
        shadow = Shadow(mount, companion)
        self._shadows.append(shadow)
        return shadow

    def end(self, shadow: Shadow) -> None:
        """Unmount ``shadow`` and stop its server. Raises FusetuneError if that fails."""
        self._shadows.remove(shadow)
        shadow.end()
