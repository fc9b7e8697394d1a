# SPDX-License-Identifier: GPL-2.0-or-later
"""What the module's statistics and watching cost, in a machine that counts instructions."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.kernel.guest import statistics_file
from tests.kernel.guest.profiling import traced
from tests.kernel.guest.rig import CONTROL, count, fresh_source, load, run, tuned, unload
from tests.kernel.guest.tool import start

_ROUNDS = 10
_CALLS = 1000
#: Of watching: rounds, seconds of reads, and bytes of their file.
WATCHED, _SECONDS, _SIZE = 3, 2, 4 << 20
_PATIENCE = 300.0  # seconds
#: The same module without their hooks.
_WITHOUT = Path("/rig/without")


def _load_without() -> None:
    unload()
    run("insmod", *_WITHOUT.glob("fusetuned.ko*"))
    run("mount", "-t", "fusetunedctl", "none", CONTROL)


def _each(call: Callable[[], object]) -> float:
    """Return the clock's nanoseconds for each of many calls."""
    began = time.perf_counter_ns()
    for _ in range(_CALLS):
        call()
    return (time.perf_counter_ns() - began) / _CALLS


def _sample() -> dict[str, float]:
    (fresh_source() / "file").write_bytes(b"x" * 4096)
    with tuned("timeout=0", "direct_io", "threads=1") as mirror:
        statistics_file.begin(mirror)
        fd = os.open(mirror.mountpoint / "file", os.O_RDONLY)
        calls: dict[str, Callable[[], object]] = {
            "GETATTR": partial(os.fstat, fd),
            "READ": partial(os.pread, fd, 512, 0),
        }
        each = {}
        for opcode, call in calls.items():
            before = count(mirror, opcode)
            each[opcode] = _each(call)
            assert count(mirror, opcode) - before == _CALLS
        os.close(fd)
    return each


def measure_statistics() -> dict[str, list[tuple[float, float]]]:
    """Return by opcode, for each round, nanoseconds per call with and without statistics."""
    found: dict[str, list[tuple[float, float]]] = {"GETATTR": [], "READ": []}
    for turn in range(_ROUNDS):
        each = {}
        for counted in (True, False) if turn % 2 else (False, True):
            (load if counted else _load_without)()
            each[counted] = _sample()
        for opcode, samples in found.items():
            samples.append((each[True][opcode], each[False][opcode]))
    return found


def reads(file: Path, seconds: int) -> float:
    """Return the number of uncached 4 KiB reads per second."""
    how = ("--rw=randread", "--bs=4k", "--direct=1", "--time_based", f"--runtime={seconds}")
    said = run("fio", "--name=reads", f"--filename={file}", *how, "--output-format=json")
    found: float = json.loads(said.stdout)["jobs"][0]["read"]["iops"]
    return found


@contextmanager
def _watched(*words: str) -> Iterator[None]:
    """Run a command that watches a mount, from when all its probes are attached."""
    with start(*words) as process:
        assert process.stdout
        assert process.stderr
        if words[0] == "profile":
            assert "watching" in process.stderr.readline()
        else:
            while json.loads(process.stdout.readline())["mounts"][0]["counted_by"] != "bpftrace":
                pass
        rest = threading.Thread(target=process.stdout.read)
        rest.start()
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(_PATIENCE) == 0
        rest.join()


def measure_watching() -> dict[str, list[float]]:
    """Return by command, for each round, the speed of reads as a ratio to that without it."""
    found: dict[str, list[float]] = {"profile": [], "top": []}
    with traced() as mirror:
        (mirror.source / "file").write_bytes(os.urandom(_SIZE))
        file, point = mirror.mountpoint / "file", str(mirror.mountpoint)
        commands = {"profile": ("--for", "1h"), "top": ("--json", "-i", "1")}
        for _ in range(WATCHED):
            for name, more in commands.items():
                alone = reads(file, _SECONDS)
                with _watched(name, point, *more):
                    found[name].append(reads(file, _SECONDS) / alone)
    return found
