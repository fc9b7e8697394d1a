# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of a mount that a benchmark reads and never writes, held by descriptor.

One process opens the mount's root and the files in it, and fio gets each file as a separate
read-only mount with a fixed name. So fio knows no path of the mount, and nothing is written. Only
files that fio is to open by their paths are reached through links into a read-only mount of the
whole, in which no symbolic link is followed.
"""

import errno
import json
import os
import re
import socket
import stat
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from fusetune.bench import sandbox
from fusetune.bench.finding import (
    FEWEST_SMALL,
    OPENED_BYTES,
    WALK_SECONDS,
    Found,
    Wanted,
    find_files,
    open_beneath,
)
from fusetune.bench.holder import open_top
from fusetune.bench.place import KINDS, BenchPlace, failure
from fusetune.bench.sandbox import Rights, ToRead
from fusetune.bench.worker import Interruption, Owner, Unanswered, forked, hear, respond, run
from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.mounts.mount import Mount, is_fuse
from fusetune.text import printable

#: Errors for which the sentence of `failure` is about writing.
_OF_WRITING = (errno.EACCES, errno.EPERM, errno.EROFS)
#: Errors from opening a path that was removed or replaced.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.EXDEV, errno.EACCES)
# In fio's job files, other characters need escapes, and a list of names has a maximum length.
_PLAIN, _LONGEST_LIST = re.compile(r"[\w./+@-]+", re.ASCII), 4000
# Prints the names of those that can be opened for reading.
_TRIAL = 'for f; do (: <"$f") 2>/dev/null && echo "$f"; done; :'


@dataclass(frozen=True)
class ExistingFile:
    """A file that is read: ``path`` relative to the mount's root, ``size`` in bytes.

    ``number``: its number in the holder, among the files of its kind; ``name``: its name for fio.
    Of a file that fio opens, ``size`` is what is read of it.
    """

    path: str
    size: int
    number: int
    name: str


class _Holder:
    """The process that opens the files and keeps them open; it creates nothing in the mount."""

    def __init__(self, host: Host, mount: Mount, wanted: Wanted, program: str) -> None:
        self._host, self._mount = host, mount
        self._wanted, self._program = wanted, program
        self._top = -1
        self._files: list[Found] = []
        self._opened: list[str] = []

    def serve(self, line: socket.socket) -> None:
        """Open them, and serve requests until the other end closes."""
        if respond(line, self._begin):
            while request := line.recv(1 << 16):
                verb, number = json.loads(request)
                acts: dict[str, Callable[[int], object]] = {
                    "describe": self._describe,
                    "describe_opened": self._opened.__getitem__,
                    "examine": self._examine,
                    "examine_opened": self._examine_opened,
                }
                respond(line, partial(acts[verb], number))

    def _begin(self) -> tuple[int, int, bool]:
        """Return how many files and files to open there are, and whether programs are confined."""
        confined = sandbox.own_namespaces()
        owner = Owner.of(self._mount)
        found = self._find() if owner.uid == os.geteuid() else self._found(owner)
        self._top, self._files, self._opened = found
        if confined:
            files = {_name(number): file.fd for number, file in enumerate(self._files)}
            links = {str(number): path for number, path in enumerate(self._opened)}
            sandbox.confine(ToRead(files, self._top, links), self._program)
        else:
            os.fchdir(self._top)
        owner.become()
        return len(self._files), len(self._opened), confined

    def _find(self) -> tuple[int, list[Found], list[str]]:
        top = open_top(self._host, self._mount)
        return top, *find_files(top, self._wanted)

    def _found(self, owner: Owner) -> tuple[int, list[Found], list[str]]:
        """Search as the mount's owner, because root may have no access to the mount."""
        with forked(owner, self._send) as line:
            count, paths = hear(line)
            received = [socket.recv_fds(line, 1 << 16, 1) for _ in range(count + 1)]
            opened = [json.loads(line.recv(1 << 16)) for _ in range(paths)]
        (_, (top,), *_), *rest = received
        files = []
        for words, (fd,), *_ in rest:
            path, size, modified = json.loads(words)
            files.append(Found(path, size, modified, named=False, fd=fd))
        return top, files, opened

    def _send(self, line: socket.socket) -> None:
        """Send how many files and paths there are, then the descriptors of the root and of each."""
        found: list[tuple[int, list[Found], list[str]]] = []

        def find() -> tuple[int, int]:
            found.append(self._find())
            return len(found[0][1]), len(found[0][2])

        if respond(line, find):
            top, files, opened = found[0]
            socket.send_fds(line, [b" "], [top])
            for file in files:
                words = json.dumps([file.path, file.size, file.modified])
                socket.send_fds(line, [words.encode()], [file.fd])
            for path in opened:
                line.send(json.dumps(path).encode())

    def _describe(self, number: int) -> tuple[str, int, int]:
        """Return path, size and descriptor of a file."""
        file = self._files[number]
        return file.path, file.size, file.fd

    def _examine(self, number: int) -> tuple[str, int] | None:
        """Return a file's type letter as in ls, and size; None if its path leads elsewhere."""
        file = self._files[number]
        held, now = os.fstat(file.fd), self._status(file.path)
        same = now and (held.st_dev, held.st_ino) == (now.st_dev, now.st_ino)
        return _kind_and_size(now) if same else None

    def _examine_opened(self, number: int) -> tuple[str, int] | None:
        """Return the same of a file that fio opens, which may have been replaced."""
        return _kind_and_size(self._status(self._opened[number]))

    def _status(self, path: str) -> os.stat_result | None:
        """Return the status of a path in the mount, None if it is gone. Raises OSError."""
        try:
            fd = open_beneath(self._top, path)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return None
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)


