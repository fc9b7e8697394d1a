# SPDX-License-Identifier: GPL-2.0-or-later
"""Judge the search on simulated mounts, beside other ways to search.

    /usr/bin/python3 -m tests.bench.bench_search [--runs N] [--beside N] [--json FILE] [--short]

Regret is 1 - true(chosen) / true(best). All contenders see the same landscapes through the same
hosts: drifting by up to 30 %, every second one with 3 % outliers. The exit status is 1 if a wanted
figure is not reached. `--short` judges the search alone, on fewer landscapes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import TypeVar

from tests.bench.contenders import (
    OTHERS,
    OURS,
    PROOF_ALONE,
    Run,
    other_run,
    proof_run,
    search_run,
)
from tests.bench.landscapes import FAMILIES, NOISES, landscape
from tests.bench.page import Section, table, verdict

# Evaluations; the first is the one that is judged.
BUDGETS = (120, 20, 25, 30, 37, 45, 52, 60, 75, 90, 150, 180, 240)
RUNS, BESIDE, FLAT = 100, 15, 60  # landscapes a family and noise; beside the others; more flat ones
WANTED_MEDIAN = 0.02
WANTED_95TH = 0.08
WANTED_BY_NOISE = {0.02: 0.005, 0.05: 0.05, 0.15: 0.08}  # 95th percentile
WANTED_FALSE = 0.01
WANTED_SAVING = 0.5  # of the evaluations that the best of the others needs
NEAR, SHARES = 0.05, (0.75, 0.9)  # so near the best must so many of the runs end
SHORT = 4  # landscapes a family and noise in the short form
SHORT_NOISE = 0.05  # at which the short form judges the 95th percentile
FIRST_SEED = 1000  # landscapes below served to tune the constants of the search
SEED_OF_FLAT = 10_000  # where the extra flat landscapes begin
HILLS = tuple(family for family in FAMILIES if family != "flat")

T = TypeVar("T")
CONTENDERS = (OURS, *OTHERS, PROOF_ALONE)
#: By contender: the evaluations used with the smallest budget that suffices; None: none does.
Needed = dict[str, float | None]


@dataclass(frozen=True)
class Verdict:
    """A figure and the most that it may be."""

    label: str
    figure: float
    wanted: float

    @property
    def is_reached(self) -> bool:
        """Whether the figure is good enough."""
        return self.figure <= self.wanted

    @property
    def word(self) -> str:
        """Whether the figure is good enough, in words."""
        return verdict(self.is_reached)


def percentile(values: Sequence[float], part: float) -> float:
    """Return the nearest-rank percentile."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def select(runs: Sequence[Run], **wanted: object) -> list[Run]:
    """Return the runs whose fields have the values wanted."""
    return [r for r in runs if all(getattr(r, k) == v for k, v in wanted.items())]


def hills(runs: Sequence[Run]) -> list[Run]:
    """Return the runs on landscapes where there is something to find."""
    return [r for r in runs if r.family != "flat"]


def needed(beside: Sequence[Run], share: float) -> Needed:
    """Return the smallest budget with which that share of the runs ends within NEAR of the best."""
    found: Needed = {}
    for contender in CONTENDERS:
        found[contender] = None
        for budget in sorted(BUDGETS):
            runs = select(beside, contender=contender, budget=budget)
            if fmean(r.regret <= NEAR for r in runs) >= share:
                found[contender] = fmean(r.evaluations for r in runs)
                break
    return found


def verdicts_of_search(runs: Sequence[Run]) -> list[Verdict]:
    """Return what is wanted of the search itself, and what it reached."""
    regrets = [r.regret for r in hills(runs)]
    flat = select(runs, family="flat")
    changes = fmean(r.changed for r in flat)
    return [
        Verdict("median regret", median(regrets), WANTED_MEDIAN),
        Verdict("95th percentile of regret", percentile(regrets, 0.95), WANTED_95TH),
        Verdict(f"changes on {len(flat)} flat landscapes", changes, WANTED_FALSE),
    ]


