# SPDX-License-Identifier: GPL-2.0-or-later
"""auto's choices deployed again: on new mounts, at other times than those of the choice."""

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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

MOUNTS, BLOCKS = 20, 2
WORSE, MUCH_WORSE = 0.95, 0.7
#: The most mounts, as a share, on which the choice may be that much worse.
WANTED = {"stock": 0.0, GRID: 0.05}
#: The grid's best as a further contender: how often it is below itself is noise.
AGAIN = "the best again"

Settings = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Deployed:
    """A server and the mean log of each contender's speed on each of its mounts."""

    server: Server
    logs: Mapping[str, Sequence[float]]

    def below(self, share: float, other: str, name: str = "auto") -> int:
        """Return on how many mounts a contender has less than this share of the other's speed."""
        pairs = zip(self.logs[name], self.logs[other], strict=True)
        return sum(math.exp(ours - theirs) < share for ours, theirs in pairs)

    def spread(self, name: str) -> float:
        """Return the standard deviation of a contender's speed over the mounts, by its mean."""
        speeds = [math.exp(log - self.logs[name][0]) for log in self.logs[name]]
        return statistics.stdev(speeds) / statistics.fmean(speeds)


def deploy(server: Server, settings: Settings, number: int) -> dict[str, float]:
    """Return the mean log of each contender's speed on a new mount."""
    with mounted(server) as (host, mount):
        logs = compare(host, mount, server, settings, BLOCKS, seed=number)
    return {name: statistics.fmean(each) for name, each in logs.items()}


_HEADINGS = (
    *("server", "workload", "to stock", "to the grid's best", "5 % below stock"),
    *("5 % below the best", "the best itself", "30 % below the best", "spread", "stock's spread"),
)
_WANTED = ("wanted", "measured", "at most", "")


def row(one: Deployed) -> tuple[str, ...]:
    """Return a server's line of the table."""
    shown = (ratio(paired(one.logs["auto"], one.logs[other])) for other in WANTED)
    counts = ((WORSE, "stock"), (WORSE, GRID), (WORSE, GRID, AGAIN), (MUCH_WORSE, GRID))
    of = len(one.logs["auto"])
    return (
        *(one.server.name, one.server.workload, *shown),
        *(f"{one.below(*each)} of {of}" for each in counts),
        *(f"{one.spread(name):.1%}" for name in ("auto", "stock")),
    )


def verdicts(every: Sequence[Deployed]) -> list[tuple[str, ...]]:
    """Return what is wanted over all mounts, and what was measured."""
    rows: list[tuple[str, ...]] = []
    mounts = sum(len(one.logs["auto"]) for one in every)
    for other, most in WANTED.items():
        share = sum(one.below(WORSE, other) for one in every) / mounts
        said = (f"mounts 5 % below {other}", f"{share:.1%}", f"{most:.0%}")
        rows.append((*said, verdict(share <= most)))
    return rows


def _make() -> str:
    page = read()
    found = {**choices_in(page[CONTESTS.title]), **choices_in(page[AGAINST_GRID.title])}
    every = [*SERVERS, *MORE_SERVERS]
    servers = [server for server in every if found[server.name]["auto"]]
    logs: dict[str, dict[str, list[float]]] = {server.name: {} for server in servers}
    for number in range(MOUNTS):  # the servers in turn, so that the mounts of one are apart
        print(f"... mount {number + 1} of {MOUNTS}", file=sys.stderr, flush=True)
        for server in servers:
            choices = found[server.name]
            settings: Settings = {"stock": {}, **choices, AGAIN: choices[GRID]}
            for name, log in deploy(server, settings, number).items():
                logs[server.name].setdefault(name, []).append(log)
    rows = [Deployed(server, logs[server.name]) for server in servers]
    return f"{table(_HEADINGS, [row(one) for one in rows])}\n\n{table(_WANTED, verdicts(rows))}"


DEPLOYED = Section(
    "A choice deployed again",
    "The values that auto chose in the first two sections, unless they were stock, are set "
    f"again on {MOUNTS} new mounts of each server. The servers take turns, so that time passes "
    f"between the mounts of one. Each mount is measured in {BLOCKS} blocks, in random order, with "
    "auto's values, with stock and with the grid's best of these sections. The ratios compare "
    "auto's values with the others; the brackets contain the 95 % interval over the mounts. The "
    "next columns count the mounts on which auto's values are more than 5 % or 30 % slower than "
    "the others. So few samples are noisy: the grid's best is measured twice on each mount, and "
    "one column counts how often it is 5 % slower than itself. The spread is the standard "
    "deviation of the speed over the mounts, divided by the mean. For comparison, TUNA (EuroSys "
    "2025) reports that up to 63 % of the best configurations are at least 30 % worse when they "
    "are deployed again, and DarwinGame (ASPLOS 2025) reports a variability below 0.5 %.",
    (_HEADINGS, _WANTED),
    _make,
)
