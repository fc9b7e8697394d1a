# SPDX-License-Identifier: GPL-2.0-or-later
"""The conditions under which a server runs, and running a program under the same ones.

Root runs a command line from another user's process, so everything that could give that user
privileges is refused: programs with elevated privileges, and confined processes.
"""

import os
import re
import resource
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from fusetune import syscalls
from fusetune.errors import FusetuneError, reason
from fusetune.host import Host

#: Namespaces to enter; those in `_SHARED` must be the same as this process's.
_ENTERED = ("net", "ipc", "uts", "cgroup", "time")
_SHARED = {"mnt": "mount", "user": "user"}
_LIMIT = re.compile(r"(\d+|unlimited) +(\d+|unlimited)")
_ELEVATED = 0o6000  # set-user-ID and set-group-ID
_RIGHTS = ("Uid", "Gid", "Groups", "CapBnd", "NoNewPrivs", "Seccomp_filters")


@dataclass(frozen=True)
class Conditions:
    """How a process runs.

    ``program``: a descriptor (O_PATH) of its executable; ``namespaces``: descriptors of those to
    enter; ``limits``: soft and hard by RLIMIT number; ``capabilities``: mask of its bounding set.
    """

    program: int
    uid: int
    gid: int
    groups: tuple[int, ...]
    directory: str
    umask: int
    namespaces: tuple[int, ...]
    limits: Mapping[int, tuple[int, int]]
    capabilities: int
    gains_rights: bool

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All descriptors that it holds."""
        return (self.program, *self.namespaces)

    def run(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        output: int,
        interceptor: Sequence[str] = (),
    ) -> NoReturn:
        """Execute the program with other arguments and variables; its output goes to ``output``.

        There is no terminal and no input. ``interceptor``: the words of fusetune-intercept(8) to
        put in front, if its mounts are to be intercepted; the /proc of this process may belong to
        another PID namespace. Raises OSError.
        """
        for namespace in self.namespaces:
            syscalls.enter_namespace(namespace)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in enumerate((null, output, output)):
            os.dup2(source, target)
        os.setsid()
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
            signal.signal(ignored, signal.SIG_DFL)
        for limit, pair in self.limits.items():
            if pair != resource.getrlimit(limit):
                resource.setrlimit(limit, pair)
        syscalls.bound_capabilities(self.capabilities)
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if not self.gains_rights:
            syscalls.gain_no_rights()
        os.umask(self.umask)
        os.chdir(self.directory)
        if interceptor:
            self._run_intercepted(interceptor, words, environment)
        os.execve(self.program, list(words), dict(environment))  # noqa: S606 - meant

    def _run_intercepted(
        self, interceptor: Sequence[str], words: Sequence[str], environment: Mapping[str, str]
    ) -> NoReturn:
        own = {"--proc": syscalls.new_proc(), "--program": self.program}
        for descriptor in own.values():
            os.set_inheritable(descriptor, True)
        more = [word for name, fd in own.items() for word in (name, str(fd))]
        program, *options, end = interceptor
        os.execve(program, [program, *options, *more, end, *words], dict(environment))  # noqa: S606


def conditions_of(host: Host, pid: int) -> Conditions:
    """Return the conditions of the process ``pid``.

    Raises FusetuneError if it has ended, or if its conditions cannot be reproduced.
    """
    opened: list[int] = []
    try:
        status = _status(host, pid)
        _refuse(host, pid, status)
        program = os.open(host.path(f"proc/{pid}/exe"), os.O_PATH | os.O_CLOEXEC)
        opened.append(program)
        executed = os.fstat(program)
        if executed.st_mode & _ELEVATED:
            raise _cannot("its program is set-user-ID or set-group-ID")
        for kind in _ENTERED:
            if _namespace(host, str(pid), kind) != _namespace(host, "self", kind):
                path = host.path(f"proc/{pid}/ns/{kind}")
                opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        found = Conditions(
            program=program,
            uid=int(status["Uid"].split()[0]),
            gid=int(status["Gid"].split()[0]),
            groups=tuple(int(word) for word in status.get("Groups", "").split()),
            directory=os.readlink(host.path(f"proc/{pid}/cwd")),
            umask=int(status.get("Umask", "022"), 8),
            namespaces=tuple(opened[1:]),
            limits=_limits(host, str(pid)),
            capabilities=int(status["CapBnd"], 16),
            gains_rights=status.get("NoNewPrivs", "0") == "0",
        )
        # Neither one program with the rights of another one, nor one process with those of another.
        now = _status(host, pid)
        same = os.path.samestat(executed, os.stat(host.path(f"proc/{pid}/exe")))
        if not same or any(now.get(name) != status.get(name) for name in _RIGHTS):
            raise _cannot("it is just changing them")
        return found
    except OSError as error:
        _close(opened)
        raise _cannot(f"process {pid} cannot be examined: {reason(error)}") from error
    except FusetuneError:
        _close(opened)
        raise


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _cannot(why: str) -> FusetuneError:
    return FusetuneError(
        f"a second instance of the server cannot run under the same conditions: {why}"
    )


def _status(host: Host, pid: int) -> dict[str, str]:
    pairs = (line.partition(":") for line in host.lines(f"proc/{pid}/status"))
    return {key: value.strip() for key, _, value in pairs}


def _refuse(host: Host, pid: int, status: Mapping[str, str]) -> None:
    """Raise FusetuneError for a process whose copy would have different privileges."""
    for kind, name in _SHARED.items():
        if _namespace(host, str(pid), kind) != _namespace(host, "self", kind):
            raise _cannot(f"it runs in another {name} namespace, such as a container's")
    for name in ("Uid", "Gid"):
        if len(set(status[name].split())) != 1:
            raise _cannot("its real and effective users differ")
    own = _status(host, os.getpid()) if host.real else {}
    if int(status.get("Seccomp_filters", 0)) > int(own.get("Seccomp_filters", 0)):
        raise _cannot("a seccomp filter confines it")
    if os.readlink(host.path(f"proc/{pid}/root")) != "/":
        raise _cannot("it has another root directory")
    if _label(host, str(pid)) != _label(host, "self"):
        raise _cannot("a security module confines it")


def _limits(host: Host, pid: str) -> dict[int, tuple[int, int]]:
    """Return the limits; their lines are in the order of their numbers (fs/proc/base.c, lnames)."""
    lines = host.lines(f"proc/{pid}/limits")[1:]
    pairs = [match for line in lines if (match := _LIMIT.search(line))]
    return {number: (_limit(match[1]), _limit(match[2])) for number, match in enumerate(pairs)}


def _limit(word: str) -> int:
    return resource.RLIM_INFINITY if word == "unlimited" else int(word)


def _label(host: Host, pid: str) -> str:
    """Return the security module's label of a process, such as SELinux's context."""
    try:
        text = host.read(f"proc/{pid}/attr/current")
    except OSError:  # no security module
        return ""
    # Without the mode of an AppArmor profile.
    return re.sub(r" \(\w+\)$", "", text.rstrip("\0\n"))


def _namespace(host: Host, pid: str, kind: str) -> str:
    try:
        return os.readlink(host.path(f"proc/{pid}/ns/{kind}"))
    except FileNotFoundError:  # a kind that this kernel lacks
        return ""
