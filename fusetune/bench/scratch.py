# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmark's directory on a mount: newly made, held by descriptor, removed at any exit.

The process that holds the directory resolves its path once, because the owner of a directory above
the mount may rename that directory meanwhile, and the server may show anything under any name.
"""

import errno
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from fusetune.bench import sandbox
from fusetune.bench.holder import Holder, remove_by_name
from fusetune.bench.note import noted, scratch_note
from fusetune.bench.sandbox import Rights
from fusetune.bench.worker import Companion, Interruption, Owner, Unanswered, call, run
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.control import still_mounted
from fusetune.mounts.mount import Mount, is_fuse
from fusetune.mounts.tree import leads_to, places
from fusetune.text import printable

_PREFIX = ".fusetune-"
_NAME = re.compile(re.escape(_PREFIX) + "[0-9a-f]{16}")
_REMOVAL_SECONDS = 3.0
_KINDS = {
    "l": "a symbolic link",
    "d": "a directory",
    "p": "a FIFO",
    "s": "a socket",
    "c": "a device",
    "b": "a device",
}
# Creates, appends, reads back and removes a file, as fio's jobs do.
_TRIAL = "echo 1 >write-data && echo 2 >>write-data && read x <write-data && rm write-data"
# What to do about an error number met on a mount.
_REMEDIES = {
    errno.ENOSPC: "no space is left in it; free some, or use a smaller --size",
    errno.EDQUOT: "its quota is used up; free some, or use a smaller --size",
    errno.EROFS: "it is read-only; nothing can be measured without a scratch file",
    errno.EACCES: "permission denied; its owner must be able to write in its top directory",
    errno.EPERM: "not permitted; its owner must be able to write in its top directory",
    errno.ENOTCONN: "its server has died; mount it again",
    errno.ECONNABORTED: "its server has died; mount it again",
    errno.ENODEV: "it was unmounted meanwhile",
    errno.ENOENT: "it was unmounted, or its directory removed, meanwhile",
    errno.ELOOP: "its server shows a symbolic link by a name that fusetune has made",
}


def failure(mount: Mount, number: int, doing: str) -> FusetuneError:
    """Return the error for ``number`` (errno) met on ``mount`` while ``doing`` something."""
    remedy = _REMEDIES.get(number, f"{os.strerror(number)}; see its server's log")
    return FusetuneError(f"cannot {doing} in {printable(mount.path)}: {remedy}")


class Scratch:
    """A fresh directory (0700) on a mount, and the way to run programs in it.

    ``free``: bytes of free space, None if unknown.
    """

    def __init__(self, host: Host, mount: Mount, name: str, program: str) -> None:
        """Start the process that makes and holds the directory ``name`` of ``mount``.

        ``program``: what is to run in it. Raises FusetuneError if the path of ``mount`` leads
        elsewhere.
        """
        self.free: int | None = None
        self._host, self._mount, self._name = host, mount, name
        place = leads_to(places(host), mount.path)
        if place is None or place.device != mount.device:
            raise FusetuneError(
                f"{printable(mount.path)} leads to another file system: it was unmounted or "
                "covered meanwhile"
            )
        self._place = place
        self._confined = False
        self._rights: Rights | None = None
        holder = Holder(host, mount, name, program)
        self._companion = Companion(holder.serve)

    def begin(self, seconds: float, interruption: Interruption) -> None:
        """Wait until the directory exists, and find the least rights that can write in it.

        Raises FusetuneError where it cannot be made, `Unanswered` after ``seconds``.
        """
        deadline = time.monotonic() + seconds
        try:
            self.free, self._confined = self._companion.hear(seconds)
        except OSError as error:
            number = error.errno or errno.EIO
            raise failure(self._mount, number, "create a scratch directory") from error
        if os.geteuid() == 0:
            self._rights = self._least_rights(deadline, interruption)

    def _least_rights(self, deadline: float, interruption: Interruption) -> Rights:
        mount = self._mount
        if mount.owner_uid:
            return Rights(mount.owner_uid, mount.owner_gid)
        others = mount.allows_other or not is_fuse(mount.fstype)
        if others and self._give(sandbox.NOBODY, deadline):
            if self._suffice(sandbox.NOBODY, deadline, interruption):
                return sandbox.NOBODY
            self._give(None, deadline)
        if self._suffice(sandbox.ROOT, deadline, interruption):
            return sandbox.ROOT
        return sandbox.ROOT_OVER_MODES

    def _give(self, rights: Rights | None, deadline: float) -> bool:
        """Change the directory's owner (None: back); False if the server does not support that."""
        owner = (rights.uid, rights.gid) if rights else ()
        try:
            self._companion.ask(deadline - time.monotonic(), "give", *owner)
        except OSError:
            return False
        return True

    def _suffice(self, rights: Rights, deadline: float, interruption: Interruption) -> bool:
        words = sandbox.command(self._companion.pid, True, rights, ["sh", "-c", _TRIAL])
        seconds = max(1.0, deadline - time.monotonic())
        return run(words, seconds, interruption)[0] == 0

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs ``words`` in the directory, and nowhere else."""
        return sandbox.command(self._companion.pid, self._confined, self._rights, words)

    def check_path(self) -> None:
        """Raise FusetuneError unless the path still leads to the mount."""
        every = places(self._host)
        if not self._is_among(every):
            raise failure(self._mount, errno.ENODEV, "measure")
        if leads_to(every, self._mount.path) != self._place:
            raise FusetuneError(
                f"cannot measure in {printable(self._mount.path)}: the path no longer leads to "
                "this mount; a directory above it was renamed or covered"
            )

    def _is_among(self, every: Sequence[Any]) -> bool:
        same = (self._place.number, self._place.device)
        return still_mounted(self._host, self._mount) and any(
            (place.number, place.device) == same for place in every
        )

    def check(self, sizes: Mapping[str, range], seconds: float) -> bool:
        """Raise FusetuneError unless path, directory and files are as fusetune made them.

        ``sizes``: what each file's size in bytes may be; absent files pass, as fio itself reports
        them. Returns whether the file that was laid out is still the same. Raises `Unanswered`
        after ``seconds``.
        """
        self.check_path()
        try:
            found = self._companion.ask(seconds, "examine", list(sizes))
        except OSError as error:
            raise failure(self._mount, error.errno or errno.EIO, "measure") from error
        if found is None:
            raise self.strange("the scratch directory is another one now")
        for name, (kind, size, _) in found.items():
            if kind != "-":
                raise self.strange(f"{name} is {_KINDS.get(kind, 'no file')} now")
            if size not in sizes[name]:
                raise self.strange(f"{name} has {size} bytes now")
        return not any(replaced for _, _, replaced in found.values())

    def strange(self, what: str) -> FusetuneError:
        """Return the error for something in the directory that fusetune did not do."""
        return FusetuneError(
            f"cannot measure in {printable(self._mount.path)}: {what}, and fusetune did not do "
            "that; see who else writes there, and its server's log"
        )

    def end(self) -> str | None:
        """Remove the directory; return a sentence on what could not be removed.

        If the server does not reply in time, the removal goes on without this process.
        """
        try:
            left = self._companion.ask(_REMOVAL_SECONDS, "remove")
        except (Unanswered, OSError):
            left = None  # the server is dead, so there is nothing to remove
        finally:
            self._companion.close()
        return _left(self._mount, self._name, left)


def _left(mount: Mount, name: str, left: Sequence[str] | None) -> str | None:
    if not left:
        return None
    path = printable(os.path.join(mount.path, name))
    return f"{path} was left, because it holds what fusetune did not make: {', '.join(left)}"


@contextmanager
def scratch(
    host: Host, mount: Mount, program: str, seconds: float, interruption: Interruption
) -> Iterator[Scratch]:
    """Give a fresh directory on ``mount`` in which ``program`` can run.

    Afterwards it is removed; if the server does not reply, a process waits to remove it as soon as
    it does. Raises FusetuneError if it cannot be made, and if at the end the path does not lead to
    ``mount`` or files of others keep it from being removed; `Unanswered` after ``seconds``.
    """
    remove_left_behind(host, mount)
    name = _PREFIX + secrets.token_hex(8)
    with noted(scratch_note(host, mount), json.dumps([mount.instance, name])):
        made = Scratch(host, mount, name, program)
        try:
            made.begin(seconds, interruption)
            yield made
            made.check_path()
        except FusetuneError as error:
            if left := made.end():
                error.args = (f"{error}; {left}",)
            raise
        except BaseException:
            made.end()
            raise
        if left := made.end():
            raise FusetuneError(left)
        made.check_path()


def remove_left_behind(host: Host, mount: Mount, seconds: float = _REMOVAL_SECONDS) -> None:
    """Remove the directory of a run that was killed before it could do so.

    Waits at most ``seconds`` for a server that does not reply; a child then goes on waiting.
    Raises FusetuneError if files of others keep the directory from being removed.
    """
    note = scratch_note(host, mount)
    try:
        instance, name = json.loads(note.read_bytes())
    except FileNotFoundError:
        return
    except ValueError:
        instance = name = None  # truncated by a crash, or written by an earlier version
    left = None
    if instance == mount.instance and _NAME.fullmatch(str(name)):
        with suppress(Unanswered, OSError):
            work = partial(remove_by_name, host, mount, name)
            left = _left(mount, name, call(work, Owner.of(mount), seconds))
    note.unlink(missing_ok=True)
    if left:
        raise FusetuneError(left)
