# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own FUSE, observed with bpftrace."""

import os
import re
import select
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import BDI_NAME, Mount
from fusetune.profile.btf import Types
from fusetune.profile.calls import BY_FUNCTIONS, FUNCTIONS, CallProbes, by_system_calls
from fusetune.profile.counted import Counted, LiveCounts
from fusetune.profile.program import Abilities, live_program, program
from fusetune.profile.requests import TRACEPOINTS, Requests, by_functions, tracepoints_tell
from fusetune.profile.totals import Reading
from fusetune.profile.traffic import Traffic
from fusetune.profile.watching import Progress, until_ended
from fusetune.signals import Signals
from fusetune.syscalls import die_with_parent
from fusetune.text import printable
from fusetune.untrusted import LARGEST

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_TRACING = "sys/kernel/tracing"
_EVENTS = f"{_TRACING}/events"
_BTF = "sys/kernel/btf"
_KPROBES = f"{_TRACING}/kprobe_events"
#: This process's PID namespace, and the initial one (include/linux/proc_ns.h, PROC_PID_INIT_INO).
_PIDS, _FIRST_PIDS = "proc/self/ns/pid", f"pid:[{0xEFFFFFFC}]"
_LOCKDOWN = "sys/kernel/security/lockdown"
#: Seconds that bpftrace may take to attach its probes, and to detach them. It compiles them first,
#: which takes a second here and half a minute on a slow or busy machine.
_START, _END = 120.0, 10.0


def abilities(host: Host, mount: Mount) -> Abilities:
    """Return what this kernel can report about a mount.

    Raises FusetuneError with the remedy if it cannot report requests.
    """
    _refuse_untraceable(host)
    try:
        types = Types(Path(host.path(_BTF)), "fuse")
    except (OSError, ValueError, struct.error):
        types = None
    return Abilities(
        pauses=_has(host, "writeback/balance_dirty_pages"),
        faults=_has(host, "filemap/mm_filemap_fault"),
        calls=_calls(host, mount, types),
        requests=_requests(host, types),
    )


def _calls(host: Host, mount: Mount, types: Types | None) -> CallProbes | None:
    """Return how this kernel reports reads and writes; BTF types identify their files."""
    has_kprobes = os.path.exists(host.path(_KPROBES))
    if types and has_kprobes and types.parameters({*FUNCTIONS}) == FUNCTIONS:
        return BY_FUNCTIONS
    if not _traces_calls(host):
        return None
    servers = Daemons(host).processes(mount) if _sees_all_processes(host) else ()
    return by_system_calls([int(pid) for pid in servers])


def _sees_all_processes(host: Host) -> bool:
    """Whether process IDs here are the ones that BPF programs see."""
    try:
        return os.readlink(host.path(_PIDS)) == _FIRST_PIDS
    except FileNotFoundError:  # a kernel without pid namespaces
        return True


def _traces_calls(host: Host) -> bool:
    return _has(host, "syscalls/sys_enter_pread64") and os.path.exists(host.path(f"{_BTF}/vmlinux"))


def _refuse_untraceable(host: Host) -> None:
    """Raise FusetuneError with the remedy if the kernel cannot be traced at all."""
    if "[confidentiality]" in _text(host, _LOCKDOWN):
        raise FusetuneError(
            "kernel lockdown (confidentiality) forbids tracing; boot without it to observe this "
            "mount, or mount it with the module fusetuned, which counts requests itself"
        )
    if not os.path.isdir(host.path(_EVENTS)):
        raise FusetuneError(
            f"tracefs is not mounted on /{_TRACING}; mount it: mount -t tracefs tracefs /{_TRACING}"
        )


def _requests(host: Host, types: Types | None) -> Requests:
    """Return how this kernel reports requests. Raises FusetuneError if it does not."""
    traced = _has(host, "fuse/fuse_request_send")
    if traced and (types is None or tracepoints_tell(types)):
        return TRACEPOINTS
    if types and (found := by_functions(types)):
        return found
    raise FusetuneError(
        "this kernel has neither FUSE's tracepoints as of Linux 6.18 nor the functions and types "
        f"(/{_BTF}) of 5.10 to 6.12; boot such a kernel, or mount with the module fusetuned, which "
        "counts requests itself"
    )


