# SPDX-License-Identifier: GPL-2.0-or-later
"""What auto's choice is worth when it is deployed again: on fresh mounts, at other times."""

import statistics
import sys
from collections.abc import Mapping, Sequence

from fusetune.bench.intervals import Interval
from tests.bench.contest import STOCK, Server, best_of_grid, compare, mounted, paired, tuned
from tests.bench.misses import GAINING
from tests.bench.page import Section, table

MOUNTS = 20
BLOCKS = 5
WORSE = 0.95

Settings = Mapping[str, Mapping[str, int]]


def choices(server: Server) -> Settings:
    """Return stock, what auto chooses on a mount, and the grid's best there."""
    with mounted(server) as (host, mount):
        chosen = tuned(host, mount, server).after
        return {"stock": STOCK, "auto": chosen, "best": best_of_grid(host, mount, server)}


def deploy(server: Server, settings: Settings) -> dict[str, Interval]:
    """Return the choice's speed on a fresh mount, as a ratio to the others' there."""
    with mounted(server) as (host, mount):
        logs = compare(host, mount, server, settings, BLOCKS)
    return {name: paired(logs["auto"], logs[name]) for name in settings if name != "auto"}


def row(server: Server, found: Sequence[Mapping[str, Interval]]) -> tuple[str, ...]:
    """Return a line of the table."""
    to = {name: [one[name].ratio for one in found] for name in ("stock", "best")}
    worse = [f"{sum(r < WORSE for r in ratios)} of {len(found)}" for ratios in to.values()]
    shown = [f"{statistics.median(r):.2f} [{min(r):.2f}, {max(r):.2f}]" for r in to.values()]
    spread = statistics.stdev(to["best"]) / statistics.fmean(to["best"])
    return (server.name, server.workload, *shown, *worse, f"{spread:.1%}")


_HEADINGS = (
    *("server", "workload", "speed to stock's", "to the best's"),
    *("5 % below stock", "5 % below the best", "spread"),
)


def _make() -> str:
    settings = [choices(server) for server in GAINING]
    found: list[list[dict[str, Interval]]] = [[] for _ in GAINING]
    for number in range(MOUNTS):  # the servers in turn, so that a server's mounts lie apart
        print(f"... mount {number + 1} of {MOUNTS}", file=sys.stderr, flush=True)
        for server, chosen, rows in zip(GAINING, settings, found, strict=True):
            rows.append(deploy(server, chosen))
    return table(_HEADINGS, [row(*each) for each in zip(GAINING, found, strict=True)])


DEPLOYED = Section(
    "A choice deployed again",
    "auto chooses once for each server on which something is to gain, with the default budget and "
    f"--no-guard. Its choice, stock and the grid's best then run on {MOUNTS} fresh mounts, the "
    f"servers in turn, {BLOCKS} blocks on each. The speed with the choice is a ratio to that with "
    "stock and with the grid's best on the same mount: the median of the mounts, in brackets the "
    "least and the most. Counted are the mounts where that ratio is below 0.95, which may also be "
    "the noise of the blocks. The spread is the standard deviation of the ratio to the best over "
    "its mean. TUNA (EuroSys 2025) reports that up to 63 % of other systems' best configurations "
    "are at least 30 % worse when they are deployed again, DarwinGame (ASPLOS 2025) a variability "
    "below 0.5 %.",
    (_HEADINGS,),
    _make,
)
