# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that starts a server in a PID namespace, and ends all of its processes.

When the first process of a PID namespace ends, all others are killed, whether they are daemons,
stopped or have children (pid_namespaces(7)). So nothing remains even if fusetune is killed: the
guard then sees its socket closed, waits until the scratch directories are removed, and exits.
"""

import os
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from fusetune import syscalls
from fusetune.bench.worker import respond
from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.masking import mask_text
from fusetune.mounts.control import waiting
from fusetune.mounts.discover import find
from fusetune.mounts.mountinfo import mountinfo
from fusetune.shadow.conditions import Conditions
from fusetune.text import printable

#: Seconds for a server to mount, to exit by itself, and for the kernel to kill it.
MOUNTED, _ENDED, _KILLED = 10.0, 2.0, 3.0
#: Seconds for scratch directories to be removed after fusetune was killed.
_REMOVED = 6.0
_POLL = 50  # milliseconds: nothing signals the reply to INIT
#: Seconds for which a mount must serve: right after a server dies, no request waits either.
_SERVING = 0.1
_LAST_OUTPUT, _LAST_LINES = 4096, 3  # bytes of output, of which lines are shown
#: Parts of a command line's words; no word contains a null character.
POINT, PRIVATE = "\0point", "{private}"


@dataclass(frozen=True)
class Start:
    """What to start: words and variables of the server, and the directory that it mounts on.

    In ``words``, `POINT` stands for that directory, and `PRIVATE` for a private directory, which is
    created and removed. ``interceptor``: see `Conditions.run`.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    point: str
    interceptor: Sequence[str] = ()


class Guard:
    """Starts the server, waits until it has mounted, and stops it.

    ``alive``: the reading end of a pipe, closed once no scratch directory can be left.
    """

    def __init__(self, host: Host, conditions: Conditions, start: Start, alive: int) -> None:
        self._host, self._conditions, self._start = host, conditions, start
        self._alive = alive
        self._first = 0  # the first process of the PID namespace
        self._ended = self._output = self._report = -1
        self._said = b""
        self._private: str | None = None

    def serve(self, line: socket.socket) -> None:
        """Start the server, respond once it has mounted, and stop it on request or disconnect."""
        try:
            if respond(line, self._mounted):
                self._wait(line.fileno())
                if line.recv(1 << 16):
                    respond(line, self._end)
                else:  # fusetune was killed
                    self._wait(self._alive, _REMOVED)
        finally:
            self._end()

    def _mounted(self) -> None:
        """Start the server, and wait until it has mounted.

        Raises FusetuneError with the last line of its output if it does not mount.
        """
        self._begin()
        deadline = time.monotonic() + MOUNTED
        with open(self._host.path("proc/self/mountinfo"), "rb") as mounts:
            events = select.poll()
            events.register(mounts, select.POLLPRI | select.POLLERR)
            for descriptor in (self._output, self._report, self._ended):
                events.register(descriptor, select.POLLIN)
            since = None  # when the mount was first seen to serve
            while not since or time.monotonic() < since + _SERVING:
                if not self._serves():
                    since = None
                elif since is None:
                    since = time.monotonic()
                if time.monotonic() > deadline:
                    raise self._failure(f"did not mount and reply within {MOUNTED:.0f} s")
                ready = dict(events.poll(_POLL))
                if self._output in ready and not self._read_output():
                    events.unregister(self._output)
                if self._report in ready:
                    events.unregister(self._report)
                    self._check(os.read(self._report, 16))
                if self._ended in ready:
                    raise self._failure("exited immediately")

    def _check(self, status: bytes) -> None:
        """Raise FusetuneError unless the started process has succeeded."""
        if status != b"0":
            raise self._failure(f"exited with status {status.decode() or 'unknown'}")

    def _failure(self, what: str) -> FusetuneError:
        self._read_output()
        lines = [line.strip() for line in self._said.decode("utf-8", "replace").split("\n")]
        last = [printable(mask_text(line))[:200] for line in lines if line][-_LAST_LINES:]
        return FusetuneError(f"the server {what}: {'; '.join(last) or 'no output'}")

    def _serves(self) -> bool:
        """Whether the mount exists and no request waits, as after the reply to INIT."""
        if all(line.path != self._start.point for line in mountinfo(self._host)):
            return False
        with suppress(FusetuneError):  # the server has unmounted it meanwhile
            return not waiting(self._host, find(self._host, self._start.point))
        return False

    def _begin(self) -> None:
        if any(PRIVATE in word for word in self._start.words):
            # On a disk, as caches are; systemd-tmpfiles(8) removes what a crash leaves there.
            self._private = tempfile.mkdtemp(prefix="fusetune-", dir=self._host.path("var/tmp"))
            os.chown(self._private, self._conditions.uid, self._conditions.gid)
        self._output, theirs = os.pipe()
        self._report, report = os.pipe()
        syscalls.unshare(syscalls.CLONE_NEWPID)
        self._first = os.fork()
        if self._first == 0:
            self._as_first(theirs, report)
        self._ended = os.pidfd_open(self._first)
        os.close(theirs)
        os.close(report)
        os.set_blocking(self._output, False)

    def _as_first(self, output: int, report: int) -> NoReturn:
        """Start the server, report its exit status, and wait for all processes of the namespace."""
        try:
            syscalls.die_with_parent()
            server = os.fork()
            if server == 0:
                self._as_server(output)
            os.close(output)
            with suppress(ChildProcessError):
                while True:
                    pid, status = os.wait()
                    if pid == server:
                        os.write(report, str(os.waitstatus_to_exitcode(status)).encode())
                        os.close(report)
        finally:
            os._exit(0)

    def _as_server(self, output: int) -> NoReturn:
        try:
            start = self._start
            self._conditions.run(self._words(), start.environment, output, start.interceptor)
        except OSError as error:
            os.write(output, f"it cannot be started: {reason(error)}\n".encode())
        finally:
            os._exit(127)

    def _words(self) -> list[str]:
        words = [word.replace(POINT, self._start.point) for word in self._start.words]
        return [word.replace(PRIVATE, self._private or PRIVATE) for word in words]

    def _wait(self, descriptor: int, seconds: float | None = None) -> bool:
        """Wait until ``descriptor`` is readable, and collect the server's output meanwhile."""
        deadline = None if seconds is None else time.monotonic() + seconds
        watched = [descriptor, self._output]
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = select.select(watched, [], [], left)[0]
            if not ready or descriptor in ready:
                return bool(ready)
            if not self._read_output():
                watched.remove(self._output)

    def _read_output(self) -> bool:
        """Read some of the server's output; return whether there may be more."""
        with suppress(BlockingIOError):
            for _ in range(16):  # a server may write faster than this reads
                part = os.read(self._output, 65536)
                if not part:
                    return False
                self._said = (self._said + part)[-_LAST_OUTPUT:]
        return True

    def _end(self) -> None:
        """Unmount, kill every process of the namespace, and remove the private directory.

        Raises FusetuneError if they do not end in time.
        """
        first, self._first = self._first, 0
        if first:
            with suppress(OSError):  # not mounted, or unmounted by the server itself
                syscalls.detach(self._start.point)
            if not self._wait(self._ended, _ENDED):
                signal.pidfd_send_signal(self._ended, signal.SIGKILL)
                if not self._wait(self._ended, _KILLED):
                    raise FusetuneError(f"process {first} of a shadow mount cannot be killed")
            os.waitpid(first, 0)
        if self._private:
            shutil.rmtree(self._private, ignore_errors=True)
