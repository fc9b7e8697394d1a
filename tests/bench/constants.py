# SPDX-License-Identifier: GPL-2.0-or-later
"""What other values of the search's constants do on the simulated mounts of bench_search.

    /usr/bin/python3 -m tests.bench.constants [--runs N] [--flat N] [NAME ...]

Each constant is varied alone, on the same landscapes for every value. Their seeds are below
FIRST_SEED, so bench_search does not judge by them. docs/search.md has the table and explains its
columns.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from fusetune.bench import intervals
from fusetune.bench.intervals import t_quantile
from fusetune.tuner import constants
from fusetune.tuner.model import BlockModel
from fusetune.tuner.search import Search
from tests.bench.bench_search import FIRST_SEED, HILLS, in_parallel
from tests.bench.contenders import host, regret
from tests.bench.landscapes import NOISES, landscape

BUDGET = 120
#: Values to try instead of the present one, by constant.
ALTERNATIVES: dict[str, tuple[float, ...]] = {
    "ERROR": (0.02, 0.01),
    "LAST_ERROR": (0.0, 0.02),
    "FUTILE": (0.3, 0.03),
    "EVIDENCE": (0.95, 0.7),
    "FEWEST_PAIRS": (3, 6),
    "ANALYSIS_GROWTH": (1.2, 2.0),
    "ABRUPT": (0.0, 1.0),
    "BLOCK": (6, 10),
    "WALK_BLOCKS": (0, 6),
    "SWITCH_DOUBT": (0.5, 4.0),
    "DOUBT": (0.5, 1.0),
    "CAUTION": (0.0, 2.0),
    "PROMISE": (0.002, 0.008),
    "INDIFFERENCE": (0.003, 0.015),
    "AHEAD": (4, 16),
    "FINE": (0.01, 0.05),
    "SURE": (0.0, 2.0),
    "MOST_LOSS": (0.007, 0.02),
    "POWER": (1.0, 3.0),
    "MOST_RESERVED": (0.25, 0.6),
    "WALKABLE": (0.01, 0.1),
    "LEAST_GAIN": (math.log(1.005), math.log(1.03)),
    "MOST_PAIRS": (30, 300),
    "MOST_EXPLORED": (40, 80),
    "HICCUP": (3.0, 6.0),
    "MOST_HICCUPS": (0.2, 0.45),
    "BlockModel.REACH": (2.0, 4.0),
    "BlockModel.ALIKE": (1.0, 4.0),
    "BlockModel.WEIGHT": (0.01, 1.0),
    "BlockModel.PRIOR": (0.01, 0.16),
    "BlockModel.JOINT": (0.005, 0.08),
    "BlockModel.REST": (0.00001, 0.001),
    "BlockModel.NOISE": (0.0004, 0.0225),
    "BlockModel.BLOCK": (0.02, 4.0),
    "BlockModel.ROUNDS": (50, 800),
}


@dataclass(frozen=True)
class Result:
    """What the search reached on all landscapes with one value of a constant."""

    regrets: tuple[float, ...]
    evaluations: int
    false_changes: int
    steps: float


@contextmanager
def set_to(name: str, value: float) -> Iterator[None]:
    """Give a constant another value while the context lasts."""
    owners: tuple[Any, ...] = (constants, intervals)
    owner = BlockModel if "." in name else next(o for o in owners if hasattr(o, name))
    attribute = name.rpartition(".")[2]
    before = getattr(owner, attribute)
    setattr(owner, attribute, value)
    try:
        yield
    finally:
        setattr(owner, attribute, before)


def present(name: str) -> float:
    """Return the value that a constant has."""
    owners: tuple[Any, ...] = (BlockModel,) if "." in name else (constants, intervals)
    attribute = name.rpartition(".")[2]
    return float(next(getattr(o, attribute) for o in owners if hasattr(o, attribute)))


def run(family: str, seed: int, noise: float) -> tuple[float, int, bool, int]:
    """Search one landscape; return the regret, the evaluations, whether it changed, and steps."""
    land = landscape(family, seed)
    machine = host(land, noise)
    search = Search(land.dimensions, land.start, list(land.workloads), seed)
    while (setting := search.ask(BUDGET - search.evaluations)) is not None:
        search.tell(machine.measure(land.figures(setting)))
    choice = search.choice()
    steps = sum(
        abs(d.values.index(choice.setting[d.name]) - d.values.index(land.start[d.name]))
        for d in land.dimensions
    )
    left = regret(land, choice.setting, land.best())
    return left, search.evaluations, choice.changed, steps


def measure(runs: int, flat: int) -> Result:
    """Search `runs` landscapes a family and noise, and `flat` flat ones a noise."""
    cases = [
        (family, seed, noise)
        for noise in NOISES
        for family, count in [*((hill, runs) for hill in HILLS), ("flat", flat)]
        for seed in range(FIRST_SEED - count, FIRST_SEED)
    ]
    found = list(zip(cases, in_parallel(run, cases), strict=True))
    hills = [result for (family, *_), result in found if family != "flat"]
    flats = [result for (family, *_), result in found if family == "flat"]
    return Result(
        tuple(r for r, _, _, _ in hills),
        sum(e for _, e, _, _ in (*hills, *flats)),
        sum(changed for _, _, changed, _ in flats),
        fmean(steps for _, _, _, steps in hills),
    )


def row(name: str, value: float, result: Result, now: Result, flats: int) -> str:
    """Return a line of the table."""
    more = [a - b for a, b in zip(result.regrets, now.regrets, strict=True)]
    half = t_quantile(0.05, len(more) - 1) * stdev(more) / math.sqrt(len(more))
    difference = f"{fmean(more):+.2%} ± {half:.2%}" if result is not now else ""
    return (
        f"| {name} | {value:.5g} | {fmean(result.regrets):.2%} | {difference} | "
        f"{result.evaluations / now.evaluations:.2f} | {result.false_changes} of {flats} | "
        f"{result.steps:.2f} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="constants to vary; all if none")
    parser.add_argument("--runs", type=int, default=4, help="landscapes a family and noise")
    parser.add_argument("--flat", type=int, default=16, help="flat landscapes a noise")
    options = parser.parse_args(arguments)
    flats = options.flat * len(NOISES)
    now = measure(options.runs, options.flat)
    print("| constant | value | regret | more | evaluations | false | steps |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(row("all as they are", 0, now, now, flats).replace("| 0 |", "| |", 1), flush=True)
    for name in options.names or ALTERNATIVES:
        for value in ALTERNATIVES[name]:
            with set_to(name, value):
                result = measure(options.runs, options.flat)
            print(row(f"{name} ({present(name):.5g})", value, result, now, flats), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
