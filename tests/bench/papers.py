# SPDX-License-Identifier: GPL-2.0-or-later
"""Published works with module and tuned library beside stock, in one virtual machine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fusetune.bench.intervals import Interval
from fusetune.bench.papers.catalogue import NATIVE, PAPERS
from tests.bench.contest import paired
from tests.kernel.guest.papers import Seconds, Sizes
from tests.kernel.machine import made_and_run
from tests.kernel.suites import USERLAND

#: The mount of each work that was stock then, and whose speed stock's own is compared with.
STOCK = {"szeredi": "big_writes+splice", "hayasaka": "32 pages", "singh-atomic": "stock"}


@dataclass(frozen=True)
class Gain:
    """Speed on a mount as a ratio to that on the stock mount: published, stock and tuned.

    ``stock`` or ``tuned`` is None where there is no such mount, or it is what the others are
    compared with. ``sizes``: stock and tuned, bytes of the largest request, or requests for a file.
    """

    mount: str
    workload: str
    published: float
    stock: Interval | None
    tuned: Interval | None
    sizes: tuple[float | None, float | None]


def gains(name: str, seconds: Seconds, sizes: Sizes) -> list[Gain]:
    """Return what a machine measured of the work of this name beside what was published."""
    logs = {key: [-math.log(one) for one in row] for key, row in seconds.items()}
    work = PAPERS[name]
    found = []
    for workload in (each.name for each in work.workloads):
        base = f"stock|{STOCK[name]}|{workload}"
        figures = {ratio.under[0]: 1.0 for ratio in work.ratios if ratio.under[1] == workload}
        figures |= {r.over[0]: r.published for r in work.ratios if r.over[1] == workload}
        for mount in work.series:
            keys = [f"{kind}|{mount}|{workload}" for kind in ("stock", "tuned")]
            stock, tuned = (
                paired(logs[key], logs[base]) if key in logs and key != base else None
                for key in keys
            )
            if stock or tuned:
                published = figures[mount] / figures[STOCK[name]]
                asked = (sizes.get(keys[0], sizes[base]), sizes.get(keys[1]))
                shown = (None, None) if mount == NATIVE else asked
                found.append(Gain(mount, workload, published, stock, tuned, shown))
    return found


def measured_works() -> dict[str, Sequence[Gain]]:
    """Return what guest/papers.py measures, by work.

    Raises RuntimeError where the machine did not get so far.
    """
    said = made_and_run(USERLAND.series, "measure_works")
    entry = said.checks.get("measure_works", {})
    if not entry.get("value"):
        raise RuntimeError(entry.get("failure") or said.console[-4000:])
    return {name: gains(name, *measured) for name, measured in entry["value"].items()}
