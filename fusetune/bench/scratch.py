# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmark's directory on a mount: newly created, held by descriptor, removed at every exit.

The process that holds the directory resolves its path only once, because the owner of a directory
above the mount may rename that directory meanwhile, and the server may show anything.
"""

import errno
import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from fusetune.bench import sandbox
from fusetune.bench.holder import Holder, remove_by_name
from fusetune.bench.note import noted, scratch_note
from fusetune.bench.place import KINDS, BenchPlace, failure
from fusetune.bench.sandbox import Rights
from fusetune.bench.worker import Interruption, Owner, Unanswered, call, run
from fusetune.errors import FusetuneError, reason
from fusetune.files import remove
from fusetune.host import Host
from fusetune.mounts.mount import Mount, is_fuse
from fusetune.text import printable

_PREFIX = ".fusetune-"
_NAME = re.compile(re.escape(_PREFIX) + "[0-9a-f]{16}")
_REMOVAL_SECONDS, _CACHED_SECONDS = 3.0, 1.0
#: Errors of every call on a mount whose server has died.
_DEAD = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV)
# Creates, appends, reads back and removes a file, as fio's jobs do.
_TRIAL = "echo 1 >write-data && echo 2 >>write-data && read x <write-data && rm write-data"


class Scratch(BenchPlace):
    """A fresh directory (0700) on a mount, and the means to run programs in it.

    ``free``: bytes of free space, None if unknown.
    """

    def __init__(
        self, host: Host, mount: Mount, name: str, program: str, inherited: Collection[int] = ()
    ) -> None:
        """Start the process that creates and holds the directory ``name`` of ``mount``.

        ``program``: what will run in it. ``inherited``: descriptors that the process keeps open for
        its lifetime. Raises FusetuneError if the path of ``mount`` leads elsewhere.
        """
        self.free: int | None = None
        self._name, self._exists = name, False
        super().__init__(host, mount, Holder(host, mount, name, program).serve, inherited)

    def begin(self, seconds: float, interruption: Interruption) -> None:
        """Wait until the directory exists, and find the least privileges that can write in it.

        Raises FusetuneError if it cannot be created, `Unanswered` after ``seconds``.
        """
        deadline = time.monotonic() + seconds
        try:
            self.free, self._confined = self._companion.hear(seconds)
            self._exists = True
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

    def check(self, sizes: Mapping[str, range], seconds: float) -> bool:
        """Raise FusetuneError unless path, directory and files are as fusetune created them.

        ``sizes``: allowed sizes of each file in bytes; absent files pass, because fio itself
        reports them. Returns whether the laid-out file is still the same. Raises `Unanswered` after
        ``seconds``.
        """
        self.check_path()
        found = self._ask(seconds, "examine", list(sizes))
        if found is None:
            raise self.strange("the scratch directory was replaced")
        for name, (kind, size, _) in found.items():
            if kind != "-":
                raise self.strange(f"{name} is now {KINDS.get(kind, 'no file')}")
            if size not in sizes[name]:
                raise self.strange(f"{name} now has {size} bytes")
        return not any(replaced for _, _, replaced in found.values())

    def prepare(self, seconds: float) -> None:
        """Let every reader of the laid-out file begin in the same state; see `Directory.prepare`.

        Raises FusetuneError if that fails, `Unanswered` after ``seconds``.
        """
        self._ask(seconds, "prepare")

    def cached_bytes(self) -> int | None:
        """Return how many bytes of the laid-out file are in the page cache, None if unknown."""
        with suppress(OSError, Unanswered):
            found: int | None = self._companion.ask(_CACHED_SECONDS, "cached_bytes")
            return found
        return None

    def finish(self, count: int, request: Sequence[str], seconds: float) -> float:
        """Do a workload's work on its ``count`` files after fio; return the time in seconds.

        ``request``: see `Workload.afterwards`. Raises FusetuneError if it fails, `Unanswered`
        after ``seconds``.
        """
        verb, *arguments = request
        took: float = self._ask(seconds, verb, count, *arguments)
        return took

    def strange(self, what: str) -> FusetuneError:
        """Return the error for something in the directory that fusetune did not do."""
        return FusetuneError(
            f"cannot measure in {printable(self._mount.path)}: {what}, and not by fusetune; "
            "check who else writes there, and its server's log"
        )

    def end(self) -> str | None:
        """Remove the directory; return a sentence on anything that could not be removed.

        If the server does not reply in time, removal continues in the background.
        """
        try:
            left = self._companion.ask(_REMOVAL_SECONDS, "remove")
        except Unanswered:
            return None
        except OSError as error:
            if not self._exists or error.errno in _DEAD:
                return None  # there is nothing to remove
            return f"{_shown(self._mount, self._name)} was not removed: {reason(error)}"
        finally:
            self._companion.close()
        return _left(self._mount, self._name, left)


def _left(mount: Mount, name: str, left: Sequence[str] | None) -> str | None:
    if not left:
        return None
    return (
        f"{_shown(mount, name)} was not removed, because it has files that fusetune did not "
        f"create: {', '.join(left)}"
    )


def _shown(mount: Mount, name: str) -> str:
    return printable(os.path.join(mount.path, name))


@contextmanager
def scratch(
    host: Host,
    mount: Mount,
    program: str,
    seconds: float,
    interruption: Interruption,
    inherited: Collection[int] = (),
) -> Iterator[Scratch]:
    """Yield a fresh directory on ``mount`` in which ``program`` can run.

    Afterwards it is removed; if the server does not reply, a process waits and removes it as soon
    as it does. Raises FusetuneError if it cannot be created, or if at the end the path does not
    lead to ``mount`` or other files keep it from being removed; `Unanswered` after ``seconds``.
    """
    remove_left_behind(host, mount)
    name = _PREFIX + secrets.token_hex(8)
    with noted(scratch_note(host, mount), json.dumps([mount.instance, name])):
        made = Scratch(host, mount, name, program, inherited)
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
    """Remove the directory of a run that was killed before it could remove it.

    Waits at most ``seconds`` for a server that does not reply; then a child keeps waiting.
    Raises FusetuneError if other files keep the directory from being removed.
    """
    note = scratch_note(host, mount)
    try:
        instance, name = json.loads(note.read_bytes())
    except FileNotFoundError:
        return
    except (ValueError, TypeError):
        instance = name = None  # truncated by a crash, or written by an earlier version
    left = None
    if instance == mount.instance and _NAME.fullmatch(str(name)):
        with suppress(Unanswered, OSError):
            work = partial(remove_by_name, host, mount, name)
            left = _left(mount, name, call(work, Owner.of(mount), seconds))
    remove(note)
    if left:
        raise FusetuneError(left)
