# SPDX-License-Identifier: GPL-2.0-or-later
"""What a search gains if it begins at an earlier run's choice, and loses if that is wrong.

    /usr/bin/python3 -m tests.bench.warm_start [--runs N]

Each simulated mount of bench_search is searched three times on different hosts: once for the
earlier run, then cold, then warm. The earlier run is that of the same mount, of the same mount
whose chosen values are set meanwhile, or of another mount with the same knobs and workloads: a host
that has changed. docs/search.md has the table and explains its columns.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from fusetune.bench.intervals import t_quantile
from fusetune.tuner.search import Search
from fusetune.tuner.warm import Earlier
from tests.bench.bench_search import BUDGETS, FIRST_SEED, HILLS, in_parallel, percentile
from tests.bench.contenders import host, regret
from tests.bench.landscapes import NOISES, Landscape, landscape
from tests.bench.page import table

HEADS = (
    *("earlier run", "noise", "runs", "cold", "warm", "ratio", "used"),
    *("regret, cold", "p95", "regret, warm", "p95", "more"),
)


@dataclass(frozen=True)
class Pair:
    """Evaluations and regret of a cold and a warm search of one mount; `held`: see `Search`."""

    cold: tuple[int, float]
    warm: tuple[int, float]
    held: bool


def searched(land: Landscape, noise: float, number: int, earlier: Earlier | None = None) -> Search:
    """Search a mount on the host with that number."""
    machine = host(land, noise, number)
    names = list(land.workloads)
    search = Search(land.dimensions, land.start, names, land.seed + number, earlier=earlier)
    while (setting := search.ask(BUDGETS[0] - search.evaluations)) is not None:
        search.tell(machine.measure(land.figures(setting)))
    return search


def pair(land: Landscape, noise: float, earlier: Earlier) -> Pair:
    """Search a mount cold and warm."""
    searches = [searched(land, noise, 2, one) for one in (None, earlier)]
    best = land.best()
    cold, warm = ((one.evaluations, regret(land, one.choice().setting, best)) for one in searches)
    return Pair(cold, warm, bool(searches[1].warm))


def run_of(land: Landscape, noise: float) -> Earlier | None:
    """Search a mount; return the run as it is saved, None if nothing was changed."""
    search = searched(land, noise, 1)
    choice = search.choice()
    return Earlier(choice.setting, search.blocks) if choice.changed else None


def unlike(land: Landscape) -> Landscape:
    """Return another landscape with the same dimensions and workloads."""
    draw = random.Random(f"unlike {land.family} {land.seed}")
    while True:
        other = landscape(draw.choice(HILLS), draw.randrange(FIRST_SEED))
        if (other.dimensions, set(other.workloads)) == (land.dimensions, set(land.workloads)):
            return other


def pairs_of(land: Landscape, noise: float) -> dict[str, Pair]:
    """Return the pairs of one mount by the earlier run."""
    found = {}
    if earlier := run_of(land, noise):
        found["same"] = pair(land, noise, earlier)
        tuned = replace(land, start=dict(earlier.setting))
        found["same, its values set"] = pair(tuned, noise, earlier)
    if earlier := run_of(unlike(land), noise):
        found["another"] = pair(land, noise, earlier)
    return found


def row(label: str, noise: float, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Return one line of the table."""
    cold, warm = [p.cold for p in pairs], [p.warm for p in pairs]
    before, after = fmean(e for e, _ in cold), fmean(e for e, _ in warm)
    more = [w - c for (_, c), (_, w) in zip(cold, warm, strict=True)]
    half = t_quantile(0.05, len(more) - 1) * stdev(more) / math.sqrt(len(more))
    regrets = [[r for _, r in side] for side in (cold, warm)]
    shown = [(f"{fmean(side):.2%}", f"{percentile(side, 0.95):.2%}") for side in regrets]
    return (
        *(label, f"{noise:.0%}", str(len(pairs)), f"{before:.1f}", f"{after:.1f}"),
        *(f"{after / before:.2f}", f"{fmean(p.held for p in pairs):.0%}", *shown[0], *shown[1]),
        f"{fmean(more):+.2%} ± {half:.2%}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=17, help="landscapes a family and noise")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="seed of the first one")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.runs)
    lands = [landscape(family, seed) for family in HILLS for seed in seeds]
    rows = []
    for noise in NOISES:
        found: dict[str, list[Pair]] = {}
        for pairs in in_parallel(pairs_of, [(land, noise) for land in lands]):
            for label, one in pairs.items():
                found.setdefault(label, []).append(one)
        rows += [row(label, noise, pairs) for label, pairs in found.items()]
    print(table(HEADS, sorted(rows, key=lambda cells: cells[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
