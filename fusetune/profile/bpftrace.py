# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own FUSE, observed with bpftrace."""

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import IO, Self

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import BDI_NAME, Mount
from fusetune.profile.abilities import abilities
from fusetune.profile.counted import Counted, LiveCounts
from fusetune.profile.program import live_program, program
from fusetune.profile.totals import Reading
from fusetune.profile.traffic import Traffic
from fusetune.profile.watching import Progress, until_ended
from fusetune.signals import Signals
from fusetune.syscalls import die_with_parent
from fusetune.text import printable
from fusetune.untrusted import LARGEST

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT = {"PATH": _PATH, "LC_ALL": "C"}
#: Seconds that bpftrace may take to attach its probes, and to detach them. It compiles them first,
#: which takes a second here and half a minute on a slow or busy machine.
_START, _END = 120.0, 10.0


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


@cache
def entry_probe(path: str) -> str:
    """Return bpftrace's name for probes at a function's entry, empty if it cannot use them here.

    It tries this when asked for its features. The name differs between its releases.

    Raises FusetuneError if it does not answer.
    """
    try:
        done = subprocess.run(
            [path, "--info"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=_ENVIRONMENT,
            timeout=_START,
            preexec_fn=die_with_parent,
        )
    except subprocess.TimeoutExpired as error:
        raise FusetuneError(f"bpftrace --info did not exit within {_START:.0f} s") from error
    found = re.search(rb"\b(kfunc|fentry): yes\b", done.stdout + done.stderr)
    return found[1].decode() if found else ""


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
            env=_ENVIRONMENT,
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
        """Wait until it has attached its probes; ask ``is_ready`` at least twice a second.

        Raises FusetuneError if it does not attach them, and passes on what ``is_ready`` raises.
        """
        end = time.monotonic() + _START
        while not is_ready():
            if self.wait(min(0.5, end - time.monotonic()), *others):
                raise FusetuneError("interrupted before the first request was observed")
            if time.monotonic() > end:
                raise FusetuneError(f"bpftrace did not attach its probes within {_START:.0f} s")

    def skipped(self) -> int:
        """Return how often the kernel skipped one of its programs.

        Raises FusetuneError if it has ended.
        """
        try:
            return skipped_in(f"/proc/{self._process.pid}/fdinfo")
        except OSError as error:
            raise FusetuneError(self._why()) from error

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
        able = abilities(host, mount, partial(entry_probe, path))
        text = live_program(device_of(mount), _bdi_of(mount), _cpus(host), able, every)
        self.queued = able.requests.queued
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

        Raises FusetuneError if they were not attached in time, or if bpftrace has ended.
        """
        if found := self._counted.reading():
            return replace(found, lost=self._running.skipped())
        if time.monotonic() > self._until:
            raise FusetuneError(f"bpftrace did not attach its probes within {_START:.0f} s")
        return None

    def close(self) -> None:
        """End bpftrace; the kernel has removed its probes when this returns."""
        self._running.__exit__()


def watch_by_bpftrace(host: Host, mount: Mount, seconds: float, progress: Progress) -> Traffic:
    """Observe a mount for ``seconds``, or until a signal arrives or the mount is gone.

    Raises FusetuneError, in one line with the remedy, if this host cannot do it.
    """
    path = bpftrace_path()
    able = abilities(host, mount, partial(entry_probe, path))
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
        lost=skipped,
        unrecorded=counted.unrecorded(),
        operations=counted.operations(),
        pattern=counted.pattern(able),
        waiting=watched.waiting,
        queued=able.requests.queued,
    )
