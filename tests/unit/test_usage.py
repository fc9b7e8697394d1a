# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's resources that a workload uses, from files instead of /proc, and real processes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fusetune.bench.usage import (
    Cpu,
    Server,
    ServerUsage,
    Usage,
    Usages,
    cpu_of,
    processes,
    tree_of,
    usage_of,
)
from fusetune.bench.workloads import WORKLOADS
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.report.documents.usage import (
    unused_share,
    usage_changes,
    usage_shown,
    usage_text,
)
from tests.unit.conftest import Tree

TICK = os.sysconf("SC_CLK_TCK")


ONE = Usage(False, 1.0, Cpu(1, 2), Cpu(3, 4), 100)


def process(
    tree: Tree,
    pid: int,
    parent: int,
    seconds: tuple[int, int, int, int] = (0, 0, 0, 0),
    *,
    start: int = 5,
    peak_kib: int | None = 1000,
) -> None:
    """Write a process; ``seconds``: utime, stime, cutime, cstime."""
    times = " ".join(str(one * TICK) for one in seconds)
    # The name may contain anything.
    text = f"{pid} (a) R 1 (b\n) S {parent} 7 7 0 -1 0 1 2 3 4 {times} 20 0 1 0 {start} 99 9\n"
    tree.write(f"proc/{pid}/stat", text)
    peak = "" if peak_kib is None else f"VmHWM:\t{peak_kib} kB\n"
    tree.write(f"proc/{pid}/status", f"Name:\ta\n{peak}VmRSS:\t1 kB\n")
    tree.write(f"proc/{pid}/clear_refs", "")


def test_the_cpu_time_of_a_tree_of_processes(tree: Tree) -> None:
    process(tree, 10, 1, (1, 2, 4, 8))
    process(tree, 11, 10, (16, 0, 0, 0))
    process(tree, 12, 11, (0, 32, 0, 0))
    process(tree, 13, 1, (64, 64, 64, 64))
    (tree.root / "proc/14").mkdir()  # it has ended meanwhile
    every = processes(tree.host)
    assert tree_of({"10"}, every) == {"10", "11", "12"}
    assert cpu_of({"10"}, every) == Cpu(21, 42)
    assert cpu_of({"10", "12"}, every) == Cpu(21, 42)
    assert cpu_of({"99"}, every) == Cpu()


def test_what_a_server_takes(tree: Tree) -> None:
    process(tree, 10, 1, (1, 2, 0, 0))
    process(tree, 11, 10, (3, 0, 0, 0))
    server = Server(tree.host, ["10"])
    server.begin()
    assert [tree.read(f"proc/{pid}/clear_refs") for pid in (10, 11)] == ["5", "5"]
    process(tree, 10, 1, (2, 4, 3, 0), peak_kib=2000)
    (tree.root / "proc/11/stat").unlink()  # it has ended, and its parent has its time
    process(tree, 12, 10, (0, 8, 0, 0), peak_kib=500)
    process(tree, 13, 10, peak_kib=None)  # it is a zombie
    assert server.end() == ServerUsage(Cpu(1, 10), 2500 << 10)
    server.begin()
    assert server.end() == ServerUsage(Cpu(0, 0), 2500 << 10)


def test_a_child_that_nobody_waited_for_leaves_the_time_unknown(tree: Tree) -> None:
    process(tree, 10, 1, (1, 0, 0, 0))
    process(tree, 11, 10, (5, 0, 0, 0))
    server = Server(tree.host, ["10"])
    server.begin()
    process(tree, 11, 1, (5, 0, 0, 0))
    assert server.end() is None
    server.begin()
    assert server.end() == ServerUsage(Cpu(), 1000 << 10)


@pytest.mark.parametrize("start", [5, 6])
def test_a_server_that_was_started_anew_is_unknown(tree: Tree, start: int) -> None:
    process(tree, 10, 1)
    server = Server(tree.host, ["10"])
    process(tree, 10, 1, (1, 0, 0, 0), start=start)
    server.begin()
    assert (server.end() is None) == (start == 6)