def verdicts_by_noise(runs: Sequence[Run]) -> list[Verdict]:
    """Return what is wanted of the regret at each noise, and what was reached."""
    return [verdict_at(runs, noise) for noise in WANTED_BY_NOISE]


def verdict_at(runs: Sequence[Run], noise: float) -> Verdict:
    """Return what is wanted of the regret at one noise, and what was reached."""
    regrets = [r.regret for r in hills(select(runs, noise=noise))]
    label = f"95th percentile at {noise:.0%} noise"
    return Verdict(label, percentile(regrets, 0.95), WANTED_BY_NOISE[noise])


def verdict_beside_others(beside: Sequence[Run], share: float) -> Verdict:
    """Return the evaluations needed for a share of the runs, by those of the best of the others.

    One that never came near enough counts with the largest budget, which is less than it needs.
    """
    found = needed(beside, share)
    theirs = min(found[name] or max(BUDGETS) for name in OTHERS)
    ours = found[OURS] or math.inf
    label = f"evaluations / those of the best other contender, for {share:.0%} of the runs"
    return Verdict(label, ours / theirs, WANTED_SAVING)


def print_verdicts(verdicts: Sequence[Verdict]) -> bool:
    """Print what was wanted and what came out; return whether all of it was reached."""
    print(f"\nwanted ({BUDGETS[0]} evaluations affordable)")
    for v in verdicts:
        print(f"{v.label:<32}{v.figure:>9.2%}  at most {v.wanted:>6.1%}  {v.word}")
    return all(v.is_reached for v in verdicts)


_REGRETS = ("landscapes", "noise", "runs", "median", "mean", "95th percentile", "evaluations")
_OTHERS = (
    "contender",
    *(f"needed for {share:.0%}" for share in SHARES),
    *(f"within 5 %, of {budget}" for budget in sorted(BUDGETS)),
)
_WANTED = ("wanted", "measured", "at most", "")


def tables(runs: Sequence[Run], beside: Sequence[Run], verdicts: Sequence[Verdict]) -> str:
    """Return the regrets by noise and family, the contenders' evaluations, and what was wanted."""
    rows = []
    for noise in NOISES:
        for label, family in [*((f, f) for f in HILLS), ("all of these", None)]:
            chosen = hills(select(runs, noise=noise))
            chosen = select(chosen, family=family) if family else chosen
            regrets = [r.regret for r in chosen]
            figures = (median(regrets), fmean(regrets), percentile(regrets, 0.95))
            shown = (f"{figure:.2%}" for figure in figures)
            used = f"{fmean(r.evaluations for r in chosen):.0f}"
            rows.append((label, f"{noise:.0%}", str(len(chosen)), *shown, used))
    others = []
    by_share = [needed(beside, share) for share in SHARES]
    for contender in CONTENDERS:
        of = [select(beside, contender=contender, budget=budget) for budget in sorted(BUDGETS)]
        shares = (f"{fmean(r.regret <= NEAR for r in each):.0%}" for each in of)
        found = (each[contender] for each in by_share)
        said = (f"{one:.0f}" if one else f"more than {max(BUDGETS)}" for one in found)
        others.append((contender, *said, *shares))
    wanted = [(v.label, f"{v.figure:.2%}", f"{v.wanted:.1%}", v.word) for v in verdicts]
    return "\n\n".join((table(_REGRETS, rows), table(_OTHERS, others), table(_WANTED, wanted)))


def _case(contender: str, family: str, seed: int, noise: float, budget: int) -> Run:
    land = landscape(family, seed)
    if contender == OURS:
        return search_run(land, noise, budget)
    if contender == PROOF_ALONE:
        return proof_run(land, noise, budget)
    return other_run(contender, land, noise, budget)


def measure(lands: Sequence[tuple[str, int]]) -> list[Run]:
    """Let the search run on landscapes, given as family and seed, at each noise."""
    cases = [(OURS, *land, noise, BUDGETS[0]) for noise in NOISES for land in lands]
    return in_parallel(_case, cases)


def _hills(count: int) -> list[tuple[str, int]]:
    return [(family, seed) for family in HILLS for seed in _seeds(count)]


