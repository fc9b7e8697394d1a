# SPDX-License-Identifier: GPL-2.0-or-later
"""The service in a simulated environment: mounts, clock and events come from the test."""

import os
import signal
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fusetune.desired import watch
from tests.unit.conftest import Tree

CONFIG = "[[mount]]\nmax_background = 64\n"
SET = "/mnt/one (0:40, fuse.mirrorfs): max_background 12 -> 64 ({}/etc/fusetune.toml:2)"


#: What happens while the service waits for this many seconds; True: mounts may have changed.
Step = Callable[[float], bool | None]


class Stage:
    """One run of the service; each of its waits is a step of the test."""

    def __init__(self, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tree = tree
        self.now = self.start = 1000.0
        self.waits: list[float] = []
        self.slept: list[float] = []
        self.said: list[str] = []
        self.notified: list[str] = []
        self.values_when_ready: dict[str, int] = {}
        self.last: Step = lambda seconds: False
        self._steps: list[Step] = []
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        monkeypatch.setattr(
            watch, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        )
        monkeypatch.setattr(watch, "daemon", SimpleNamespace(notify=self._notify))
        waiter = SimpleNamespace(wait=self._wait, close=lambda: None)
        monkeypatch.setattr(watch, "Events", lambda host, signals: waiter)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def _notify(self, text: str) -> None:
        if not self.notified and (self.tree.root / "sys/class/bdi/0:40").exists():
            self.values_when_ready = self.tree.values()
        self.notified.append(text)

    def _wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if "STOPPING=1" in self.notified and not seconds:
            last, self.last = self.last, lambda seconds: False
            return bool(last(seconds))
        if not self._steps:
            os.kill(os.getpid(), signal.SIGTERM)
            return False
        return bool(self._steps.pop(0)(seconds))

    def run(self, *steps: Step, config: str = CONFIG, idle: float | None = 0) -> None:
        """Serve until the steps are over, then until SIGTERM."""
        self._steps = list(steps)
        self.tree.write("etc/fusetune.toml", config)
        watch.Watch(self.tree.host, self.said.append, idle).run()

    @property
    def unused(self) -> int:
        """How many steps were not reached."""
        return len(self._steps)

    def pass_all(self, seconds: float) -> bool:
        """Let the time pass that the service waits for."""
        self.now += seconds
        return False

    def passing(self, seconds: float) -> Step:
        """Let this many seconds pass."""

        def step(_: float) -> bool:
            self.now += seconds
            return False

        return step

    def come(self, _: float = 0, number: int = 40, waiting: int = 0) -> bool:
        """Mount a file system."""
        self.tree.mount("/mnt/one" if number == 40 else f"/mnt/{number}", device=f"0:{number}")
        self.tree.live(bdi=f"0:{number}", connection=str(number), waiting=waiting)
        return True

    def answer(self, _: float = 0) -> bool:
        """Reply to INIT, which sets a value of the server's."""
        self.tree.write("sys/fs/fuse/connections/40/waiting", "0\n")
        self.tree.write("sys/fs/fuse/connections/40/max_background", "30\n")
        return False

    def background(self, number: int = 40) -> int:
        """Return max_background of a mount."""
        return int(self.tree.read(f"sys/fs/fuse/connections/{number}/max_background"))


class FakeMonitor:
    """A netlink socket that has something to read, or fails to be read."""

    def __init__(self, number: int | None) -> None:
        self._error, self._devices = number, [object(), object(), None]
        self.read, self._write = os.pipe()
        os.write(self._write, b"x")

    def fileno(self) -> int:
        """Return a descriptor that is readable."""
        return self.read

    def poll(self, _: float) -> object | None:
        """Return one event."""
        if self._error:
            raise OSError(self._error, os.strerror(self._error))
        return self._devices.pop(0)

    def filter_by(self, subsystem: str) -> None:
        """Accept only the kernel's events about bdi devices."""
        assert subsystem == "bdi"

    def start(self) -> None:
        """Listen."""

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self.read)
        os.close(self._write)
