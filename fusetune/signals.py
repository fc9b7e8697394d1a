# SPDX-License-Identifier: GPL-2.0-or-later
"""Signals as readable bytes, so that a program only ends where it waits."""

import signal
import socket
from typing import Self

#: Signals that end a program.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """While entered, SIGTERM, SIGINT and SIGHUP make ``fileno`` readable and do nothing else.

    ``more``: further signals to handle like this.
    """

    def __init__(self, *more: signal.Signals) -> None:
        self._numbers = (*ENDING, *more)
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def __enter__(self) -> Self:
        self._old_fd = signal.set_wakeup_fd(self._write.fileno())
        self._old = {number: signal.signal(number, lambda *_: None) for number in self._numbers}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._read.close()
        self._write.close()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a signal arrives."""
        return self._read.fileno()

    def take(self) -> set[int]:
        """Return the numbers of the signals received since the last call."""
        try:
            return set(self._read.recv(64))
        except BlockingIOError:
            return set()
