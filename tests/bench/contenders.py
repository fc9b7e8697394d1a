# SPDX-License-Identifier: GPL-2.0-or-later
"""The search, the grid, random search and Optuna's TPE, each run on a simulated mount."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fusetune.tuner.search import Search
from tests.bench.landscapes import DRIFTS, Host, Landscape

GRID_SAMPLES = 3
SEEDS_OF_HOSTS = 100_000  # more than landscapes

Setting = dict[str, int]


@dataclass(frozen=True)
class Run:
    """What one contender reached on one landscape."""

    contender: str
    family: str
    seed: int
    noise: float
    budget: int
    regret: float
    evaluations: int
    changed: bool


@dataclass(frozen=True)
class Course:
    """Optuna's regret after each evaluation on one landscape."""

    family: str
    seed: int
    noise: float
    regrets: tuple[float, ...]


def host(land: Landscape, noise: float, number: int = 0) -> Host:
    """Return the host that a landscape is measured on: every contender gets the same.

    `number`: of another one, for what is measured at another time.
    """
    outliers = 0.03 if land.seed % 2 else 0.0
    drift = DRIFTS[(land.seed + number) % len(DRIFTS)]
    return Host(land.seed + number * SEEDS_OF_HOSTS, noise, outliers, drift)


def regret(land: Landscape, setting: Setting, best: float) -> float:
    """Return how much of the best figure a setting leaves on the table, 0 to 1."""
    return 1 - land.worth(setting) / best


def geometric_mean(figures: Iterable[float]) -> float:
    """Return the objective of figures measured together."""
    return math.exp(fmean(map(math.log, figures)))


def search_run(land: Landscape, noise: float, budget: int) -> Run:
    """Let fusetune's search loose on a landscape."""
    machine = host(land, noise)
    search = Search(land.dimensions, land.start, list(land.workloads), land.seed)
    while (setting := search.ask(budget - search.evaluations)) is not None:
        search.tell(machine.measure(land.figures(setting)))
    choice = search.choice()
    left = regret(land, choice.setting, land.best())
    return Run(
        "fusetune", land.family, land.seed, noise, budget, left, search.evaluations, choice.changed
    )


def sampled_run(
    contender: str, land: Landscape, noise: float, settings: Sequence[Setting], samples: int
) -> Run:
    """Measure settings in the order given and choose the best mean."""
    machine = host(land, noise)
    scores = [
        fmean(
            math.log(geometric_mean(machine.measure(land.figures(setting)).values()))
            for _ in range(samples)
        )
        for setting in settings
    ]
    chosen = settings[scores.index(max(scores))]
    count = samples * len(settings)
    left = regret(land, chosen, land.best())
    return Run(contender, land.family, land.seed, noise, count, left, count, chosen != land.start)


def grid_run(land: Landscape, noise: float, samples: int) -> Run:
    """Measure the whole grid in random order."""
    settings = land.settings()
    random.Random(land.seed).shuffle(settings)
    return sampled_run(f"grid x{samples}", land, noise, settings, samples)


def random_run(land: Landscape, noise: float, count: int) -> Run:
    """Measure the start and random settings of the grid."""
    draw = random.Random(land.seed)
    drawn = [{d.name: draw.choice(d.values) for d in land.dimensions} for _ in range(count - 1)]
    return sampled_run("random", land, noise, [dict(land.start), *drawn], 1)


def tpe_course(land: Landscape, noise: float, cap: int) -> Course:
    """Run Optuna's TPE with its defaults, the start given as its first trial."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    machine, best = host(land, noise), land.best()
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=land.seed)
    )
    spaces: dict[str, optuna.distributions.BaseDistribution] = {
        d.name: optuna.distributions.IntDistribution(0, len(d.values) - 1)
        if d.ordered
        else optuna.distributions.CategoricalDistribution(range(len(d.values)))
        for d in land.dimensions
    }
    study.enqueue_trial({d.name: d.values.index(land.start[d.name]) for d in land.dimensions})
    regrets: list[float] = []
    leading = -math.inf
    for _ in range(cap):
        trial = study.ask(spaces)
        setting = {d.name: d.values[trial.params[d.name]] for d in land.dimensions}
        score = geometric_mean(machine.measure(land.figures(setting)).values())
        study.tell(trial, score)
        if score > leading:
            leading, left = score, regret(land, setting, best)
        regrets.append(left)
    return Course(land.family, land.seed, noise, tuple(regrets))