@pytest.mark.parametrize("roots", [[], ["10", "99"]])
def test_a_server_of_which_nothing_is_visible_is_unknown(tree: Tree, roots: list[str]) -> None:
    process(tree, 10, 1)
    server = Server(tree.host, roots)
    server.begin()
    assert server.end() is None


def test_a_process_that_a_server_has_started_may_end(tree: Tree) -> None:
    """Such as one that holds /dev/fuse open between fork and exec."""
    process(tree, 10, 1)
    process(tree, 11, 10)
    server = Server(tree.host, ["10", "11"])
    (tree.root / "proc/11/stat").unlink()
    server.begin()
    assert server.end() == ServerUsage(Cpu(), 1000 << 10)


def test_memory_is_unknown_where_no_peak_can_be_set_back(tree: Tree) -> None:
    process(tree, 10, 1)
    (tree.root / "proc/10/clear_refs").unlink()
    (tree.root / "proc/10/clear_refs").mkdir()  # as for another user's process, also for root
    server = Server(tree.host, ["10"])
    server.begin()
    assert server.end() == ServerUsage(Cpu(), None)
    (tree.root / "proc/10/clear_refs").rmdir()
    tree.write("proc/10/clear_refs", "")  # as if that once took too long
    server.begin()
    assert server.end() == ServerUsage(Cpu(), 1000 << 10)


def test_tmpfs_has_no_server(tree: Tree, mounted: Mount) -> None:
    process(tree, 10, 1)
    tree.write("proc/10/cmdline", f"server\0{mounted.path}\0")
    for mount in (mounted, replace(mounted, fstype="tmpfs")):
        server = Server.of(tree.host, mount)
        server.begin()
        assert server.end() is None


