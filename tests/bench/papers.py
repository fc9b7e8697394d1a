# SPDX-License-Identifier: GPL-2.0-or-later
"""Published papers with module and tuned library compared with stock, in one virtual machine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fusetune.bench.intervals import Interval
from fusetune.bench.papers.catalogue import NATIVE, PAPERS
from tests.bench.contest import paired
from tests.bench.page import Section, ratio, table
from tests.kernel.guest.papers import ROUNDS, Seconds, Sizes
from tests.kernel.machine import measured
from tests.kernel.suites import USERLAND

#: The mount of each paper that was stock at that time; today's stock is compared with it.
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
    """Return a machine's measurements for this paper, with the published figures."""
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


def _measured_works() -> dict[str, Sequence[Gain]]:
    """Return what guest/papers.py measures, by paper.

    Raises RuntimeError if the machine did not finish.
    """
    works = measured(USERLAND.series, "measure_works")
    return {name: gains(name, *found) for name, found in works.items()}


#: By paper: what its sizes are, and why stock has its figures.
_SIDES = {
    "szeredi": (
        "bytes of the largest WRITE",
        "Every later kernel and libfuse has direct_io and big_writes, so the tuned column should "
        "equal the stock one for these; the library provides them to servers that do not ask for "
        "them. Only the writeback cache is tuned: with max_ratio 100 and strict_limit 0, it "
        "absorbs the whole burst.",
    ),
    "hayasaka": (
        "bytes of the largest request",
        "Linux has accepted up to 256 pages per request since 4.20, and libfuse asks for them. "
        "Stock therefore has that part of the gain, and only requests of more than 256 pages are "
        "specific to the tuned column. Since 3.10, the requests of one direct read or write are "
        "sent at once (async_dio in fs/fuse/file.c). The waits between them, which larger "
        "requests saved in 2012, no longer occur even with 32 pages.",
    ),
    "singh-atomic": (
        "requests a file",
        "LOOKUP and OPEN, or LOOKUP and CREATE, are sent as one request, which no kernel does by "
        "itself. mirrorfs serves this request with its own option atomic_open=on.",
    ),
}
_COLUMNS = ("mount", "published", "stock", "tuned")


def _make() -> str:
    parts = []
    for name, found in _measured_works().items():
        what, why = _SIDES[name]
        rows = [
            (
                f"{gain.mount}, {gain.workload}",
                f"{gain.published:.2f}",
                *(ratio(one) if one else "" for one in (gain.stock, gain.tuned)),
                ", ".join("-" if size is None else str(size) for size in gain.sizes),
            )
            for gain in found
        ]
        parts += [
            f"### {PAPERS[name].title}",
            f"Ratios are to {STOCK[name]}. {why}",
            table((*_COLUMNS, what), rows),
        ]
    return "\n\n".join(parts)


TUNED_VS_STOCK = Section(
    "Published papers with module and library, beside stock",
    "Speed as a ratio to the speed of the mount that was stock in the paper, on the kernel's own "
    "FUSE and the distribution's libfuse in the same run: as published, of other stock mounts, "
    "and of the tuned module with the tuned library. The brackets contain the 95 % interval over "
    f"{ROUNDS} rounds. dd takes the place of dd and iozone, and opens take the place of bonnie++. "
    f"Linux {USERLAND.series} runs in an emulated virtual machine with two cores. The last column "
    "shows sizes with stock, then with tuned.",
    tuple((*_COLUMNS, what) for what, _ in _SIDES.values()),
    _make,
)
