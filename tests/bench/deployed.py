# SPDX-License-Identifier: GPL-2.0-or-later
"""auto's choices deployed again: on new mounts, at other times than those of the choice."""

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusetune.bench.intervals import Interval
from tests.bench.against_grid import AGAINST_GRID
from tests.bench.contest import (
    CONTESTS,
    GRID,
    MORE_SERVERS,
    SERVERS,
    Server,
    choices_in,
    compare,
    mounted,
    paired,
)
from tests.bench.page import Section, ratio, read, table, verdict

MOUNTS = 20
WORSE, MUCH_WORSE = 0.95, 0.7
STOCK_BLOCKS = 4  # on each mount
#: Blocks of auto's choice and the grid's best on each mount, before each look at their ratio and in
#: all.
BLOCKS, MOST_BLOCKS = 8, 40
#: The most mounts, as a share, on which the choice may be that much worse.
WANTED = {"stock": 0.0, GRID: 0.05}


@dataclass(frozen=True)
class Deployment:
    """A mount with a choice: each contender's mean log of the speed, and auto's ratio to the best.

    ``to_best``: with the interval over the blocks of this mount.
    """

    logs: Mapping[str, float]
    to_best: Interval


@dataclass(frozen=True)
class Deployed:
    """A server, and what was measured on each of its mounts."""

    server: Server
    mounts: Sequence[Deployment]

    def logs(self, name: str) -> list[float]:
        """Return a contender's mean log of the speed on each mount."""
        return [mount.logs[name] for mount in self.mounts]

    def below(self, share: float, other: str) -> int:
        """Return on how many mounts auto has less than this share of the other's speed."""
        pairs = zip(self.logs("auto"), self.logs(other), strict=True)
        return sum(math.exp(ours - theirs) < share for ours, theirs in pairs)

    def spread(self, name: str) -> float:
        """Return the standard deviation of a contender's speed over the mounts, by its mean."""
        first, *_ = logs = self.logs(name)
        speeds = [math.exp(log - first) for log in logs]
        return statistics.stdev(speeds) / statistics.fmean(speeds)


def decided(logs: Mapping[str, Sequence[float]]) -> bool:
    """Return whether the blocks prove that auto is, or is not, that much slower than the best."""
    if len(logs[GRID]) % BLOCKS:
        return False
    ratio = paired(logs["auto"], logs[GRID])
    return not ratio.low <= WORSE <= ratio.high


def deploy(server: Server, choices: Mapping[str, Mapping[str, int]], number: int) -> Deployment:
    """Measure the choices, auto's and the grid's best, and stock on a new mount."""
    with mounted(server) as (host, mount):
        stock = compare(host, mount, server, {"stock": {}}, STOCK_BLOCKS)
        logs = compare(host, mount, server, choices, MOST_BLOCKS, number, decided)
    means = {name: statistics.fmean(each) for name, each in {**stock, **logs}.items()}
    return Deployment(means, paired(logs["auto"], logs[GRID]))


_HEADINGS = (
    *("server", "workload", "to stock", "to the grid's best", "5 % below stock"),
    *("5 % below the best", "proven", "30 % below the best", "spread", "stock's spread"),
)
_WANTED = ("mounts 5 % below", "measured", "at most", "")


def row(one: Deployed) -> tuple[str, ...]:
    """Return a server's line of the table."""
    shown = (ratio(paired(one.logs("auto"), one.logs(other))) for other in WANTED)
    proven = sum(mount.to_best.high < WORSE for mount in one.mounts)
    counts = (
        one.below(WORSE, "stock"),
        one.below(WORSE, GRID),
        proven,
        one.below(MUCH_WORSE, GRID),
    )
    return (
        *(one.server.name, one.server.workload, *shown),
        *(f"{count} of {len(one.mounts)}" for count in counts),
        *(f"{one.spread(name):.1%}" for name in ("auto", "stock")),
    )


def verdicts(every: Sequence[Deployed]) -> list[tuple[str, ...]]:
    """Return what is wanted over all mounts, and what was measured."""
    rows: list[tuple[str, ...]] = []
    mounts = sum(len(one.mounts) for one in every)
    for other, most in WANTED.items():
        share = sum(one.below(WORSE, other) for one in every) / mounts
        rows.append((other, f"{share:.1%}", f"{most:.0%}", verdict(share <= most)))
    return rows


def _make() -> str:
    page = read()
    found = {**choices_in(page[CONTESTS.title]), **choices_in(page[AGAINST_GRID.title])}
    every = [*SERVERS, *MORE_SERVERS]
    servers = [server for server in every if found[server.name]["auto"]]
    measured: dict[str, list[Deployment]] = {server.name: [] for server in servers}
    for number in range(MOUNTS):  # the servers in turn, so that the mounts of one are apart
        print(f"... mount {number + 1} of {MOUNTS}", file=sys.stderr, flush=True)
        for server in servers:
            measured[server.name].append(deploy(server, found[server.name], number))
    rows = [Deployed(server, measured[server.name]) for server in servers]
    return f"{table(_HEADINGS, [row(one) for one in rows])}\n\n{table(_WANTED, verdicts(rows))}"


DEPLOYED = Section(
    "A choice deployed again",
    "auto's choices, as the first two sections had them when this section was measured, are set "
    f"again on {MOUNTS} new mounts of each server, unless they were stock. "
    "The servers take turns, so that time passes between the mounts of one. Each mount is "
    f"measured in {STOCK_BLOCKS} blocks with stock, then in blocks with auto's values and the "
    "grid's best of these sections, in random order. They "
    f"end after {BLOCKS}, or a multiple up to {MOST_BLOCKS}, if the whole 95 % interval of their "
    f"ratio is above or below {WORSE}. The ratios compare auto's values with the "
    "others; the brackets contain the 95 % interval over the mounts. The next columns count the "
    "mounts on which auto's values are more than 5 % or 30 % slower than the others. The column "
    f'"proven" counts those where the whole interval of the ratio to the best is below {WORSE}. '
    "The spread is the standard deviation of the speed over the mounts, divided by the "
    "mean. For comparison, TUNA (EuroSys 2025) reports that up to 63 % of the best configurations "
    "are at least 30 % worse when they are deployed again, and DarwinGame (ASPLOS 2025) reports a "
    "variability below 0.5 %. When this section was measured, random page faults of mmap-read "
    "could find pages that the kernel had read around earlier ones.",
    (_HEADINGS, _WANTED),
    _make,
)