def test_real_processes_that_ended_and_that_run_are_counted() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass\n"
    hold = "held = bytearray(64 << 20)\nprint(flush=True)\nopen(0).read()"
    both = f"read line; {sys.executable} -c '{burn}'; {sys.executable} -c '{burn}{hold}'"
    with subprocess.Popen(
        ["sh", "-c", f"{both}; true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdin
        assert run.stdout
        server = Server(Host(), [str(run.pid)])
        server.begin()
        run.stdin.write(b"\n")
        run.stdin.flush()
        run.stdout.read(1)
        found = server.end()
    assert found
    assert found.cpu.seconds >= 0.38  # counted in hundredths, once for each of them
    assert found.memory_bytes
    assert 64 << 20 < found.memory_bytes < 256 << 20


def job(**fields: Any) -> Mapping[str, Any]:
    moved = {"io_bytes": 1 << 30, "total_ios": 500}
    idle = {"io_bytes": 0, "total_ios": 0}
    used = {"usr_cpu": 25.0, "sys_cpu": 50.0, "job_runtime": 2000}
    return {"read": moved, "write": idle, **used, **fields}


def test_the_usage_of_fio_jobs() -> None:
    server = ServerUsage(Cpu(3, 1), 7)
    jobs = [job(), job(write={"io_bytes": 2 << 30, "total_ios": 1000})]
    assert usage_of(WORKLOADS["mixed"], jobs, server, lambda: 9) == Usage(
        False, 4.0, Cpu(1, 2), Cpu(3, 1), 7
    )
    assert usage_of(WORKLOADS["metadata"], jobs, None, lambda: 9) == Usage(
        True, 2.0, Cpu(1, 2), None, None
    )
    with pytest.raises(FusetuneError, match="no number for usr_cpu"):
        usage_of(WORKLOADS["mixed"], [job(usr_cpu=-1)], server, lambda: None)


@pytest.mark.parametrize(
    ("cached", "found"),
    [((1 << 30) + 4096, ((1 << 30) + 4096, 4096)), (1 << 30, (1 << 30, 0)), (4096, (None, None))],
)
def test_what_readahead_brought_in_vain(cached: int, found: tuple[int | None, ...]) -> None:
    """If less is cached than was read, the mount does not keep data in the cache."""
    for name in ("seq-read", "rand-read", "mmap-read"):
        usage = usage_of(WORKLOADS[name], [job()], None, lambda: cached)
        assert (usage.cached_bytes, usage.unused_bytes) == found
    assert usage_of(WORKLOADS["seq-read"], [job()], None, lambda: None).cached_bytes is None
    assert usage_of(WORKLOADS["mixed"], [job()], None, lambda: cached).cached_bytes is None


def test_only_the_last_job_of_a_workload_is_in_the_cache() -> None:
    jobs = [job(), job(read={"io_bytes": 4096, "total_ios": 1})]
    usage = usage_of(WORKLOADS["mmap-read"], jobs, None, lambda: 12288)
    assert usage.unused_bytes == 8192
    assert unused_share(usage) == pytest.approx(2 / 3)
    both = usage + replace(usage, unused_bytes=0) + replace(ONE, cached_bytes=None)
    assert (both.cached_bytes, both.unused_bytes) == (24576, 8192)
    assert unused_share(ONE) is None


def test_what_is_counted_in_operations() -> None:
    for workload in WORKLOADS.values():
        assert workload.per_operation == (workload.unit == "operations_per_second")


def test_usages_are_gathered_by_setting() -> None:
    gathered = Usages()
    gathered.add({"a": 1}, {"mixed": ONE})
    gathered.add({"a": 1}, {"mixed": replace(ONE, work=3.0, memory_bytes=50)})
    gathered.add({"a": 2}, {"mixed": ONE})
    gathered.add({"a": 2}, {"mixed": replace(ONE, server=None, memory_bytes=None)})
    assert gathered.of({"a": 1}) == {"mixed": Usage(False, 4.0, Cpu(2, 4), Cpu(6, 8), 100)}
    assert gathered.of({"a": 1})["mixed"].cpu_seconds == 5.0
    assert gathered.of({"a": 2}) == {"mixed": Usage(False, 2.0, Cpu(2, 4), None, 100)}
    assert gathered.of({"a": 2})["mixed"].cpu_seconds is None
    assert gathered.of({"a": 3}) == {}


def test_usage_as_people_read_it() -> None:
    before, after = usage_shown(ONE), usage_shown(replace(ONE, server=None, memory_bytes=None))
    assert usage_text(before) == (
        "server 7 s, client 3 s of CPU per GiB (6 s in the kernel); server's peak memory 100 B"
    )
    assert usage_text(before, after) == (
        "server 7 s -> unknown, client 3 s -> 3 s of CPU per GiB (6 s -> unknown in the kernel); "
        "server's peak memory 100 B -> unknown"
    )
    vain = usage_shown(replace(ONE, cached_bytes=1000, unused_bytes=283))
    assert usage_text(before, vain).endswith("100 B -> 100 B; wasted readahead unknown -> 28.3%")
    assert usage_shown(replace(ONE, work=0.0)) is None
    assert usage_text(None) == "its use of the host is unknown"


def test_a_change_has_usage_before_and_after() -> None:
    usages, mixed = Usages(), [WORKLOADS["mixed"]]
    assert usage_changes(mixed, usages, {"a": 1}, None) == []
    usages.add({"a": 1}, {"mixed": ONE})
    usages.add({"a": 2}, {"mixed": replace(ONE, work=2.0)})
    (same,) = usage_changes(mixed, usages, {"a": 1}, None)
    assert same.after is None
    (changed,) = usage_changes(mixed, usages, {"a": 1}, {"a": 2})
    assert changed.before
    assert changed.after
    assert (changed.before.server_cpu_seconds, changed.after.server_cpu_seconds) == (7.0, 3.5)
    assert changed.text().startswith(
        "mixed: server 7 s -> 3.5 s, client 3 s -> 1.5 s of CPU per GiB"
    )
