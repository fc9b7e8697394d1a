# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of a mount that a benchmark reads and never writes, held by descriptor.

One process opens the mount's root and the files in it, and fio gets each file as a separate
read-only mount with a fixed name. So fio knows no path of the mount, and nothing is written.
"""

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from fusetune.bench import sandbox
from fusetune.bench.finding import Found, find_files, open_beneath
from fusetune.bench.holder import open_top
from fusetune.bench.place import KINDS, BenchPlace, failure
from fusetune.bench.sandbox import Rights
from fusetune.bench.worker import Interruption, Owner, Unanswered, hear, respond, run
from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.mounts.mount import Mount, is_fuse
from fusetune.text import printable

#: Errors for which the sentence of `failure` is about writing.
_OF_WRITING = (errno.EACCES, errno.EPERM, errno.EROFS)
#: Errors from opening a path that was removed or replaced.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.EXDEV, errno.EACCES)
# Prints the names of those that can be opened for reading.
_TRIAL = 'for f; do (: <"$f") 2>/dev/null && echo "$f"; done; :'


@dataclass(frozen=True)
class ExistingFile:
    """A file that is read: ``path`` relative to the mount's root, ``size`` in bytes.

    ``number``: its number in the holder; ``name``: its name for fio.
    """

    path: str
    size: int
    number: int
    name: str


class _Holder:
    """The process that opens the files and keeps them open; it creates nothing in the mount."""

    def __init__(self, host: Host, mount: Mount, paths: Sequence[str], program: str) -> None:
        self._host, self._mount = host, mount
        self._paths, self._program = paths, program
        self._top = -1
        self._files: list[Found] = []

    def serve(self, line: socket.socket) -> None:
        """Open them, and serve requests until the other end closes."""
        if respond(line, self._begin):
            while request := line.recv(1 << 16):
                verb, number = json.loads(request)
                act = {"describe": self._describe, "examine": self._examine}[verb]
                respond(line, partial(act, number))

    def _begin(self) -> tuple[int, bool]:
        """Return how many files there are, and whether programs are confined."""
        confined = sandbox.own_namespaces()
        owner = Owner.of(self._mount)
        self._top, self._files = self._find() if owner.uid == os.geteuid() else self._found(owner)
        if confined:
            names = {_name(number): file.fd for number, file in enumerate(self._files)}
            sandbox.confine(names, self._program)
        else:
            os.fchdir(self._top)
        owner.become()
        return len(self._files), confined

    def _find(self) -> tuple[int, list[Found]]:
        top = open_top(self._host, self._mount)
        return top, find_files(top, self._paths)

    def _found(self, owner: Owner) -> tuple[int, list[Found]]:
        """Search as the mount's owner, because root may have no access to the mount."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            owner.become()
            self._send(theirs)
            os._exit(0)
        theirs.close()
        try:
            count = hear(ours)
            received = [socket.recv_fds(ours, 1 << 16, 1) for _ in range(count + 1)]
        finally:
            ours.close()
            os.waitpid(pid, 0)
        (_, (top,), *_), *rest = received
        files = []
        for words, (fd,), *_ in rest:
            path, size, modified = json.loads(words)
            files.append(Found(path, size, modified, named=False, fd=fd))
        return top, files

    def _send(self, line: socket.socket) -> None:
        """Send how many files there are, then the descriptors of the mount's root and of each."""
        found: list[tuple[int, list[Found]]] = []

        def find() -> int:
            found.append(self._find())
            return len(found[0][1])

        if respond(line, find):
            top, files = found[0]
            socket.send_fds(line, [b" "], [top])
            for file in files:
                words = json.dumps([file.path, file.size, file.modified])
                socket.send_fds(line, [words.encode()], [file.fd])

    def _describe(self, number: int) -> tuple[str, int, int]:
        """Return path, size and descriptor of a file."""
        file = self._files[number]
        return file.path, file.size, file.fd

    def _examine(self, number: int) -> tuple[str, int, bool]:
        """Return a file's type letter as in ls, size, and whether its path still leads to it."""
        file = self._files[number]
        held = os.fstat(file.fd)
        try:
            fd = open_beneath(self._top, file.path)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return stat.filemode(held.st_mode)[0], held.st_size, False
        now = os.fstat(fd)
        os.close(fd)
        same = (held.st_dev, held.st_ino) == (now.st_dev, now.st_ino)
        return stat.filemode(now.st_mode)[0], now.st_size, same


