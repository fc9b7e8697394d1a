# SPDX-License-Identifier: GPL-2.0-or-later
"""The gain of module options that override a server, measured in a virtual machine."""

import math
from typing import Any

from tests.bench.contest import paired
from tests.bench.page import Section, ratio, table
from tests.kernel.guest.overruled import CASES, READS, ROUNDS
from tests.kernel.machine import measured
from tests.kernel.suites import USERLAND

_COLUMNS = (
    *("server", "what is done", "options", "goal", "speed to stock"),
    *("requests, without and with them", "server's CPU time, of the time, on stock and with them"),
)
#: Requests that a case makes fewer of, with and without, are not shown.
_FEW = 16


def _requests(without: dict[str, int], overruled: dict[str, int]) -> str:
    pairs = {op: (without.get(op, 0), overruled.get(op, 0)) for op in without | overruled}
    shown = [f"{op} {a}, {b}" for op, (a, b) in sorted(pairs.items()) if max(a, b) >= _FEW]
    return "; ".join(shown)


def _cpu(samples: list[tuple[float, float]]) -> str:
    return f"{sum(cpu for _, cpu in samples) / sum(seconds for seconds, _ in samples):.2f}"


def _delays(cases: list[dict[str, Any]]) -> str:
    """Return how much longer reads take where the server waits: what is left is not waiting."""
    reads = [
        (case.server, found)
        for case, found in zip(CASES, cases, strict=True)
        if case.action == READS
    ]
    (_, undelayed), *delayed = reads
    parts = []
    for server, found in delayed:
        logs = [
            [math.log(seconds) for seconds, _ in each[kind]]
            for kind in ("stock", "overruled")
            for each in (found, undelayed)
        ]
        both = ratio(paired(*logs[:2])), ratio(paired(*logs[2:]))
        parts.append(f"{server}: {both[0]} and {both[1]}")
    return (
        f"Time of the {READS}s as a ratio to that of the same server without a delay, on stock and "
        f"with the option: {'; '.join(parts)}."
    )


def _make() -> str:
    """Return the table. Raises RuntimeError if the machine did not finish."""
    cases = measured(USERLAND.series, "measure_overruled")
    rows = []
    for case, found in zip(CASES, cases, strict=True):
        kinds = [found["stock"], found["overruled"]]
        stock, overruled = ([-math.log(seconds) for seconds, _ in kind] for kind in kinds)
        speed = ratio(paired(overruled, stock))
        cpu = ", ".join(map(_cpu, kinds))
        goal = f"{case.goal}" if case.goal else ""
        asked = _requests(*found["requests"])
        rows.append((case.server, case.action, f"`{case.options}`", goal, speed, asked, cpu))
    return f"{table(_COLUMNS, rows)}\n\n{_delays(cases)}"


OVERRULED = Section(
    "Options that overrule a server",
    "Speed of servers whose mounts fusetune-intercept makes with the tuned module and these "
    "options, as a ratio to the speed of the same servers on the kernel's own FUSE. The time of "
    f"writes includes their sync. Linux {USERLAND.series} runs in an emulated virtual machine "
    "with two cores. The servers are the distribution's: bindfs on libfuse 2, gocryptfs and rclone "
    "in Go, mergerfs with its own libfuse, mirrorfs on libfuse 3. rclone runs with "
    f"`--vfs-cache-mode=writes`. Each of {ROUNDS} rounds measures both on fresh mounts. The "
    "brackets contain the 95 % interval over the rounds. Requests are counted on two more mounts "
    "of the module, one without the options and one with them. CPU time is that of all processes "
    "except the program that reads and writes; most of it is the server's.",
    (_COLUMNS,),
    _make,
)
