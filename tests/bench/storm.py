# SPDX-License-Identifier: GPL-2.0-or-later
"""Many mounts at once, set by the service; compared with one start of the program for each."""

import resource
import statistics
from dataclasses import dataclass

from fusetune.bench.intervals import Interval
from tests.bench.page import Section, ratio, table
from tests.system.container import Container
from tests.system.watched import SERVICE, Answering, has, keep, left, peak_memory, serving, show

COUNTS = (50, 200, 500)
ALONE = 15
_COLUMNS = ("mounts", "CPU per mount", "peak memory", "starts")


@dataclass(frozen=True)
class Storm:
    """One storm: CPU seconds of the service, its peak memory in bytes, and starts of it."""

    count: int
    cpu_seconds: float
    memory: int
    starts: int


def _storms() -> tuple[list[Storm], list[float]]:
    """Return storms of `COUNTS` mounts, and the CPU seconds of single ``fusetune apply M``."""
    with Container() as container, serving(container) as server:
        return [_storm(container, server, count) for count in COUNTS], _alone(container, server)


def _storm(container: Container, server: Answering, count: int) -> Storm:
    container.run("systemctl", "stop", SERVICE)
    points = [f"/mnt/storm/{number}" for number in range(count)]
    for point in points:
        keep(container, point, {"max_background": 64, "read_ahead_kb": 4096})
    bdis = server.mount(*points)
    wanted = {"max_background": 64, "read_ahead_kb": 4096}
    container.wait(lambda: all(has(container, bdi, wanted) for bdi in bdis), "values")
    pid = show(container, "MainPID")
    server.unmount(*points)
    container.wait(lambda: left(container) == [], "the end of what is remembered")
    cpu = int(show(container, "CPUUsageNSec")) / 1e9
    restarts = int(show(container, "NRestarts"))
    return Storm(count, cpu, peak_memory(container, pid), 1 + restarts)


def _alone(container: Container, server: Answering) -> list[float]:
    container.run("systemctl", "mask", "--runtime", "--now", SERVICE)
    point = "/mnt/storm/0"
    server.mount(point)
    spent = []
    for _ in range(ALONE):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        container.run("fusetune", "apply", point)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        container.run("fusetune", "set", point, "max_background=12", "read_ahead_kb=128")
    server.unmount(point)
    return [statistics.median(spent), min(spent), max(spent)]


def _make() -> str:
    found, (alone, least, most) = _storms()
    rows = []
    for one in found:
        each = one.cpu_seconds / one.count
        spread = Interval(each / alone, each / most, each / least)
        memory = f"{one.memory / (1 << 20):.0f} MiB"
        rows.append((str(one.count), ratio(spread), memory, str(one.starts)))
    return table(_COLUMNS, rows)


STORM = Section(
    "Many mounts at once",
    "Many mounts are made at once and unmounted again, in a container with its own systemd and "
    "udev. The CPU time of fusetune.service per mount, including its start, is a ratio to that "
    f"of one `fusetune apply M`, which ran {ALONE} times: to the median, and in brackets to the "
    "maximum and the minimum. The starts include the first one and those that systemd made "
    "because the service had failed.",
    (_COLUMNS,),
    _make,
)
