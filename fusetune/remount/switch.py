# SPDX-License-Identifier: GPL-2.0-or-later
"""Remounts a file system through fstab or systemd, and waits until it replies.

Only a mount that a file describes can be switched: a server started by hand may have had an
environment, a terminal or a password that cannot be reproduced.
"""

import os
import select
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.masking import mask_line
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.recipes.edits import Way
from fusetune.remount.checks import replies
from fusetune.remount.commands import Running, Waits, run
from fusetune.text import printable, shell_word
from systemd import journal

#: Seconds to stop the old server; for the new mount to be there, and to reply.
_STOPPING, COMING, REPLYING = 90.0, 10.0, 10.0
_POLL = 0.05
#: Seconds after which a step is told, and until it is told again.
_SHORT, _AGAIN = 2.0, 10.0
_LINES = 3
_Identity = tuple[str, int | None]


@dataclass(frozen=True)
class Switch:
    """How to unmount a file system and mount it again. ``secrets``: as for `mask_line`.

    ``tell``: called with a line about each step that takes more than 2 seconds. ``known``: all
    mounts of before; another one may lie below the old one, at the same path.
    """

    host: Host
    mount: Mount
    way: Way
    secrets: Collection[str] = ()
    tell: Callable[[str], None] = lambda line: None
    known: Collection[_Identity] = ()

    @property
    def commands(self) -> list[list[str]]:
        """The commands, in order."""
        if self.way.unit:
            return [["systemctl", "restart", self.way.unit]]
        return [["umount", "--no-canonicalize", self.way.point], ["mount", self.way.point]]

    def words(self) -> list[str]:
        """Return the commands as shell lines."""
        return [" ".join(map(shell_word, command)) for command in self.commands]

    def is_there(self) -> bool:
        """Whether the old mount is still there."""
        return _identity(self.mount) in map(_identity, discover(self.host))

    def forward(self) -> Mount:
        """Unmount the old mount, make the new one, and return it once it replies.

        Raises FusetuneError with the reason if it does not.
        """
        if not self.host.real:
            raise FusetuneError("only the running system's file systems can be mounted")
        servers = Daemons(self.host).processes(self.mount)
        with ExitStack() as opened:
            ends = []
            for pid in servers:
                with suppress(ProcessLookupError):
                    ends.append(os.pidfd_open(int(pid)))
                    opened.callback(os.close, ends[-1])
            if not self.way.unit:
                self._unmount()
                # Until then, its cache or lock is in use.
                _wait_for(
                    lambda: all(map(_has_ended, ends)), COMING, self._waits("lose its server")
                )
        return self.make()

    def _unmount(self) -> None:
        status, output = run(self.commands[0], _STOPPING, self._waits("unmount"))
        if status:
            raise FusetuneError(f"cannot unmount it: {self._last(output)}")

    def _waits(self, what: str) -> Waits:
        """Return what tells that a step takes long; ``what`` the mount is waited for to do."""
        due = time.monotonic() + _SHORT

        def waits(left: float) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due += _AGAIN
                self._told(what, left)

        return waits

    def _told(self, what: str, left: float) -> None:
        path = printable(self.mount.path)
        self.tell(f"waiting for {path} to {what}, at most {left:.0f} s more")

    def make(self) -> Mount:
        """Make the mount, or restart its unit, and return it once it replies.

        Raises FusetuneError.
        """
        if self.way.unit:
            return self._restart(self.way.unit)
        with Running(self.commands[-1]) as program:
            found = self._wait(lambda: self._failure(program))
            program.status(COMING)  # mount(8) still writes the options to /run/mount
            return found

    def _failure(self, program: Running) -> str | None:
        if program.status():
            return self._last(program.output())
        return None

    def _restart(self, unit: str) -> Mount:
        began = time.time()
        run(["systemctl", "reset-failed", unit], _STOPPING)
        status, output = run(["systemctl", "--no-block", "restart", unit], _STOPPING)
        if status:
            raise FusetuneError(self._last(output))
        _wait_for(
            lambda: not self.is_there() or self._unit_failed(unit),
            *(_STOPPING, self._waits("unmount")),
        )
        if self.is_there():
            raise FusetuneError(f"systemd cannot unmount it; see 'systemctl status {unit}'")
        return self._wait(lambda: self._said(unit, began) if self._unit_failed(unit) else None)

    def _unit_failed(self, unit: str) -> bool:
        return run(["systemctl", "is-failed", "--quiet", unit], _STOPPING)[0] == 0

    def _said(self, unit: str, began: float) -> str:
        """Return the journal entries of a unit's latest start, after ``began`` (epoch, seconds).

        Those that the journal read after the unit had failed do not tell which start they are of.
        """
        show = ["systemctl", "show", "--property", "InvocationID", "--value", unit]
        _, start = run(show, _STOPPING)
        run(["journalctl", "--sync"], _STOPPING)
        lines: deque[str] = deque(maxlen=_LINES)

        def has_come() -> bool:
            with suppress(OSError), journal.Reader() as reader:  # restoring the mount matters more
                reader.add_match(_SYSTEMD_UNIT=unit)
                reader.seek_realtime(began)
                entries = (e for e in reader if e.get("_SYSTEMD_INVOCATION_ID", start) == start)
                lines.extend(str(entry.get("MESSAGE", "")) for entry in entries)
            return bool(lines)

        _wait_for(has_come, _SHORT)
        return self._last("\n".join(lines))

    def _wait(self, failure: Callable[[], str | None]) -> Mount:
        """Return the new mount once it is there and replies. Raises FusetuneError."""
        found: list[Mount] = []
        said: list[str] = []

        def has_come() -> bool:
            found[:] = filter(self._is_new, discover(self.host))
            if not found and (why := failure()):
                said.append(why)
            return bool(found or said)

        _wait_for(has_come, COMING, self._waits("be mounted"))
        if not found:
            raise FusetuneError(said[0] if said else f"it did not appear within {COMING:.0f} s")
        if not self._replies():
            raise FusetuneError(f"it did not reply within {REPLYING:.0f} s")
        return found[-1]

    def _replies(self) -> bool:
        if replies(self.mount.path, _SHORT):
            return True
        left = REPLYING - _SHORT
        self._told("reply", left)
        return replies(self.mount.path, left)

    def _is_new(self, other: Mount) -> bool:
        points = (other.path, *other.also_at)
        return self.mount.path in points and _identity(other) not in self.known

    def clear(self) -> None:
        """Remove the new mount, even if it does not reply. Raises FusetuneError."""
        for _ in filter(self._is_new, discover(self.host)):
            run(["umount", "--no-canonicalize", "--lazy", self.mount.path], _STOPPING)

    def back(self) -> None:
        """Restore the old mount from the old files. Raises FusetuneError."""
        if not self.is_there():
            self.make()

    def _last(self, output: str) -> str:
        """Return the last lines that a program printed, without secrets."""
        lines = [mask_line(line.strip(), self.secrets) for line in output.splitlines()[-_LINES:]]
        return printable("; ".join(filter(None, lines))) or "no reason given"


def identities(host: Host) -> frozenset[_Identity]:
    """Return what identifies each FUSE mount that is there now."""
    return frozenset(map(_identity, discover(host)))


def also_served(host: Host, mount: Mount) -> list[str]:
    """Return the paths of other mounts that the same processes serve."""
    daemons = Daemons(host)
    ours = daemons.processes(mount).keys()
    others = [one for one in discover(host) if _identity(one) != _identity(mount)]
    return [one.path for one in others if ours & daemons.processes(one).keys()]


def _identity(mount: Mount) -> _Identity:
    return mount.device, mount.instance


def _has_ended(process: int) -> bool:
    return bool(select.select([process], [], [], 0)[0])


def _wait_for(
    condition: Callable[[], bool], seconds: float, waits: Waits = lambda left: None
) -> None:
    """Wait until a condition holds, at most ``seconds``."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        waits(end - time.monotonic())
        time.sleep(_POLL)
