# SPDX-License-Identifier: GPL-2.0-or-later
"""What wakes the service: signals, and the kernel's events about mounts."""

import errno
import os
import select
import signal
import socket
from typing import Self

import pyudev

from fusetune.host import Host


class Signals:
    """SIGTERM, SIGINT and SIGHUP, as bytes to read from ``fileno``."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def __enter__(self) -> Self:
        self._old_fd = signal.set_wakeup_fd(self._write.fileno())
        self._old = {
            number: signal.signal(number, lambda *_: None)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._read.close()
        self._write.close()

    def fileno(self) -> int:
        return self._read.fileno()

    def take(self) -> set[int]:
        try:
            return set(self._read.recv(64))
        except BlockingIOError:
            return set()


class Events:
    """Waits for mounts, bdi devices and signals."""

    def __init__(self, host: Host, signals: Signals) -> None:
        self.signals = signals
        self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        self._monitor.filter_by("bdi")
        self._monitor.start()
        self._mountinfo = os.open(host.path("proc/self/mountinfo"), os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._mountinfo, select.POLLPRI)
        self._poll.register(self._monitor.fileno(), select.POLLIN)
        self._poll.register(signals.fileno(), select.POLLIN)

    def close(self) -> None:
        os.close(self._mountinfo)

    def wait(self, seconds: float) -> bool:
        """Wait for at most ``seconds``; return whether mounts may have come or gone."""
        ready = {fd for fd, _ in self._poll.poll(max(0.0, seconds) * 1000)}
        if self._monitor.fileno() in ready:
            try:
                while self._monitor.poll(0):
                    pass
            except OSError as error:
                if (
                    error.errno != errno.ENOBUFS
                ):  # some events were lost; all mounts are read anyway
                    raise
        return bool(ready - {self.signals.fileno()})
