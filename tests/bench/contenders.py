# SPDX-License-Identifier: GPL-2.0-or-later
"""The search and other ways to search, each run on a simulated mount.

The others choose by the best mean of what they measured. Then their choice goes through the same
confirming stage as the search's own, with the part of the budget that the search keeps for it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from fusetune.tuner import constants
from fusetune.tuner.confirming import Confirmation
from fusetune.tuner.grid import Grid
from fusetune.tuner.search import Search
from fusetune.tuner.state import State
from tests.bench.landscapes import DRIFTS, Host, Landscape

SEEDS_OF_HOSTS = 100_000  # more than landscapes
OURS = "fusetune"
#: It knows the best setting and only proves it.
PROOF_ALONE = "proof alone"

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


class Measured:
    """A landscape on its host, measured `count` times; `scores`: logs of the objective."""

    def __init__(self, land: Landscape, noise: float) -> None:
        self.land, self._host = land, host(land, noise)
        self.count = 0

    def figures(self, setting: Setting) -> dict[str, float]:
        """Measure a setting once."""
        self.count += 1
        return self._host.measure(self.land.figures(setting))

    def score(self, setting: Setting) -> float:
        """Measure a setting once; return the log of the objective."""
        return fmean(map(math.log, self.figures(setting).values()))

    def drawn(self, count: int) -> list[Setting]:
        """Return the start and random settings of the grid."""
        draw = random.Random(self.land.seed)
        dimensions = self.land.dimensions
        others = [{d.name: draw.choice(d.values) for d in dimensions} for _ in range(count - 1)]
        return [dict(self.land.start), *others]


def random_search(mount: Measured, count: int) -> Setting:
    """Measure random settings once each."""
    return max(mount.drawn(count), key=mount.score)


def halving(mount: Measured, count: int) -> Setting:
    """Measure random settings, keep the better half, measure these twice as often, and so on."""
    rungs = max(n for n in range(1, 12) if n * 2**n <= max(2, count))
    kept, samples = mount.drawn(2**rungs), 1
    while len(kept) > 1:
        scores = [fmean(mount.score(setting) for _ in range(samples)) for setting in kept]
        order = sorted(range(len(kept)), key=lambda i: -scores[i])
        kept, samples = [kept[i] for i in order[: len(kept) // 2]], 2 * samples
    return kept[0]


def tournament(mount: Measured, count: int) -> Setting:
    """Let random settings meet in matches of two pairs; who loses one is out."""
    players = mount.drawn(count // 4 + 1)
    while len(players) > 1:
        one, other, *rest = players
        scores = [mount.score(player) for player in (one, other, other, one)]
        players = [*rest, one if scores[0] + scores[3] >= scores[1] + scores[2] else other]
    return players[0]


def tpe(mount: Measured, count: int) -> Setting:
    """Run Optuna's TPE with its defaults, the start given as its first trial."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    land = mount.land
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

    def setting(indexes: dict[str, int]) -> Setting:
        return {d.name: d.values[indexes[d.name]] for d in land.dimensions}

    for _ in range(count):
        trial = study.ask(spaces)
        study.tell(trial, mount.score(setting(trial.params)))
    return setting(study.best_params)


OTHERS: dict[str, Callable[[Measured, int], Setting]] = {
    "TPE": tpe,
    "random search": random_search,
    "successive halving": halving,
    "tournament": tournament,
}


def confirmed(mount: Measured, chosen: Setting, left: int) -> Setting:
    """Return the setting chosen if the search's confirming stage proves it, else the start.

    `left`: evaluations that it may take.
    """
    grid = Grid(mount.land.dimensions, mount.land.start)
    state = State(grid, list(mount.land.workloads), mount.land.seed)
    state.remaining = left
    confirmation, point = Confirmation(state), grid.point(chosen)
    if point is None or point == grid.start:
        return dict(mount.land.start)
    steps = confirmation.run(point)
    asked = next(steps, None)
    while asked is not None:
        figures = mount.figures(grid.setting(asked))
        state.remaining -= 1
        try:
            asked = steps.send(figures)
        except StopIteration:
            asked = None
    return grid.setting(confirmation.proof.point if confirmation.proof else grid.start)


def search_run(land: Landscape, noise: float, budget: int) -> Run:
    """Let fusetune's search loose on a landscape."""
    mount = Measured(land, noise)
    search = Search(land.dimensions, land.start, list(land.workloads), land.seed)
    while (setting := search.ask(budget - mount.count)) is not None:
        search.tell(mount.figures(setting))
    return _run(OURS, mount, noise, budget, search.choice().setting)


def other_run(contender: str, land: Landscape, noise: float, budget: int) -> Run:
    """Let one of OTHERS loose on a landscape, then confirm its choice."""
    mount = Measured(land, noise)
    chosen = OTHERS[contender](mount, round((1 - constants.MOST_RESERVED) * budget))
    setting = confirmed(mount, chosen, budget - mount.count)
    return _run(contender, mount, noise, budget, setting)


def proof_run(land: Landscape, noise: float, budget: int) -> Run:
    """Prove the best setting of a landscape, without a search."""
    mount = Measured(land, noise)
    setting = confirmed(mount, land.best_setting(), budget)
    return _run(PROOF_ALONE, mount, noise, budget, setting)


def _run(contender: str, mount: Measured, noise: float, budget: int, chosen: Setting) -> Run:
    land = mount.land
    left, changed = regret(land, chosen, land.best()), chosen != land.start
    return Run(contender, land.family, land.seed, noise, budget, left, mount.count, changed)
