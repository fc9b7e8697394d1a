# SPDX-License-Identifier: GPL-2.0-or-later
"""profile: its figures from counters, and its requirements on the host."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from fusetune.profile.abilities import abilities
from fusetune.profile.bpftrace import Bpftrace, entry_probe, skipped_in
from fusetune.profile.calls import (
    FUNCTIONS,
    KPROBE,
    NUMBERS,
    SPLICE,
    by_system_calls,
    calls_by_functions,
)
from fusetune.profile.counted import Counted
from fusetune.profile.module import parse_counters, totals_of, watch_by_module
from fusetune.profile.program import (
    FAULT_FUNCTION,
    FAULTS,
    FAULTS_BY_FUNCTION,
    Abilities,
    bucket_middle,
    program,
)
from fusetune.profile.requests import TRACEPOINTS
from fusetune.profile.totals import Counts, operations_between
from fusetune.profile.traffic import Calls, Operation, Pattern
from tests.unit.conftest import Tree, process
from tests.unit.test_btf import write as write_types

MACHINE = os.uname().machine
EVERY = Abilities(pauses=True, faults=FAULTS, calls=by_system_calls([], MACHINE))
EVENTS = "sys/kernel/tracing/events"


# What a host must have


@pytest.fixture
def traced(tree: Tree) -> Tree:
    """A host on which everything is known."""
    for event in (
        *("fuse/fuse_request_send", "writeback/balance_dirty_pages"),
        *("filemap/mm_filemap_fault", "raw_syscalls/sys_enter"),
    ):
        tree.write(f"{EVENTS}/{event}/id", "1\n")
    tree.write("sys/kernel/btf/vmlinux", "")
    return tree


def told(traced: Tree, mounted: Mount, name: str = "") -> Abilities:
    """What the kernel can report; ``name``: bpftrace's for probes at functions' entries."""
    return abilities(traced.host, mounted, lambda: name)


def test_everything_can_be_told(traced: Tree, mounted: Mount) -> None:
    assert told(traced, mounted) == EVERY


def test_functions_tell_calls_where_there_are_kprobes(traced: Tree, mounted: Mount) -> None:
    write_types(traced.root / "sys/kernel/btf")
    assert told(traced, mounted).calls == EVERY.calls
    traced.write("sys/kernel/tracing/kprobe_events", "")
    assert told(traced, mounted).calls == calls_by_functions(KPROBE, splice=False)
    write_types(traced.root / "sys/kernel/btf", functions=SPLICE)
    assert told(traced, mounted).calls == calls_by_functions(KPROBE, splice=True)
    with pytest.MonkeyPatch.context() as patch:
        others = {**FUNCTIONS, "fuse_file_read_iter": ("iocb", "to", "flags")}
        patch.setattr("fusetune.profile.abilities.FUNCTIONS", others)
        assert told(traced, mounted).calls == EVERY.calls


def test_functions_are_watched_at_less_cost_where_bpftrace_can(
    traced: Tree, mounted: Mount
) -> None:
    write_types(traced.root / "sys/kernel/btf")
    shutil.rmtree(traced.root / EVENTS / "fuse/fuse_request_send")
    assert told(traced, mounted, "kfunc").calls == EVERY.calls
    traced.write("sys/kernel/tracing/kprobe_events", "")
    found = told(traced, mounted, "kfunc")
    assert found.calls == calls_by_functions("kfunc", splice=False)
    assert found.requests.sends[0].sent_probe == "kfunc:fuse_simple_request"


def test_a_function_tells_faults_where_the_tracepoint_is_missing(
    traced: Tree, mounted: Mount
) -> None:
    shutil.rmtree(traced.root / EVENTS / "filemap/mm_filemap_fault")
    write_types(traced.root / "sys/kernel/btf", functions=FAULT_FUNCTION)
    assert told(traced, mounted).faults == ""
    traced.write("sys/kernel/tracing/kprobe_events", "")
    assert told(traced, mounted).faults == FAULTS_BY_FUNCTION
    write_types(traced.root / "sys/kernel/btf")
    assert told(traced, mounted).faults == ""


def test_calls_of_the_server_are_not_looked_at(traced: Tree, mounted: Mount) -> None:
    process(traced, 12, "mirrorfs", fds={3: "40"})
    namespace = traced.root / "proc/self/ns/pid"
    namespace.parent.mkdir()
    namespace.symlink_to("pid:[4026531836]")
    calls = told(traced, mounted).calls
    assert calls
    assert calls == by_system_calls([12], MACHINE)
    assert all(" && pid != 12)" in one.probe for one in (*calls.reads, *calls.writes))
    namespace.unlink()
    namespace.symlink_to("pid:[4026532000]")  # where the kernel's 12 may be another process
    assert told(traced, mounted).calls == EVERY.calls


def test_one_probe_tells_all_system_calls_by_their_numbers() -> None:
    """The kernel takes a while to remove a probe from each tracepoint."""
    assert by_system_calls([], "s390x") is None
    for machine, read, write in (("x86_64", 0, 1), ("aarch64", 63, 64)):
        calls = by_system_calls([], machine)
        assert calls
        (reads, writes) = (*calls.reads, *calls.writes)
        (unseen,) = calls.unseen
        assert reads.probe == writes.probe == unseen.probe
        assert reads.probe.startswith("tracepoint:raw_syscalls:sys_enter {")
        assert reads.condition.startswith(f"($id == {read} ||")
        assert writes.condition.startswith(f"($id == {write} ||")
    assert all(len(set(numbers.values())) == len(numbers) for numbers in NUMBERS.values())


def test_without_types_there_is_no_pattern_of_calls(traced: Tree, mounted: Mount) -> None:
    (traced.root / "sys/kernel/btf/vmlinux").unlink()
    assert told(traced, mounted) == replace(EVERY, calls=None)


def test_without_tracefs(tree: Tree, mounted: Mount) -> None:
    with pytest.raises(FusetuneError, match=r"mount -t tracefs tracefs /sys/kernel/tracing$"):
        told(tree, mounted)


def test_a_kernel_without_the_tracepoint(traced: Tree, mounted: Mount) -> None:
    shutil.rmtree(traced.root / EVENTS / "fuse/fuse_request_send")
    with pytest.raises(FusetuneError, match=r"neither FUSE's tracepoints .* nor .* fusetuned"):
        told(traced, mounted)
    write_types(traced.root / "sys/kernel/btf")
    assert sent_by(traced, mounted) == "kprobe:fuse_simple_request"


def test_a_kernel_whose_tracepoints_do_not_know_the_request(traced: Tree, mounted: Mount) -> None:
    """On Linux 6.12 a send has no number yet, so its end would never be found."""
    btf = traced.root / "sys/kernel/btf"
    write_types(btf, "__fuse_simple_request", ("idmap", "fm", "args"))
    assert sent_by(traced, mounted) == "kprobe:__fuse_simple_request"
    write_types(btf, "fuse_request_assign_unique", ("fiq", "req"))
    assert told(traced, mounted).requests == TRACEPOINTS


def sent_by(traced: Tree, mounted: Mount) -> str:
    """The first probe of sends."""
    return told(traced, mounted).requests.sends[0].sent_probe


def test_a_locked_kernel(traced: Tree, mounted: Mount) -> None:
    traced.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    assert told(traced, mounted) == EVERY
    traced.write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n")
    with pytest.raises(FusetuneError, match="lockdown"):
        told(traced, mounted)


# bpftrace


@pytest.mark.parametrize(
    "able",
    [
        EVERY,
        replace(EVERY, faults=FAULTS_BY_FUNCTION, calls=calls_by_functions(KPROBE, splice=True)),
        Abilities(pauses=False, faults="", calls=None),
    ],
)
def test_the_program_differs_in_numbers_alone(able: Abilities) -> None:
    texts = [
        program(device, bdi, 2, able) for device, bdi in ((41, "0:41"), (7340077, "7:45-fuse"))
    ]
    assert re.sub("7340077|7:45-fuse", "", texts[1]) == re.sub(r"\b(0:)?41\b", "", texts[0])
    words = (
        "DEVICE CPUS LOOKED SAMPLED NEVER BDI BIT_ PROBE FILE POSITION LENGTH BODY BEYOND STREAMS"
    )
    assert not re.search(words.replace(" ", "|"), texts[0])


def test_buckets_are_exact_to_seven_percent() -> None:
    for microseconds in (*range(1, 5000), 10**6, 3 * 10**8):
        log = microseconds.bit_length() - 1
        bucket = microseconds
        if log > 3:  # as the program does
            bucket = ((log - 2) << 3) | ((microseconds >> (log - 3)) & 7)
        assert abs(bucket_middle(bucket) - microseconds) <= max(0.5, 0.07 * microseconds)


LINES = b"""{"type": "attached_probes", "data": {"probes": 9}}
{"type": "printf", "data": "ready\\n"}
{"type": "map", "data": {"@streaming": 2900000000}}
{"type": "map", "data": {"@window": 1000000000}}