def _name(number: int) -> str:
    return f"file-{number}"


class Existing(BenchPlace):
    """Existing files, and the means to run programs that read them.

    ``files``: the files found, after `begin`.
    """

    def __init__(
        self,
        host: Host,
        mount: Mount,
        paths: Sequence[str],
        program: str,
        inherited: Collection[int] = (),
    ) -> None:
        """Start the process that opens ``paths``, relative to the root; without paths, it searches.

        Raises FusetuneError if the path of ``mount`` leads elsewhere.
        """
        self.files: list[ExistingFile] = []
        self._paths = paths
        super().__init__(host, mount, _Holder(host, mount, paths, program).serve, inherited)

    def begin(self, seconds: float, interruption: Interruption) -> None:
        """Wait until they are open, and find the least privileges that can read them.

        Raises FusetuneError if none can be read, `Unanswered` after ``seconds``.
        """
        deadline = time.monotonic() + seconds
        try:
            count, self._confined = self._companion.hear(seconds)
            for number in range(count):
                left = max(0.1, deadline - time.monotonic())
                path, size, fd = self._companion.ask(left, "describe", number)
                name = _name(number) if self._confined else f"/proc/{self._companion.pid}/fd/{fd}"
                self.files.append(ExistingFile(path, size, number, name))
        except OSError as error:
            raise self._failure(error) from error
        except Unanswered:
            raise
        except FusetuneError as error:
            raise FusetuneError(f"cannot read in {printable(self._mount.path)}: {error}") from error
        self._choose_rights(deadline, interruption)

    def _failure(self, error: OSError) -> FusetuneError:
        if error.errno in _OF_WRITING:
            return FusetuneError(
                f"cannot read in {printable(self._mount.path)}: its owner gets {reason(error)} for "
                "the top directory; name files or directories that the owner may read with --files"
            )
        return failure(self._mount, error.errno or errno.EIO, "read")

    def _choose_rights(self, deadline: float, interruption: Interruption) -> None:
        """Choose the least privileges that open all files; drop files that cannot be opened."""
        mount = self._mount
        if os.geteuid():
            choices: list[Rights | None] = [None]
        elif mount.owner_uid:
            choices = [Rights(mount.owner_uid, mount.owner_gid)]
        else:
            others = mount.allows_other or not is_fuse(mount.fstype)
            choices = [*([sandbox.NOBODY] if others else []), sandbox.ROOT, sandbox.ROOT_READING]
        readable: list[ExistingFile] = []
        for self._rights in choices:
            readable = self._readable(deadline, interruption)
            if len(readable) == len(self.files):
                return
        refused = next(file for file in self.files if file not in readable)
        if refused.path in self._paths or not readable:
            raise FusetuneError(
                f"cannot read {printable(refused.path)} in {printable(mount.path)}: permission "
                "denied, or its server fails to open it; name other files with --files"
            )
        self.files = readable

    def _readable(self, deadline: float, interruption: Interruption) -> list[ExistingFile]:
        names = [file.name for file in self.files]
        words = self.command(["sh", "-c", _TRIAL, "sh", *names])
        said = run(words, max(1.0, deadline - time.monotonic()), interruption)[1]
        opened = said.decode("utf-8", "replace").split("\n")
        return [file for file in self.files if file.name in opened]

    def check(self, file: ExistingFile, seconds: float) -> None:
        """Raise FusetuneError if path or file has changed.

        A file may grow. Raises `Unanswered` after ``seconds``.
        """
        self.check_path()
        kind, size, same = self._ask(seconds, "examine", file.number)
        if not same:
            raise self._changed(file, "was removed or replaced while it was read")
        if kind != "-":
            raise self._changed(file, f"is now {KINDS.get(kind, 'no file')}")
        if size < file.size:
            raise self._changed(file, f"shrank from {file.size} to {size} bytes while it was read")

    def _changed(self, file: ExistingFile, what: str) -> FusetuneError:
        return FusetuneError(
            f"cannot measure in {printable(self._mount.path)}: {printable(file.path)} {what}; name "
            "files that are not being changed with --files"
        )

    def end(self) -> None:
        """Close the files."""
        self._companion.close()
