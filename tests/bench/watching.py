# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of ``profile`` and ``top`` while they watch 4 KiB reads by bpftrace."""

import math
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusetune.bench.usage import cpu_of, processes
from fusetune.host import Host
from tests.bench.contest import paired
from tests.bench.page import Section, ratio, table, verdict
from tests.kernel.guest.cost import WATCHED, reads
from tests.kernel.machine import measured
from tests.kernel.suites import SUITES
from tests.native.mirror import CHECKOUT, PATIENCE, Mirror
from tests.native.traced import BLOCK, bpf_programs, fill
from tests.tmpfs import tmpfs, tracefs

_BLOCKS = 12
_SECONDS = 3
_SIZE = 256 << 20
_STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
#: By what is shown: the command, whose end is a signal.
_WATCHERS = {
    "profile": ("profile", "--for", "1h"),
    "top": ("top", "--json", "-i", "1"),
}
_COLUMNS = ("watched by", "reads/s, watched / alone", "probes' time / a read's", "CPU, of a core")
#: The speed that remains while `profile` watches.
_WANTED = 0.97
_COUNTED = ("Linux", "reads/s, `profile` / alone", f"at least {_WANTED}", "`top` / alone")


@dataclass(frozen=True)
class Watched:
    """A block: reads per second, the probes' share of the time, and cores used by the rest."""

    speed: float
    probes: float
    cores: float


class _Lasting(Mirror):
    lifetime = 3600.0


@contextmanager
def _statistics() -> Iterator[None]:
    """Let the kernel count the time in each BPF program (Documentation/admin-guide/sysctl)."""
    before = _STATISTICS.read_text()
    _STATISTICS.write_text("1\n")
    try:
        yield
    finally:
        _STATISTICS.write_text(before)


def _programs() -> dict[int, int]:
    """Return the nanoseconds that each BPF program has run, by its number."""
    return {one["id"]: one.get("run_time_ns", 0) for one in bpf_programs()}


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of all its descendants."""
    return cpu_of([str(pid)], processes(Host())).seconds


@contextmanager
def _watcher(
    point: Path, directory: Path, words: tuple[str, ...]
) -> Iterator[tuple[int, set[int]]]:
    """Watch a mount; yield the watcher's process, and its BPF programs once all are loaded."""
    before = _programs()
    own = ("--state-dir", directory / "state", "--run-dir", directory / "run")
    name, *more = words
    process = subprocess.Popen(
        [sys.executable, "-m", "fusetune", *own, name, point, *more],
        cwd=CHECKOUT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + PATIENCE
        found: set[int] = set()
        while True:
            time.sleep(1)
            new = set(_programs()) - set(before)
            if new and new == found:
                break
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError(f"{name} has attached nothing")
            found = new
        yield process.pid, found
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


def _watched(file: Path, directory: Path, words: tuple[str, ...]) -> Watched:
    with _watcher(file.parent, directory, words) as (pid, programs):
        before, cpu, begun = _programs(), _cpu_seconds(pid), time.monotonic()
        speed = reads(file, _SECONDS)
        seconds = time.monotonic() - begun
        after, cpu = _programs(), _cpu_seconds(pid) - cpu
    spent = sum(after[one] - before[one] for one in programs) / 1e9
    return Watched(speed, spent / _SECONDS, cpu / seconds)


def _row(name: str, file: Path, directory: Path) -> tuple[str, ...]:
    alone, watched = [], []
    for _ in range(_BLOCKS):
        for is_watched in random.sample([True, False], 2):
            if is_watched:
                watched.append(_watched(file, directory, _WATCHERS[name]))
            else:
                alone.append(reads(file, _SECONDS))
    speeds = paired([math.log(one.speed) for one in watched], [math.log(one) for one in alone])
    probes, cores = ([getattr(one, key) for one in watched] for key in ("probes", "cores"))
    shares = (f"{statistics.median(v):.1%} [{min(v):.1%}, {max(v):.1%}]" for v in (probes, cores))
    return (f"`{name}`", ratio(speeds), *shares)


def _counted(series: str) -> tuple[str, ...]:
    """Return a row of what guest/cost.py measures. Raises RuntimeError if it did not end."""
    found = measured(series, "measure_watching", counted=True)
    profile, top = (found[name] for name in _WATCHERS)
    reached = verdict(statistics.median(profile) >= _WANTED)
    shown = [f"{statistics.median(v):.3f} [{min(v):.3f}, {max(v):.3f}]" for v in (profile, top)]
    return (series, shown[0], reached, shown[1])


def _make() -> str:
    counted = table(_COUNTED, [_counted(suite.series) for suite in SUITES])
    with (
        tempfile.TemporaryDirectory() as name,
        tmpfs(Path(name), "size=1G"),
        tracefs(),
        _statistics(),
    ):
        directory = Path(name)
        (directory / "source").mkdir()
        with _Lasting(directory / "source", directory / "mnt") as mirror:
            file = fill(mirror, _SIZE // BLOCK)
            rows = [_row(one, file, directory) for one in _WATCHERS]
    return f"{table(_COLUMNS, rows)}\n\n{counted}"


WATCHING = Section(
    "What watching costs",
    "Reads of 4 KiB at random places in a file, without the page cache, one at a time, with and "
    f"without bpftrace watching, in {_BLOCKS} blocks of {_SECONDS} seconds each, in random order. "
    "The kernel counts the time spent in the probes, including the time that the counting itself "
    "takes (`kernel.bpf_stats_enabled`); the table shows it as a share of the time that the "
    "reads took, and the CPU time of the watching processes. Both are medians, with the minimum "
    "and the maximum in brackets. "
    "The second table is for Debian's kernels, which have kprobes, in an emulated machine with one "
    "processor. Its clock counts the executed instructions of all programs and of the kernel, "
    f"instead of time. The figures are medians of {WATCHED} rounds, with the minimum and the "
    "maximum in brackets.",
    (_COLUMNS, _COUNTED),
    _make,
)
