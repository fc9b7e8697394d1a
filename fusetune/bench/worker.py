# SPDX-License-Identifier: GPL-2.0-or-later
"""Work on a mount, done in a child process, as the mount's owner, with a time limit."""

import errno
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn, Self

from fusetune.errors import FusetuneError, reason
from fusetune.mounts.mount import Mount
from fusetune.untrusted import communicate

_LONGEST_RESPONSE = 1 << 16


class Unanswered(FusetuneError):
    """The server did not reply in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the server did not reply within {seconds:.0f} s; check whether it is stopped or hung"
        )


class Interrupted(FusetuneError):
    """SIGINT, SIGTERM or SIGHUP was received."""


@dataclass
class Interruption:
    """While entered, SIGINT, SIGTERM and SIGHUP set ``requested`` and end the running command.

    The handler raises nothing, so cleanup is never cut short. Signals that are ignored remain so:
    nohup(1) ignores SIGHUP, and a shell SIGINT for jobs in the background.
    """

    requested: bool = False
    _running: subprocess.Popen[bytes] | None = None
    _before: dict[int, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, action in self._before.items():
            signal.signal(number, action)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if self._running:
            self._running.terminate()

    def check(self) -> None:
        """Raise `Interrupted` if a signal has come."""
        if self.requested:
            raise Interrupted("interrupted: everything was restored")


@dataclass(frozen=True)
class Owner:
    """The mount's owner, as whom the work is done, so that a hostile server gains nothing.

    Root may have no access to a user's mount. Where root has access, a server could redirect root's
    writes by symbolic links.
    """

    uid: int
    gid: int

    @classmethod
    def of(cls, mount: Mount) -> Self:
        """Return the owner of ``mount``. Raises FusetuneError if unknown."""
        if not mount.owner_known:
            raise FusetuneError(mount.owner_unknown)
        return cls(mount.owner_uid, mount.owner_gid)

    def check(self) -> None:
        """Raise FusetuneError unless this process may act as the owner."""
        if os.geteuid() not in (0, self.uid):
            raise FusetuneError(f"the mount belongs to uid {self.uid}; run fusetune as root")

    def become(self) -> None:
        """Permanently switch to the owner's uid and gid, without supplementary groups."""
        if os.geteuid() != self.uid:
            os.setgroups([])
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)


class Companion:
    """A forked process that makes calls which may block, and sends results through a socket."""

    def __init__(
        self, serve: Callable[[socket.socket], None], inherited: Collection[int] = ()
    ) -> None:
        """Fork a process that runs ``serve`` with its end of the socket, and then ends.

        It inherits only the file descriptors ``inherited``, not the caller's locks or pipes.
        """
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            _in_child(serve, theirs, inherited)
        theirs.close()
        self._pidfd = os.pidfd_open(self.pid)
        self._owed = 0  # responses that came too late for `hear`

    def ask(self, seconds: float, request: str, *arguments: Any) -> Any:
        """Return the response to a request with arguments of JSON types; errors as in `hear`."""
        with suppress(BrokenPipeError):  # it has ended, which `hear` reports
            self._line.send(json.dumps([request, *arguments]).encode())
        return self.hear(seconds)

    def hear(self, seconds: float) -> Any:
        """Return its next response, of JSON types.

        Raises the OSError or FusetuneError of its work, `Unanswered` after ``seconds``.
        """
        self._owed += 1
        deadline = time.monotonic() + seconds
        while select.select([self._line], [], [], max(0.0, deadline - time.monotonic()))[0]:
            self._owed -= 1
            if not self._owed:
                return hear(self._line)
            if not self._line.recv(_LONGEST_RESPONSE):
                self._owed = 1
        raise Unanswered(seconds)

    def close(self, seconds: float = 1.0) -> None:
        """Close the socket, so that the process ends; wait at most ``seconds`` for that."""
        self._line.close()
        # If it waits for a server, it ends later and is reaped when this process ends.
        if select.select([self._pidfd], [], [], seconds)[0]:
            os.waitpid(self.pid, 0)
        os.close(self._pidfd)


