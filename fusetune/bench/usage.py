# SPDX-License-Identifier: GPL-2.0-or-later
"""Host resources of a workload: CPU time of client, server and kernel, and the server's memory.

The client is fio. The server is the processes that serve the mount and all their descendants. The
kernel's part is the time that both spend in the kernel, where FUSE copies requests and data. Kernel
threads are left out: a kworker writes back for several mounts, and /proc has one sum per thread
(workqueue.rst). The host's total system time would include everything else that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from os import sysconf

from fusetune.bench.figures import Job, number
from fusetune.bench.workloads import Workload
from fusetune.deadline import each_in_time
from fusetune.host import Host
from fusetune.mounts.daemons import Daemons, process_ids
from fusetune.mounts.mount import Mount, is_fuse

_TICK = sysconf("SC_CLK_TCK")
#: Written to clear_refs, it sets VmHWM to the current VmRSS (proc_pid_clear_refs(5)).
_RESET_PEAK = "5"


@dataclass(frozen=True)
class Cpu:
    """Seconds of CPU time, in user mode and in the kernel."""

    user: float = 0.0
    system: float = 0.0

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.user + self.system

    def __add__(self, other: Cpu) -> Cpu:
        return Cpu(self.user + other.user, self.system + other.system)

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.user - other.user, self.system - other.system)


@dataclass(frozen=True)
class Process:
    """A process: its parent, start in ticks after boot, and CPU time including ended children."""

    parent: str
    start: int
    cpu: Cpu


def processes(host: Host) -> dict[str, Process]:
    """Return every process by its id."""
    found = {}
    for pid in process_ids(host):
        # It may have ended, or belong to another user (hidepid=1).
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            found[pid] = _parsed(host.read(f"proc/{pid}/stat"))
    return found


def _parsed(stat: str) -> Process:
    """Return what proc_pid_stat(5) says: ppid, utime, stime, cutime, cstime and starttime."""
    words = stat.rpartition(")")[2].split()
    user, system, ended_user, ended_system = (int(word) / _TICK for word in words[11:15])
    return Process(words[1], int(words[19]), Cpu(user + ended_user, system + ended_system))


def tree_of(roots: Collection[str], every: Mapping[str, Process]) -> set[str]:
    """Return the ids of ``roots`` and all their descendants."""
    known = set(roots)
    while more := {pid for pid, one in every.items() if one.parent in known} - known:
        known |= more
    return known & every.keys()


def cpu_of(roots: Collection[str], every: Mapping[str, Process]) -> Cpu:
    """Return the CPU time of ``roots`` and all their descendants, from `processes`."""
    return sum((every[pid].cpu for pid in tree_of(roots, every)), Cpu())


@dataclass(frozen=True)
class ServerUsage:
    """Resources of a server during an interval.

    ``memory_bytes``: the sum of the peak resident memory of its processes, which is at least the
    peak of the sum. None if a peak could not be reset: by this user, or in time.
    """

    cpu: Cpu
    memory_bytes: int | None


class Server:
    """The processes that serve a mount, to be measured again and again.

    Once one of them has ended, the usage is unknown for good.
    """

    def __init__(self, host: Host, roots: Collection[str]) -> None:
        self._host = host
        every = processes(host) if roots else {}
        there = {pid: every[pid] for pid in roots if pid in every}
        # Their children may end and are still counted.
        self._starts = {pid: one.start for pid, one in there.items() if one.parent not in there}
        self._known = bool(there) and len(there) == len(roots)
        self._was_reset = False
        self._before = Cpu()

    @classmethod
    def of(cls, host: Host, mount: Mount) -> Server:
        """Return the server of ``mount``; unknown if there is none or none is visible."""
        found = Daemons(host).processes(mount) if is_fuse(mount.fstype) else {}
        return cls(host, found)

    def begin(self) -> None:
        """Start a measurement."""
        every = self._processes()
        tree = tree_of(self._starts, every)
        if self._known:
            # Writing waits for the process's mmap_lock (fs/proc/task_mmu.c, clear_refs_write()).
            done = each_in_time(partial(_reset_peak, self._host), sorted(tree))
            self._was_reset = len(done) == len(tree)
        self._before = cpu_of(self._starts, every)

    def end(self) -> ServerUsage | None:
        """Return the resources used since `begin`, None if unknown."""
        every = self._processes()
        spent = cpu_of(self._starts, every) - self._before
        if not self._known or min(spent.user, spent.system) < 0:
            return None  # a child has ended that was not waited for
        return ServerUsage(spent, self._peak(tree_of(self._starts, every)))

    def _processes(self) -> Mapping[str, Process]:
        every = processes(self._host) if self._known else {}
        for pid, start in self._starts.items():
            self._known = self._known and pid in every and every[pid].start == start
        return every

    def _peak(self, tree: Iterable[str]) -> int | None:
        if not self._was_reset:
            return None
        peak = 0
        for pid in tree:
            with suppress(FileNotFoundError, ProcessLookupError):
                peak += _peak_of(self._host, pid)
        return peak


def _reset_peak(host: Host, pid: str) -> None:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        host.write(f"proc/{pid}/clear_refs", _RESET_PEAK)


def _peak_of(host: Host, pid: str) -> int:
    """Return VmHWM in bytes, 0 for a process that no longer has memory."""
    for line in host.lines(f"proc/{pid}/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


@dataclass(frozen=True)
class Usage:
    """Resources that a workload used in one or several evaluations.

    ``work``: GiB that it moved, or thousands of operations if ``per_operation``. ``cached_bytes``:
    bytes that its last reader brought into the page cache; ``unused_bytes``: those of them that it
    did not read, brought by useless readahead. Only known for workloads that ``reads_once``, on
    mounts with page cache, since Linux 6.5.
    """

    per_operation: bool
    work: float
    client: Cpu
    server: Cpu | None
    memory_bytes: int | None
    cached_bytes: int | None = None
    unused_bytes: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """Return both combined: sums, the larger memory peak, and the known bytes."""
        known = [one for one in (self.memory_bytes, other.memory_bytes) if one is not None]
        return replace(
            self,
            work=self.work + other.work,
            client=self.client + other.client,
            server=self.server + other.server if self.server and other.server else None,
            memory_bytes=max(known, default=None),
            cached_bytes=_sum(self.cached_bytes, other.cached_bytes),
            unused_bytes=_sum(self.unused_bytes, other.unused_bytes),
        )

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds of client and server for each GiB or 1,000 operations, None if unknown.

        Less than a clock tick counts as one, because the server's time is known in ticks.
        """
        if not self.server:
            return None
        return self.per_work(max(self.client.seconds + self.server.seconds, 1 / _TICK))

    def per_work(self, seconds: float) -> float | None:
        """Return ``seconds`` for each GiB or 1,000 operations, None if nothing was done."""
        return seconds / self.work if self.work else None