def _flats(count: int) -> list[tuple[str, int]]:
    more = range(SEED_OF_FLAT, SEED_OF_FLAT + FLAT)
    return [("flat", seed) for seed in (*_seeds(count), *more)]


def measure_beside(count: int) -> list[Run]:
    """Let all contenders run on so many landscapes a family and noise, with each budget."""
    cases = [
        (contender, family, seed, noise, budget)
        for contender in CONTENDERS
        for family in HILLS
        for seed in _seeds(count)
        for noise in NOISES
        for budget in BUDGETS
    ]
    return in_parallel(_case, cases)


def _seeds(count: int) -> range:
    return range(FIRST_SEED, FIRST_SEED + count)


def in_parallel(function: Callable[..., T], cases: Sequence[tuple[object, ...]]) -> list[T]:
    """Return what a function returns for each case's arguments, in order; use all processors.

    Only forked processes have a constant that was set to another value in this one.
    """
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork")) as pool:
        return list(pool.map(function, *zip(*cases, strict=True), chunksize=4))


def measure_all(count: int, beside: int) -> tuple[list[Run], list[Run]]:
    """Return the search's runs, and those of all contenders; exits if Optuna is not installed."""
    if find_spec("optuna") is None:
        sys.exit("the other contenders need Optuna: apt install python3-optuna, or use --short")
    return measure([*_hills(count), *_flats(count)]), measure_beside(beside)


def measure_short() -> list[Run]:
    """Let the search alone run on a few landscapes, and on all flat ones: a change is rare."""
    return measure([*_hills(SHORT), *_flats(RUNS)])


def judged(runs: Sequence[Run], beside: Sequence[Run]) -> list[Verdict]:
    """Return all that is wanted."""
    others = [verdict_beside_others(beside, share) for share in SHARES]
    return [*verdicts_of_search(runs), *verdicts_by_noise(runs), *others]


def judged_in_short(runs: Sequence[Run]) -> list[Verdict]:
    """Return what few landscapes show; the worst of few runs at 15 % noise is left to chance."""
    middle, _, false = verdicts_of_search(runs)
    return [middle, verdict_at(runs, SHORT_NOISE), false]


def _make() -> str:
    runs, beside = measure_all(RUNS, BESIDE)
    return tables(runs, beside, judged(runs, beside))


SEARCH = Section(
    "The search, simulated",
    f"The search runs on simulated mounts, called landscapes: {RUNS} of each of four families. "
    "They have 2 to 5 knobs, and their best values are known (tests/bench/landscapes.py). The "
    "speed of their hosts drifts by up to 30 %, and on every second host 3 % of the samples are "
    "outliers. Noise is the standard deviation of a sample. Regret tells how much slower the "
    "chosen values are than the best ones, as a share of the best speed. The search may use "
    f"{BUDGETS[0]} evaluations. For comparison, Optuna's TPE, random search, successive halving "
    f"and a tournament choose values on the first {BESIDE} landscapes of each family. Each "
    "choice must then pass the same proof as the search's own, with at most 40 % of the budget. "
    "The second table shows, for each budget, how many of the runs end within 5 % of the best. "
    'The columns "needed" are for the smallest budget with which so many do: the average number '
    'of evaluations that they use. The contender "proof alone" is told the best values, so its '
    "evaluations are those of the proof.",
    (_REGRETS, _OTHERS, _WANTED),
    _make,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="landscapes a family and noise")
    parser.add_argument("--beside", type=int, default=BESIDE, help="how many of them others get")
    parser.add_argument("--json", type=Path, help="file to write every run to")
    parser.add_argument(
        "--short", action="store_true", help="the search alone, on fewer landscapes"
    )
    options = parser.parse_args(arguments)
    if options.short:
        return 0 if print_verdicts(judged_in_short(measure_short())) else 1
    runs, beside = measure_all(options.runs, options.beside)
    verdicts = judged(runs, beside)
    print(tables(runs, beside, verdicts))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in (*runs, *beside)]))
    return 0 if print_verdicts(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
