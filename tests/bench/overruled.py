# SPDX-License-Identifier: GPL-2.0-or-later
"""The gain of module options that override a server, measured in a virtual machine."""

import math

from tests.bench.contest import paired
from tests.bench.page import Section, ratio, table
from tests.kernel.guest.overruled import CASES, ROUNDS
from tests.kernel.machine import made_and_run
from tests.kernel.suites import USERLAND

_COLUMNS = ("server", "what is done", "options", "speed to stock")


def _make() -> str:
    """Return the table. Raises RuntimeError if the machine did not finish."""
    said = made_and_run(USERLAND.series, "measure_overruled")
    entry = said.checks.get("measure_overruled", {})
    if not entry.get("value"):
        raise RuntimeError(entry.get("failure") or said.console[-4000:])
    rows = []
    for case, seconds in zip(CASES, entry["value"], strict=True):
        stock, overruled = ([-math.log(one) for one in seconds[kind]] for kind in seconds)
        speed = ratio(paired(overruled, stock))
        rows.append((case.server, case.action, f"`{case.options}`", speed))
    return table(_COLUMNS, rows)


OVERRULED = Section(
    "Options that overrule a server",
    "Speed of servers whose mounts fusetune-intercept makes with the tuned module and these "
    "options, as a ratio to the speed of the same servers on the kernel's own FUSE. The time of "
    f"writes includes their sync. Linux {USERLAND.series} runs in an emulated virtual machine "
    "with two cores; the servers are the distribution's bindfs, on libfuse 2, and mirrorfs on "
    f"its libfuse 3. Each of {ROUNDS} rounds measures both on fresh mounts. The brackets contain "
    "the 95 % interval over the rounds.",
    (_COLUMNS,),
    _make,
)
