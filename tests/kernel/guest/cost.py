# SPDX-License-Identifier: GPL-2.0-or-later
"""What the module's statistics cost, in a machine that counts instructions."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.kernel.guest import statistics_file
from tests.kernel.guest.rig import CONTROL, count, fresh_source, load, run, tuned, unload

_ROUNDS = 10
_CALLS = 1000
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
