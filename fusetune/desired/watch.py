# SPDX-License-Identifier: GPL-2.0-or-later
"""The service started by udev: sets the values of mounts as they appear, and ends when idle.

The bdi's event comes before the mount is visible, and the server's reply to INIT overwrites values
set before it (fs/fuse/inode.c, process_init_reply()). So values are set once the mount is in
mountinfo and no request is waiting.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from fusetune.changes.apply import Change
from fusetune.changes.journal import Damaged, key_of
from fusetune.changes.lock import Busy
from fusetune.changes.stale import remove_stale
from fusetune.desired.config import load, signature
from fusetune.desired.events import Events
from fusetune.desired.host_limits import raise_limits
from fusetune.desired.reconcile import reconcile
from fusetune.desired.resolve import Expected, Resolver
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.control import mount_controls, still_mounted, waiting
from fusetune.mounts.discover import discover, mounts_of
from fusetune.mounts.kubelet import namespace_to_come
from fusetune.mounts.mount import Mount
from fusetune.mounts.mountinfo import mountinfo
from fusetune.signals import Signals
from fusetune.text import printable, shell_word
from fusetune.toml.file import ConfigError
from systemd import daemon

#: Seconds between checks of a mount whose server has not replied to INIT yet.
_TICK = 0.005
#: Seconds to wait for the reply to INIT; then values are set, and once more after the reply.
_PATIENCE = 0.5
#: Seconds after which to give up on a server without a reply to INIT.
_GIVE_UP = 30.0
#: Seconds between checks of such a mount, and of one that another fusetune works on.
_SLOW_TICK = 0.25
#: The longest time in seconds between two looks for the namespace of a volume's pod.
_NAMESPACE_TICK = 1.0
#: Seconds between reads of mountinfo, so that a burst of mounts needs only a few.
_BREATH = 0.03
#: Seconds until the sum of dirty limits is read again.
_SUM_BELIEVED = 1.0
Say = Callable[[str], None]


@dataclass
class _Due:
    """A mount to set: not before ``at``, known ``since`` (monotonic seconds)."""

    mount: Mount
    since: float
    at: float
    early: bool = False  # set already, but before the reply to INIT


class Watch:
    """One run of the service."""

    def __init__(self, host: Host, say: Say, idle: float | None) -> None:
        """``idle``: seconds after which it ends, 0: never, None: as configured.

        Raises `ConfigError` if the configuration is invalid at the start.
        """
        self._host, self._say, self._idle = host, say, idle
        self._signature = signature(host)
        self._resolver = Resolver(host, load(host))
        self._known: dict[tuple[str, int], Mount] = {}
        self._due: dict[tuple[str, int], _Due] = {}
        self._leaving: list[Mount] = []
        self._told: dict[tuple[str, int], str] = {}
        self._active = time.monotonic()
        self._looked = self._summed = -_SUM_BELIEVED

    @property
    def _idle_seconds(self) -> float:
        configured = self._resolver.config.settings.idle_seconds
        return (configured if self._idle is None else self._idle) or float("inf")

    def run(self) -> None:
        """Serve until idle for long enough, or SIGTERM or SIGINT."""
        with ExitStack() as contexts:
            signals = contexts.enter_context(Signals())
            events = Events(self._host, signals)
            contexts.callback(events.close)
            self._remove_stale()
            self._look()
            self._work()
            daemon.notify("READY=1")
            while True:
                if events.wait(self._seconds_to_wait()):
                    time.sleep(max(0.0, self._looked + _BREATH - time.monotonic()))
                    self._look()
                self._work()
                self._ping()
                got = signals.take()
                if got & {signal.SIGTERM, signal.SIGINT}:
                    daemon.notify("STOPPING=1")
                    return
                if signal.SIGHUP in got:
                    self._reload()
                if self._is_idle():
                    # From here on, udev's start request takes effect after this end.
                    daemon.notify("STOPPING=1")
                    if events.wait(0):
                        self._look()
                    if not self._due:
                        return

    def _ping(self) -> None:
        if "WATCHDOG_USEC" in os.environ:
            daemon.notify("WATCHDOG=1")

    def _is_idle(self) -> bool:
        return not self._due and time.monotonic() - self._active >= self._idle_seconds

    def _seconds_to_wait(self) -> float:
        now = time.monotonic()
        # While a mount is due, the service is not idle, regardless of its last change.
        ends = [due.at - now for due in self._due.values()]
        if not ends:
            ends.append(self._active + self._idle_seconds - now)
        if limit := os.environ.get("WATCHDOG_USEC"):
            ends.append(int(limit) / 2e6)
        return min(*ends, 3600.0)

    def _look(self) -> None:
        """Find the mounts that appeared and those that are gone."""
        self._looked = now = time.monotonic()
        # Read once: a mount that came between two readings would be found without a connection.
        lines = mountinfo(self._host)
        mount_controls(self._host, lines)
        mounts = mounts_of(self._host, lines)
        found = {(m.device, m.instance): m for m in mounts if m.instance is not None}
        for key in self._known.keys() - found.keys():
            gone = self._known[key]
            self._due.pop(key, None)
            self._told.pop(key, None)
            self._resolver.gone(gone)
            self._leaving.append(gone)
            self._active = now
        self._clear_away()
        for key in found.keys() - self._known.keys():
            self._due[key] = _Due(found[key], now, now)
            self._active = now
        self._known = found  # a mount point's directory may have been renamed
        for key, due in self._due.items():
            due.mount = found[key]

    def _clear_away(self) -> None:
        """Remove the records of mounts that are no longer in mountinfo.

        Their bdi disappears later, with a separate event: much later if the mount was busy.
        """
        leaving, self._leaving = self._leaving, []
        for mount in leaving:
            if still_mounted(self._host, mount):
                self._leaving.append(mount)
            else:
                self._remove_stale(key_of(mount))

    def _remove_stale(self, key: str = "*") -> None:
        """Remove the records of gone mounts; a full or read-only disk must not end the service."""
        try:
            remove_stale(self._host, key)
        except FusetuneError as error:
            self._say(str(error))

    def _reload(self) -> None:
        """Read the configuration again and, if it is valid, check every mount."""
        self._signature = signature(self._host)
        try:
            self._resolver = Resolver(self._host, load(self._host))
        except ConfigError as error:
            self._say(f"{error}; the previous configuration remains in effect")
            return
        finally:
            daemon.notify("READY=1")
        self._look()
        self._active = now = time.monotonic()
        self._say("configuration read")
        for key, mount in self._known.items():
            self._due.setdefault(key, _Due(mount, now, now))

    def _work(self) -> None:
        """Set every mount that is due."""
        now = time.monotonic()
        if not any(due.at <= now for due in self._due.values()):
            return
        if signature(self._host) != self._signature:
            self._reload()
        if now - self._summed > _SUM_BELIEVED:
            self._resolver.forget_sum()
            self._summed = now
        ready = {key: due for key, due in self._due.items() if due.at <= now}
        requests = {key: waiting(self._host, due.mount) for key, due in ready.items()}
        # A server that has replied to INIT has /dev/fuse open; before, fusermount3 may have it.
        self._resolver.forget_daemons()
        for key, due in ready.items():
            self._serve(key, due, requests[key], now)

    def _serve(self, key: tuple[str, int], due: _Due, requests: int, now: float) -> None:
        waited = now - due.since
        if self._resolver.config.by_namespace and namespace_to_come(self._host, due.mount):
            # No program uses it yet, so its values can wait until all sections can be matched.
            due.at = now + min(max(_TICK, waited / 4), _NAMESPACE_TICK)
            return
        if requests and waited < _PATIENCE:
            due.at = now + max(_TICK, waited / 4)
            return
        if requests and due.early and waited < _GIVE_UP:
            due.at = now + _SLOW_TICK
            return
        if not self._set(key, due):
            if waited < _GIVE_UP:
                due.at = now + _SLOW_TICK  # another fusetune is working on it
                return
            self._tell(
                key,
                due.mount,
                "another fusetune has been working on it for 30 s, so its values were not set; "
                f"set them later with 'fusetune apply {shell_word(due.mount.path)}'",
            )
        self._active = time.monotonic()
        if requests and waited < _GIVE_UP:
            due.early, due.at = True, now + _SLOW_TICK
            return
        del self._due[key]
        if requests:
            self._tell(
                key,
                due.mount,
                "its server has not replied to INIT for 30 s; the reply may overwrite values",
            )

    def _set(self, key: tuple[str, int], due: _Due) -> bool:
        """Set a mount's desired values; return False to try again later."""
        mount = due.mount
        try:
            done = reconcile(self._resolver, mount, since_init=due.early, by="watch")
        except Busy:
            return False
        except Damaged as error:  # renamed by now
            self._tell(key, mount, str(error))
            return False
        except FusetuneError as error:
            if self._is_mounted(key):
                self._tell(key, mount, str(error))
            return True
        if done.changes:
            self._say(f"{_name(mount)}: {_words(done.changes, done.expected)}")
        for name, value in done.overridden.items():
            self._say(
                f"{_name(mount)}: {name}={value} was set by another program or user and is left "
                "alone"
            )
        if done.refused and self._is_mounted(key):
            for why in done.refused:
                self._tell(key, mount, why)
        self._raise_limits(key, mount)
        return True

    def _is_mounted(self, key: tuple[str, int]) -> bool:
        """Whether a mount still exists, so that its problems are worth a message.

        An unmount removes it from mountinfo first, then the connection, the bdi last.
        """
        return any((m.device, m.instance) == key for m in discover(self._host))

    def _raise_limits(self, key: tuple[str, int], mount: Mount) -> None:
        """Raise the host's limits to what the mount needs at its next mount."""
        try:
            needs = self._resolver.needs(mount)
            raised = raise_limits(self._host, needs, self._resolver.config.settings, patience=0)
        except FusetuneError as error:
            self._tell(key, mount, str(error))
            return
        for change in raised.changes:
            words = f"{change.knob.name} {change.old} -> {change.new}"
            self._say(f"{_name(mount)}: {words}, for its next mount")
        if raised.left:
            self._tell(key, mount, "; ".join(raised.left))

    def _tell(self, key: tuple[str, int], mount: Mount, text: str) -> None:
        """Print a line about a mount, unless it is the same as the last one."""
        if self._told.get(key) != text:
            self._told[key] = text
            self._say(f"{_name(mount)}: {text}")


def _name(mount: Mount) -> str:
    return f"{printable(mount.path)} ({mount.bdi}, {printable(mount.fstype)})"


def _words(changes: list[Change], expected: Mapping[str, Expected]) -> str:
    return ", ".join(
        f"{c.knob.name} {c.old} -> {c.new} ({expected[c.knob.name].said_by})" for c in changes
    )