def _sum(one: int | None, other: int | None) -> int | None:
    known = [number for number in (one, other) if number is not None]
    return sum(known) if known else None


def usage_of(
    workload: Workload,
    jobs: Sequence[Job],
    server: ServerUsage | None,
    cached_bytes: Callable[[], int | None],
) -> Usage:
    """Return the usage of ``workload`` from fio's ``jobs``. FusetuneError if a number is missing.

    The client's time is that of fio's jobs alone, without fio's own start. ``cached_bytes``:
    returns how many bytes of the file are in the page cache.
    """
    ways = ("read", "write")
    key, unit = ("total_ios", 1000) if workload.per_operation else ("io_bytes", 1 << 30)
    work = sum(number(job, way, key) for job in jobs for way in ways) / unit
    client = sum(map(_client, jobs), Cpu())
    cached = cached_bytes() if workload.reads_once else None
    unused = None if cached is None else cached - int(number(jobs[-1], "read", "io_bytes"))
    return Usage(
        workload.per_operation,
        work,
        client,
        server.cpu if server else None,
        server.memory_bytes if server else None,
        # If the cache has less than was read, the mount does not cache reads.
        *((cached, unused) if unused is not None and unused >= 0 else ()),
    )


def _client(job: Job) -> Cpu:
    """Return a job's CPU time: usr_cpu and sys_cpu are in % of job_runtime, milliseconds."""
    share = number(job, "job_runtime") / 1000 / 100
    return Cpu(number(job, "usr_cpu") * share, number(job, "sys_cpu") * share)


@dataclass
class Usages:
    """Resources that each workload used by setting, collected over a run."""

    _found: dict[frozenset[tuple[str, int]], dict[str, Usage]] = field(default_factory=dict)

    def add(self, setting: Mapping[str, int], usage: Mapping[str, Usage]) -> None:
        """Add an evaluation."""
        gathered = self._found.setdefault(frozenset(setting.items()), {})
        for name, one in usage.items():
            gathered[name] = gathered[name] + one if name in gathered else one

    def of(self, setting: Mapping[str, int]) -> dict[str, Usage]:
        """Return the usage of each workload with ``setting``, by name; empty if unmeasured."""
        return dict(self._found.get(frozenset(setting.items()), {}))