def traces_faults(host: Host) -> bool:
    """Return whether this kernel reports page faults, besides system calls and their files.

    Raises FusetuneError with the remedy if it cannot report these calls.
    """
    _refuse_untraceable(host)
    if not _traces_calls(host):
        raise FusetuneError(
            "this kernel cannot report the file of a system call; use one with "
            "CONFIG_FTRACE_SYSCALLS and CONFIG_DEBUG_INFO_BTF"
        )
    return _has(host, "filemap/mm_filemap_map_pages")


def _has(host: Host, event: str) -> bool:
    return os.path.isdir(host.path(f"{_EVENTS}/{event}"))


def _text(host: Host, file: str) -> str:
    try:
        return host.read(file)
    except FileNotFoundError:  # a kernel without it
        return ""


def _cpus(host: Host) -> int:
    """Return the number of possible CPUs, from a list such as 0-3 (cputopology.rst)."""
    return int(re.split("[-,]", host.read("sys/devices/system/cpu/possible"))[-1]) + 1


def device_of(mount: Mount) -> int:
    """Return the number of a mount's device as in the kernel's dev_t."""
    major, minor = (int(part) for part in mount.device.split(":"))
    return major << 20 | minor


def bpftrace_path() -> str:
    """Return the path of bpftrace. Raises FusetuneError if not installed or not root."""
    if os.geteuid():
        raise FusetuneError("only root may trace the kernel; run fusetune as root")
    path = shutil.which("bpftrace", path=_PATH)
    if not path:
        raise FusetuneError(
            "bpftrace is not installed: apt install bpftrace, or dnf install bpftrace"
        )
    return path


