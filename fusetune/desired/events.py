# SPDX-License-Identifier: GPL-2.0-or-later
"""What wakes the service: signals, and the kernel's events about mounts."""

import errno
import os
import select

import pyudev

from fusetune.host import Host
from fusetune.signals import Signals


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
