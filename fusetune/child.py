# SPDX-License-Identifier: GPL-2.0-or-later
"""Work that touches a mount: done in a child process, as the mount's owner, with a time limit.

A call on a path in a FUSE mount whose server hangs cannot be interrupted, not even by SIGKILL once
the server has taken the request (fs/fuse/dev.c, request_wait_answer). So this process never makes
one itself.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn, Self

from fusetune.errors import FusetuneError, reason
from fusetune.mounts import Mount


class Unanswered(FusetuneError):
    """The server did not answer in time; ``process`` is what it holds, if anything."""

    def __init__(self, seconds: float, process: subprocess.Popen[bytes] | None = None) -> None:
        super().__init__(
            f"the server did not answer within {seconds:.0f} s; see whether it is stopped or hung"
        )
        self.process = process


class Interrupted(FusetuneError):
    """SIGINT, SIGTERM or SIGHUP came."""


@dataclass
class Interruption:
    """While entered, SIGINT, SIGTERM and SIGHUP set ``requested`` and end the running command.

    Nothing is raised from the handler, so what puts things back is never cut short.
    """

    requested: bool = False
    _running: subprocess.Popen[bytes] | None = None
    _before: dict[int, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
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
            raise Interrupted("interrupted: everything was put back as it was")


@dataclass(frozen=True)
class Owner:
    """Who does the work: the mount's owner, so that a hostile server gains nothing from it.

    Root may be kept out of a user's mount, and where it is not, a server could lead root's writes
    elsewhere by symbolic links.
    """

    uid: int
    gid: int

    @classmethod
    def of(cls, mount: Mount) -> Self:
        """Return the owner of ``mount``. Raises FusetuneError where that cannot be told."""
        if not mount.owner_known:
            raise FusetuneError(mount.owner_unknown)
        return cls(mount.owner_uid, mount.owner_gid)

    def check(self) -> None:
        """Raise FusetuneError unless this process may act as the owner."""
        if os.geteuid() not in (0, self.uid):
            raise FusetuneError(f"the mount belongs to uid {self.uid}; run it as root")

    @property
    def popen_arguments(self) -> dict[str, Any]:
        """Arguments for `subprocess.Popen` that make the child run as the owner."""
        if os.geteuid() == self.uid:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def become(self) -> None:
        """Turn this process into the owner's."""
        if os.geteuid() != self.uid:
            os.setgroups([])
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)


def call(
    work: Callable[[], Any],
    owner: Owner,
    seconds: float,
    if_late: Callable[[], Any] = lambda: None,
    keep: Sequence[int] = (),
) -> Any:
    """Return what ``work`` returns (JSON types), done in a forked child as ``owner``.

    Raises OSError as ``work`` does, `Unanswered` after ``seconds``. The child is then left to end
    by itself once the server answers or is gone, and does ``if_late`` after its work. Of this
    process's file descriptors it has only those to ``keep``: not the locks, nor the caller's pipes.
    """
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        _in_child(work, owner, writable, if_late, keep)
    os.close(writable)
    text = b""
    deadline = time.monotonic() + seconds
    try:
        while select.select([readable], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = os.read(readable, 65536)
            if not part:
                break
            text += part
        else:
            raise Unanswered(seconds)
    finally:
        os.close(readable)
    os.waitpid(pid, 0)
    answer = json.loads(text or b'{"errno": 5}')
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]))
    return answer["value"]


def _in_child(
    work: Callable[[], Any],
    owner: Owner,
    writable: int,
    if_late: Callable[[], Any],
    keep: Sequence[int],
) -> NoReturn:
    try:
        os.setsid()
        _close_all_but({writable, *keep})
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        try:
            owner.become()
            answer = {"value": work()}
        except OSError as error:
            answer = {"errno": error.errno}
        try:
            os.write(writable, json.dumps(answer).encode())
        except BrokenPipeError:
            if_late()
    finally:
        os._exit(0)


def _close_all_but(keep: Collection[int]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with suppress(OSError):  # the folder's own, closed by now
                os.close(int(name))


def run(
    command: Sequence[str],
    folder: str,
    owner: Owner,
    seconds: float,
    interruption: Interruption,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> tuple[int, bytes, bytes]:
    """Run ``command`` in ``folder`` as ``owner``; return its exit status, stdout and stderr.

    It dies with this process. Raises `Interrupted`; `Unanswered` after ``seconds``; FusetuneError
    if it cannot be started.
    """
    # env(1) enters the folder: a chdir between fork and exec could hang this process with it.
    whole = ["setpriv", "--pdeathsig", "KILL", "--", "env", f"--chdir={folder}", "--", *command]
    interruption.check()
    try:
        process = subprocess.Popen(
            whole,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **(environment or {})},
            **owner.popen_arguments,
        )
    except OSError as error:
        raise FusetuneError(f"cannot run {whole[0]} (util-linux): {reason(error)}") from error
    return _wait(process, seconds, interruption, stdin)


def _wait(
    process: subprocess.Popen[bytes], seconds: float, interruption: Interruption, stdin: bytes
) -> tuple[int, bytes, bytes]:
    interruption._running = process
    try:
        if interruption.requested:
            process.terminate()
        stdout, stderr = process.communicate(stdin, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise _end(process, seconds) from error
    finally:
        interruption._running = None
    interruption.check()
    return process.returncode, stdout, stderr


def _end(process: subprocess.Popen[bytes], seconds: float) -> Unanswered:
    """Kill ``process``; its pipes are closed, for a process stuck in the kernel keeps its ends."""
    process.kill()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)
    return Unanswered(seconds, process if process.returncode is None else None)