class Bpftrace:
    """A running bpftrace; the kernel removes its probes when it exits, and kills it with us.

    ``path``: of bpftrace. ``take``: gets each line that it prints.
    """

    def __init__(self, path: str, text: str, take: Callable[[bytes], None]) -> None:
        # A separate session: Ctrl-C in the terminal only reaches us, and we end it.
        self._process = subprocess.Popen(
            [path, "-f", "json", "-e", text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _PATH, "LC_ALL": "C"},
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread
        )
        self._take_line = take
        self._rest = b""
        self._taken = 0
        self._errors = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in self.streams:
            stream.close()

    @property
    def streams(self) -> list[IO[bytes]]:
        """What it prints to, for select(2)."""
        return [one for one in (self._process.stdout, self._process.stderr) if one]

    def read(self, stream: IO[bytes]) -> None:
        """Read once from a stream that is readable. Raises FusetuneError if it has ended."""
        if not self._take(stream):
            raise FusetuneError(self._why())

    def wait(self, seconds: float, *others: Signals) -> bool:
        """Read what it prints, for up to ``seconds``; return whether one of ``others`` is readable.

        Raises FusetuneError if it has ended.
        """
        streams = self.streams
        ready = select.select([*streams, *others], [], [], max(0.0, seconds))[0]
        for stream in streams:
            if stream in ready:
                self.read(stream)
        return any(one in ready for one in others)

    def _take(self, stream: IO[bytes]) -> bool:
        """Read once; return whether the stream is still open."""
        part = os.read(stream.fileno(), 1 << 16)
        if stream is self._process.stderr:
            self._errors = (self._errors + part)[-(1 << 16) :]
            return bool(part) or self._process.poll() is None
        self._taken += len(part)
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            self._take_line(line)
        if len(self._rest) > LARGEST:
            raise FusetuneError(f"bpftrace printed a line of more than {LARGEST} bytes")
        return bool(part)

    def _why(self) -> str:
        """Return why it exited: its last line with an error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        lines = self._errors.decode(errors="replace").splitlines()
        named = [line for line in lines if "ERROR" in line and "RLIMIT_MEMLOCK" not in line]
        return f"bpftrace ended: {printable((named or lines or ['no output'])[-1])}"

    def until_ready(self, is_ready: Callable[[], bool], *others: Signals) -> None:
        """Wait until it has attached its probes. Raises FusetuneError if it does not."""
        end = time.monotonic() + _START
        while not is_ready():
            if self.wait(end - time.monotonic(), *others):
                raise FusetuneError("interrupted before the first request was observed")
            if time.monotonic() > end:
                raise FusetuneError(f"bpftrace did not attach its probes within {_START:.0f} s")

    def skipped(self) -> int:
        """Return how often the kernel skipped one of its programs."""
        return skipped_in(f"/proc/{self._process.pid}/fdinfo")

    def finish(self) -> None:
        """Make it remove its probes and print its maps. Raises FusetuneError if it does not."""
        self._process.send_signal(signal.SIGINT)
        end = time.monotonic() + _END
        stdout = self._process.stdout
        while stdout and time.monotonic() < end:
            for stream in select.select(self.streams, [], [], 0.1)[0]:
                if not self._take(stream) and stream is stdout:
                    return
        raise FusetuneError(f"bpftrace did not exit within {_END:.0f} s and was killed")


def skipped_in(directory: str) -> int:
    """Return how often the kernel skipped BPF programs of a process, from its fdinfo.

    It skips and counts them when another BPF program was interrupted on that CPU
    (kernel/bpf/syscall.c, bpf_prog_show_fdinfo(), recursion_misses; for tracepoints and kprobes
    since Linux 6.7, kernel/trace/bpf_trace.c, trace_call_bpf()).
    """
    found: dict[str, int] = {}
    for name in os.listdir(directory):
        with suppress(OSError), open(f"{directory}/{name}", encoding="ascii") as stream:
            fields = dict(line.split(":\t", 1) for line in stream if ":\t" in line)
            if "recursion_misses" in fields:
                found[fields["prog_id"]] = int(fields["recursion_misses"])
    return sum(found.values())


def _bdi_of(mount: Mount) -> str:
    bdi = mount.bdi or mount.device
    if not BDI_NAME.fullmatch(bdi):
        raise FusetuneError(f"the device has an unexpected name: {printable(bdi)}")
    return bdi


class Tracing:
    """A mount's requests, counted by bpftrace from its construction until `close`.

    Raises FusetuneError, in one line with the remedy, if this host cannot do it.
    """

    def __init__(self, host: Host, mount: Mount, every: float) -> None:
        """``every``: seconds from one reading to the next."""
        path = bpftrace_path()
        able = abilities(host, mount)
        text = live_program(device_of(mount), _bdi_of(mount), _cpus(host), able, every)
        self.queued = able.requests is not TRACEPOINTS
        self._counted = LiveCounts(able)
        self._running = Bpftrace(path, text, self._counted.take)
        self._until = time.monotonic() + _START

    @property
    def streams(self) -> list[IO[bytes]]:
        """What is to be read, for select(2)."""
        return self._running.streams

    def read(self, stream: IO[bytes]) -> None:
        """Read once from a stream that is readable. Raises FusetuneError if bpftrace has ended."""
        self._running.read(stream)

    @property
    def ready(self) -> bool:
        """Whether all probes are attached."""
        return self._counted.ready

    def reading(self) -> Reading | None:
        """Return what is counted so far; None before all probes are attached.

        Its peaks are those since the last call.

        Raises FusetuneError if they were not attached in time.
        """
        found = self._counted.reading()
        if found is None and time.monotonic() > self._until:
            raise FusetuneError(f"bpftrace did not attach its probes within {_START:.0f} s")
        return found

    def close(self) -> None:
        """End bpftrace; the kernel has removed its probes when this returns."""
        self._running.__exit__()


def watch_by_bpftrace(host: Host, mount: Mount, seconds: float, progress: Progress) -> Traffic:
    """Observe a mount for ``seconds``, or until a signal arrives or the mount is gone.

    Raises FusetuneError, in one line with the remedy, if this host cannot do it.
    """
    path = bpftrace_path()
    able = abilities(host, mount)
    text = program(device_of(mount), _bdi_of(mount), _cpus(host), able)
    counted = Counted()
    with Signals() as signals, Bpftrace(path, text, counted.take) as running:
        running.until_ready(lambda: counted.ready, signals)
        watched = until_ended(
            host, mount, seconds, lambda most: running.wait(most, signals), progress
        )
        skipped = running.skipped()
        running.finish()
    return Traffic(
        seconds=watched.seconds,
        source="bpftrace",
        ended=watched.ended,
        lost=counted.lost() + skipped,
        operations=counted.operations(),
        pattern=counted.pattern(able),
        waiting=watched.waiting,
        queued=able.requests is not TRACEPOINTS,
    )