{"type": "map", "data": {"@streaming": 3100000000}}
{"type": "map", "data": {"@window": 1100000000}}
{"type": "map", "data": {"@streaming": 3100000000}}
{"type": "map", "data": {"@window": 1100000000}}
{"type": "map", "data": {"@requests": {"15": 100, "3": 2, "63": 1}}}
{"type": "map", "data": {"@bytes": {"15": 397312, "3": 104}}}
{"type": "map", "data": {"@largest": {"15": 4096}}}
{"type": "map", "data": {"@most": {"15": 7, "3": 1}}}
{"type": "map", "data": {"@latency": {"15,20": 89, "15,3": 8, "3,9": 1}}}
{"type": "map", "data": {"@sent": {"88": 1231, "90": 1283}}}
{"type": "map", "data": {"@reads": {"0": 1, "1": 80, "2": 10, "5": 9}}}
{"type": "map", "data": {"@writes": {"9": 4, "12": 1}}}
{"type": "map", "data": {"@faults": 5}}
{"type": "map", "data": {"@asked": 80000}}
{"type": "map", "data": {"@unseen": 2}}
{"type": "map", "data": {"@paused_ms": 1500}}
"""


@pytest.fixture
def counted() -> Counted:
    """Output of bpftrace 0.17."""
    found = Counted()
    for line in LINES.splitlines():
        found.take(line)
    return found


def test_counters_become_traffic(counted: Counted) -> None:
    assert counted.ready
    read, getattr_, other = counted.operations()
    # Of 100, 97 ended, one is in flight, and the rest is estimated.
    assert (read.name, read.requests, read.nbytes) == ("READ", 100, 99 * 4096)
    assert (read.largest_bytes, read.most_in_flight) == (4096, 7)
    assert [read.percentile(percent) for percent in (5, 50, 99)] == [3.5, 25.0, 25.0]
    assert (getattr_.name, getattr_.requests, getattr_.nbytes) == ("GETATTR", 2, 104)
    assert (other.name, other.nbytes, other.most_in_flight) == ("OTHER", None, None)
    assert other.percentile(50) is None
    assert counted.unrecorded() == 3
    assert counted.pattern(EVERY) == Pattern(
        Calls(total=100, sequential=89, elsewhere=10, direct=9, appends=0),
        Calls(total=5, sequential=4, elsewhere=0, direct=1, appends=5),
        streams=3,
        page_faults=5,
        paused_seconds=1.5,
        read_bytes=80000,
        unseen=2,
    )


def test_an_aborted_request_has_no_bytes() -> None:
    """Its reply has no header, which is subtracted."""
    counted = Counted()
    for name, value in (("@requests", 1), ("@bytes", -16), ("@largest", -16)):
        counted.take(b'{"type": "map", "data": {"%s": {"14": %d}}}' % (name.encode(), value))
    counted.take(b'{"type": "map", "data": {"@latency": {"14,3": 1}}}')
    (found,) = counted.operations()
    assert (found.name, found.nbytes, found.largest_bytes) == ("OPEN", 0, 0)


def test_what_the_kernel_cannot_tell_is_not_told(counted: Counted) -> None:
    able = Abilities(pauses=False, faults="", calls=None)
    assert counted.pattern(able) == Pattern(unseen=2)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"type": "map"}',
        b'{"type": "map", "data": {"@requests": {"15": "many"}}}',
        b'{"type": "map", "data": {"@requests": {"15": [1]}}}',
        b"[" * 100,
    ],
)
def test_other_output_is_an_error(line: bytes) -> None:
    with pytest.raises(FusetuneError, match=r"^bpftrace printed"):
        Counted().take(line)


# The module

BEFORE = "READ count 10 errors 0 sent_bytes 400 received_bytes 40960 time_ns 99 latency_us 0 10 0\n"
AFTER = (
    "LOOKUP count 1 errors 1 sent_bytes 5 received_bytes 0 time_ns 9 latency_us 1 0 0\n"
    "READ count 14 errors 0 sent_bytes 560 received_bytes 57344 time_ns 109 latency_us 0 11 3\n"
    "WRITE count 2 errors 0 sent_bytes 8272 received_bytes 16 time_ns 9 latency_us 2 0 0\n"
)


def _totals(text: str) -> Counts:
    return totals_of(parse_counters(text))


def test_statistics_are_the_difference_of_two_readings() -> None:
    found = operations_between(_totals(BEFORE), _totals(AFTER))
    assert found == [
        Operation("READ", 4, 16384, [(1.5, 1), (3.0, 3)]),
        Operation("WRITE", 2, 8192, [(0.75, 2)]),
        Operation("LOOKUP", 1, 0, [(0.75, 1)]),
    ]
    same = _totals(AFTER)
    assert operations_between(same, same) == []


def test_the_module_counts_its_own_mounts(tree: Tree, by_module: Mount) -> None:
    file = "sys/fs/fusetuned/connections/41/statistics"
    tree.write(file, BEFORE)

    def progress(share: float, words: str) -> None:
        tree.write(file, AFTER)

    traffic = watch_by_module(tree.host, by_module, 0.3, progress)
    assert (traffic.source, traffic.ended, traffic.lost) == ("module", "time", 0)
    assert [(one.name, one.requests) for one in traffic.operations] == [
        *(("READ", 4), ("WRITE", 2), ("LOOKUP", 1))
    ]
    assert traffic.pattern == Pattern()
    assert traffic.waiting == 0


def test_a_module_mount_that_goes_ends_it(tree: Tree, by_module: Mount) -> None:
    file = tree.write("sys/fs/fusetuned/connections/41/statistics", BEFORE)

    def progress(share: float, words: str) -> None:
        file.unlink()
        bdi = tree.root / "sys/class/bdi/0:41"
        bdi.rename(bdi.with_name("gone"))

    traffic = watch_by_module(tree.host, by_module, 60.0, progress)
    assert (traffic.ended, traffic.operations) == ("unmounted", [])


@pytest.mark.parametrize(
    "text", ["READ count 1\n", "READ count x latency_us 1\n", "READ a 1 latency_us 1"]
)
def test_other_statistics_are_an_error(tree: Tree, by_module: Mount, text: str) -> None:
    tree.write("sys/fs/fusetuned/connections/41/statistics", text)
    with pytest.raises(FusetuneError, match="has an unknown format"):
        watch_by_module(tree.host, by_module, 1.0, lambda share, words: None)


def test_an_old_module_is_an_error(tree: Tree, by_module: Mount) -> None:
    with pytest.raises(FusetuneError, match=r"^cannot read /sys/fs/fusetuned/connections/41/stat"):
        watch_by_module(tree.host, by_module, 1.0, lambda share, words: None)


def test_programs_that_the_kernel_did_not_run_are_counted_once(tree: Tree) -> None:
    """fdinfo as bpf_prog_show_fdinfo() writes it; one program may be open twice."""
    program = "pos:\t0\nflags:\t02000002\nprog_type:\t5\nprog_id:\t{}\nrecursion_misses:\t{}\n"
    for name, text in {
        "3": program.format(7, 2),
        "4": program.format(7, 2),
        "5": program.format(8, 1),
        "6": program.format(9, 0),
        "7": "pos:\t0\nmap_type:\t1\nmap_id:\t7\n",
        "0": "pos:\t0\n",
    }.items():
        tree.write(f"proc/9/fdinfo/{name}", text)
    (tree.root / "proc/9/fdinfo/8").symlink_to("gone")
    assert skipped_in(str(tree.root / "proc/9/fdinfo")) == 3


@pytest.mark.parametrize(
    ("line", "name"),
    [("  kfunc: yes", "kfunc"), ("  iter: yes    fentry: yes  ", "fentry"), ("  kfunc: no", "")],
)
def test_bpftrace_tells_whether_it_can_probe_entries(tmp_path: Path, line: str, name: str) -> None:
    """Bpftrace 0.17 prints this to standard error and 0.23 to standard output."""
    for stream in ("1", "2"):
        program = tmp_path / f"bpftrace{stream}"
        program.write_text(f"#!/bin/sh\n[ $1 = --info ] && echo '{line}' >&{stream}\n")
        program.chmod(0o755)
        assert entry_probe(str(program)) == name


def test_a_bpftrace_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bpftrace"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr("fusetune.profile.bpftrace._START", 0.2)
    with pytest.raises(FusetuneError, match=r"^bpftrace --info did not exit within"):
        entry_probe(str(program))


def test_what_the_kernel_skipped_is_unknown_once_bpftrace_has_ended() -> None:
    with Bpftrace("/bin/false", "", lambda line: None) as ended:
        ended._process.wait()
        with pytest.raises(FusetuneError, match=r"^bpftrace ended: no output$"):
            ended.skipped()