def _kind_and_size(now: os.stat_result | None) -> tuple[str, int] | None:
    return now and (stat.filemode(now.st_mode)[0], now.st_size)


def _name(number: int) -> str:
    return f"file-{number}"


class Existing(BenchPlace):
    """Existing files, and the means to run programs that read them.

    ``files``: the large files found, and ``opened``: those that fio is to open, after `begin`.
    """

    def __init__(
        self,
        host: Host,
        mount: Mount,
        wanted: Wanted,
        program: str,
        inherited: Collection[int] = (),
    ) -> None:
        """Start the process that finds and opens what is ``wanted``.

        Raises FusetuneError if the path of ``mount`` leads elsewhere.
        """
        self.files: list[ExistingFile] = []
        self.opened: list[ExistingFile] = []
        self._wanted = wanted
        super().__init__(host, mount, _Holder(host, mount, wanted, program).serve, inherited)

    def begin(self, seconds: float, interruption: Interruption) -> None:
        """Wait until they are open, and find the least privileges that can read them.

        Raises FusetuneError if none or too few can be read, `Unanswered` after ``seconds``.
        """
        deadline, length = time.monotonic() + seconds, 0
        try:
            count, paths, self._confined = self._companion.hear(seconds)
            for number in range(count):
                left = max(0.1, deadline - time.monotonic())
                path, size, fd = self._companion.ask(left, "describe", number)
                name = _name(number) if self._confined else f"/proc/{self._companion.pid}/fd/{fd}"
                self.files.append(ExistingFile(path, size, number, name))
            for number in range(paths):
                left = max(0.1, deadline - time.monotonic())
                path = self._companion.ask(left, "describe_opened", number)
                name = str(number) if self._confined else path
                length += len(name) + 1
                if _PLAIN.fullmatch(name) and length < _LONGEST_LIST:
                    self.opened.append(ExistingFile(path, OPENED_BYTES, number, name))
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
        every = [*self.files, *self.opened]
        readable: set[str] = set()
        for self._rights in choices:
            readable = self._readable(every, deadline, interruption)
            if len(readable) == len(every):
                break
        refused = [file for file in every if file.name not in readable]
        needed = {*self._wanted.paths, *self._wanted.opened}
        if not readable.intersection(file.name for file in self.files):
            needed.update(file.path for file in self.files)
        if one := next((file for file in refused if file.path in needed), None):
            raise FusetuneError(
                f"cannot read {printable(one.path)} in {printable(mount.path)}: permission "
                "denied, or its server fails to open it; name other files with --files"
            )
        self.files = [file for file in self.files if file.name in readable]
        self.opened = [file for file in self.opened if file.name in readable]
        if self._wanted.opens and len(self.opened) < FEWEST_SMALL:
            raise FusetuneError(
                f"found {len(self.opened)} readable files of at least {OPENED_BYTES} bytes within "
                f"{WALK_SECONDS:.0f} s, but at least {FEWEST_SMALL} are opened; name a directory "
                "that has more with --files"
            )

    def _readable(
        self, files: Sequence[ExistingFile], deadline: float, interruption: Interruption
    ) -> set[str]:
        """Return the names of those that can be opened."""
        names = [file.name for file in files]
        words = self.command(["sh", "-c", _TRIAL, "sh", *names])
        said = run(words, max(1.0, deadline - time.monotonic()), interruption)[1]
        return set(names).intersection(said.decode("utf-8", "replace").split("\n"))

    def check(self, file: ExistingFile, seconds: float) -> None:
        """Raise FusetuneError if a file has changed, except that it may grow.

        Raises `Unanswered` after ``seconds``.
        """
        self._judge(file, self._ask(seconds, "examine", file.number))

    def check_opened(self, files: Sequence[ExistingFile], seconds: float) -> None:
        """Raise FusetuneError if one of these can no longer be opened and read.

        Raises `Unanswered` after ``seconds``.
        """
        deadline = time.monotonic() + seconds
        for file in files:
            left = max(0.0, deadline - time.monotonic())
            self._judge(file, self._ask(left, "examine_opened", file.number))

    def _judge(self, file: ExistingFile, now: tuple[str, int] | None) -> None:
        """Raise FusetuneError unless ``now`` is the type of a file, and a size no smaller."""
        if now is None:
            what = "was removed or replaced while it was read"
        elif now[0] != "-":
            what = f"is now {KINDS.get(now[0], 'no file')}"
        elif now[1] < file.size:
            what = f"shrank from {file.size} to {now[1]} bytes while it was read"
        else:
            return
        raise FusetuneError(
            f"cannot measure in {printable(self._mount.path)}: {printable(file.path)} {what}; name "
            "files that are not being changed with --files"
        )

    def end(self) -> None:
        """Close the files."""
        self._companion.close()