def respond(line: socket.socket, work: Callable[[], Any]) -> bool:
    """Send what ``work`` returns or raises; return whether it succeeded and the peer is there."""
    try:
        said = {"value": work()}
    except OSError as error:
        said = {"errno": error.errno or errno.EIO}
    except FusetuneError as error:
        said = {"error": str(error)}
    try:
        line.send(json.dumps(said).encode())
    except (BrokenPipeError, ConnectionResetError):
        return False
    return "value" in said


def hear(line: socket.socket) -> Any:
    """Return or raise what the next `respond` sends; EIO if the other end is closed."""
    said = json.loads(line.recv(_LONGEST_RESPONSE) or f'{{"errno": {errno.EIO}}}')
    if "errno" in said:
        raise OSError(said["errno"], os.strerror(said["errno"]))
    if "error" in said:
        raise FusetuneError(said["error"])
    return said["value"]


@contextmanager
def forked(owner: Owner, serve: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """Run ``serve`` with its end of a socket in a forked child as ``owner``; yield the other end.

    The owner may send the child signals, so it is killed if it is stopped: this process, which may
    hold every mount of the host, would otherwise wait for it forever.
    """

    def end_if_stopped(number: int, frame: FrameType | None) -> None:
        with suppress(ChildProcessError):  # it has ended meanwhile
            if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG):
                os.kill(pid, signal.SIGKILL)

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            owner.become()
            serve(theirs)
        finally:
            os._exit(0)
    before = signal.signal(signal.SIGCHLD, end_if_stopped)
    theirs.close()
    try:
        end_if_stopped(signal.SIGCHLD, None)
        yield ours
    finally:
        ours.close()
        os.waitpid(pid, 0)
        signal.signal(signal.SIGCHLD, before)


def call(work: Callable[[], Any], owner: Owner, seconds: float) -> Any:
    """Run ``work`` in a forked child as ``owner``; return its result (JSON types).

    Raises OSError and FusetuneError like ``work``, `Unanswered` after ``seconds``. The child
    then ends by itself when the server replies or is gone.
    """

    def serve(line: socket.socket) -> None:
        owner.become()
        respond(line, work)

    companion = Companion(serve)
    try:
        return companion.hear(seconds)
    finally:
        companion.close()


def _in_child(
    serve: Callable[[socket.socket], None], line: socket.socket, inherited: Collection[int]
) -> NoReturn:
    try:
        os.setsid()
        _close_all_but({line.fileno(), *inherited})
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        serve(line)
    finally:
        os._exit(0)


def _close_all_but(keep: Collection[int]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with suppress(OSError):  # the descriptor of the listing itself, closed by now
                os.close(int(name))


def run(
    command: Sequence[str],
    seconds: float,
    interruption: Interruption,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> tuple[int, bytes, bytes]:
    """Run ``command``; return its exit status, stdout and stderr.

    Raises `Interrupted`; `Unanswered` after ``seconds``; FusetuneError if it cannot be started, or
    writes more than `untrusted.LARGEST` bytes.
    """
    interruption.check()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={"PATH": _path(), "LC_ALL": "C", **(environment or {})},
        )
    except OSError as error:
        raise FusetuneError(f"cannot run {command[0]} (util-linux): {reason(error)}") from error
    return _wait(process, seconds, interruption, stdin)


def _path() -> str:
    """Return this process's PATH, followed by the default directories of programs."""
    return os.pathsep.join(filter(None, [os.environ.get("PATH"), os.defpath]))


def _wait(
    process: subprocess.Popen[bytes], seconds: float, interruption: Interruption, stdin: bytes
) -> tuple[int, bytes, bytes]:
    interruption._running = process
    try:
        if interruption.requested:
            process.terminate()
        stdout, stderr = communicate(process, stdin, seconds)
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise Unanswered(seconds) from error
    except FusetuneError:
        _end(process)
        raise
    finally:
        interruption._running = None
    interruption.check()
    return process.returncode, stdout, stderr


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill ``process`` and close its pipes: if stuck in the kernel, it keeps its ends open."""
    process.kill()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)
