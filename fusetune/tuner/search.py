# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the next setting to measure, and in the end the setting that is proven better.

Pure: no I/O, no clock, no global random numbers; the same seed and figures give the same run.

The host drifts, so settings are measured in short blocks in random order, and only differences of
log figures within a block count. A run has two stages, and a short one before them if there was an
earlier run (`warm`):

1. Exploration (`exploring`, `safer`). A few far points of each dimension, alone and together with
   the dimensions they interact with, then blocks of the incumbent and the candidates that promise
   most by the mixed model of `model.BlockModel`. A setting that is clearly worse or makes no
   difference promises nothing and is not measured again. The stage ends when nothing promises more,
   or when the rest of the budget is needed for the proof.
2. Confirmation (`confirming`). Start, incumbent and stock in fresh blocks. Only these samples
   decide, by Student intervals whose error is divided among all interim analyses: 1/2, 1/6, 1/12,
   ... of it, which sums to the whole however many analyses there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from fusetune.bench.intervals import Interval
from fusetune.tuner import constants
from fusetune.tuner.confirming import Confirmation
from fusetune.tuner.costs import UNKNOWN, UNLIMITED, Cost, Limits
from fusetune.tuner.explaining import reasons
from fusetune.tuner.exploring import Exploration
from fusetune.tuner.grid import Grid, Setting
from fusetune.tuner.model import Point
from fusetune.tuner.safer import SaferValues
from fusetune.tuner.space import Dimension
from fusetune.tuner.state import State, Steps
from fusetune.tuner.warm import KEPT, Block, Earlier, WarmStart

Figures = Mapping[str, float]  # workload name -> figure; higher is better; > 0


@dataclass(frozen=True)
class Trial:
    """One setting and all its samples so far, in order."""

    setting: dict[str, int]
    samples: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Choice:
    """The best proven setting.

    `gain` is chosen/start, the weighted geometric mean over the workloads, and `per_workload` holds
    before, after (geometric means) and their ratio, all from the confirming blocks only; 1 (1 to 1)
    and nothing where unchanged. `reasons` has one sentence for each dimension, from the
    exploration.
    """

    setting: dict[str, int]
    changed: bool
    gain: Interval
    per_workload: dict[str, tuple[float, float, Interval]]
    reasons: tuple[str, ...]


class Search:
    """Ask for a setting, measure every workload under it once, tell the figures, repeat.

    `weights`: of the workloads in their order, above 0; without them all count alike. `limits`: on
    what the choice costs. `earlier`: the run to begin with. ValueError where a dimension, start
    value, workload or figure is missing or impossible.
    """

    def __init__(
        self,
        dimensions: Sequence[Dimension],
        start: Setting,
        workloads: Sequence[str],
        seed: int = 0,
        weights: Sequence[float] = (),
        limits: Limits = UNLIMITED,
        earlier: Earlier | None = None,
    ) -> None:
        if weights and (len(weights) != len(workloads) or min(weights) <= 0):
            raise ValueError("weights must be numbers above 0, one for each workload")
        if not workloads or len(set(workloads)) != len(workloads):
            raise ValueError("workloads must be one or more different names")
        self.limits = limits
        self._grid = Grid(dimensions, start)
        self._state = State(self._grid, workloads, seed, weights, limits)
        self._confirmation = Confirmation(self._state)
        self._warm = WarmStart(self._state, earlier)
        self._samples: dict[Point, list[dict[str, float]]] = {}
        self._steps = self._run()
        self._pending: Point | None = None
        self._asked = False
        self._begun = False
        #: Asked about a promising setting before it is proven; it may take its time.
        self.permit: Callable[[Setting], bool] = lambda setting: True
        self._passed: set[Point] = set()

    def _run(self) -> Steps:
        state = self._state
        safer = SaferValues(state)
        exploration = Exploration(state, safer)
        state.short = True
        yield from self._warm.check()
        while state.affordable(2):
            yield from exploration.run()
            yield from safer.walk_back()
            if not state.promising(state.incumbent):
                return
            if not self._permitted():
                continue
            yield from self._confirmation.run(state.incumbent)
            if self._confirmation.proof:
                return
            state.rejected.add(state.incumbent)
            self._warm.proof_failed()

    def _permitted(self) -> bool:
        """Ask whether the incumbent may be chosen, before it is proven at some cost.

        If not, the incumbent becomes the furthest one permitted on the way to it from the start.
        """
        start, end = self._grid.start, self._state.incumbent
        if self._is_permitted(end):
            return True
        least, most = 0, max(abs(e - s) for s, e in zip(start, end, strict=True))
        length = most
        self._state.incumbent = start
        while most - least > 1:
            middle = (least + most) // 2
            steps = [int((e - s) * middle / length) for s, e in zip(start, end, strict=True)]
            point = tuple(s + step for s, step in zip(start, steps, strict=True))
            if self._is_permitted(point):
                least, self._state.incumbent = middle, point
            else:
                most = middle
        return False

    def _is_permitted(self, point: Point) -> bool:
        """Ask once about each point."""
        if point not in self._passed and not self._state.refused(point):
            if self.permit(self._grid.setting(point)):
                self._passed.add(point)
            else:
                self._state.refusals.append(point)
        return point in self._passed

    def ask(self, remaining: int) -> dict[str, int] | None:
        """Return the next setting to evaluate, or None where the search has finished.

        `remaining` is how many evaluations are still affordable, this one included; it may shrink
        or grow between calls. At 0 or less None is returned, and a later call with more goes on.
        """
        if remaining <= 0:
            return None
        self._state.remaining = remaining
        if not self._begun:
            self._begun = True
            self._pending = next(self._steps, None)
        if self._pending is None:
            return None
        self._asked = True
        return self._grid.setting(self._pending)

    def tell(self, figures: Figures, cost: Cost = UNKNOWN) -> None:
        """Take the figures of the setting asked for last, and what its evaluation cost.

        ValueError without such a setting, or unless each workload has a finite figure above 0.
        """
        if not self._asked or self._pending is None:
            raise ValueError("tell() needs an ask() before it")
        workloads = self._state.workloads
        if set(figures) != set(workloads):
            raise ValueError(f"figures wanted for {sorted(workloads)}, not {sorted(figures)}")
        for name, figure in figures.items():
            if not (math.isfinite(figure) and figure > 0):
                raise ValueError(f"figure of {name} must be a number above 0, not {figure}")
        self._asked = False
        self._state.costs.add(self._pending, cost)
        self._state.keeps_limits(self._pending)
        self._state.evaluations += 1
        self._state.remaining -= 1
        kept = {name: float(figures[name]) for name in workloads}
        self._samples.setdefault(self._pending, []).append(kept)
        try:
            self._pending = self._steps.send(kept)
        except StopIteration:
            self._pending = None

    def refuse(self) -> None:
        """Reject the proven setting, for a reason that the search does not see, and search on.

        With it go those that are at least as far from the start. ValueError if none is proven.
        """
        proof = self._confirmation.proof
        if proof is None:
            raise ValueError("refuse() needs a proven setting")
        self._refuse(proof.point)

    def pass_over(self) -> None:
        """Reject the setting asked for last, which was not measured to its end, and search on.

        As `refuse`. ValueError without such a setting, or if it is the start.
        """
        point = self._pending if self._asked else None
        if point is None or point == self._grid.start:
            raise ValueError("pass_over() needs an ask() for another setting than the start")
        self._refuse(point)

    def _refuse(self, point: Point) -> None:
        self._state.refusals.append(point)
        self._confirmation.proof = None
        self._steps, self._pending = self._run(), None
        self._asked = self._begun = False

    @property
    def short(self) -> bool:
        """Whether more evaluations would have been worth asking for."""
        return self._state.short

    def unproven(self) -> tuple[dict[str, int], int] | None:
        """Return what seems better than the start but is not proven, None if nothing does.

        With it goes how many evaluations its proof would take.
        """
        state = self._state
        point = state.incumbent
        if self._confirmation.proof or not state.model.samples or state.excluded(point):
            return None
        if not state.promising(point):
            return None
        contestants = {self._grid.start, point, self._grid.stock}
        return self._grid.setting(point), len(contestants) * state.pairs_needed()

    @property
    def trials(self) -> list[Trial]:
        """Every setting measured so far, in order of its first measurement."""
        return [Trial(self._grid.setting(p), tuple(s)) for p, s in self._samples.items()]

    @property
    def refused(self) -> list[tuple[dict[str, int], str]]:
        """What was refused for its cost although it seems better, as changed values, and why.

        Of refusals that change the same dimensions, or more, this is the one that seemed to gain
        most.
        """
        if not self._state.costly:
            return []
        self._state.model.fit()
        gains = {pair: self._state.contrast(*pair)[0] for pair in self._state.costly}
        better = [pair for pair in gains if gains[pair] >= constants.LEAST_GAIN]
        found: list[tuple[dict[str, int], str]] = []
        for pair in sorted(better, key=lambda pair: (len(self._changed(*pair)), -gains[pair])):
            changed = self._changed(*pair)
            if not any(fewer.keys() <= changed.keys() for fewer, _ in found):
                found.append((changed, self._state.costly[pair]))
        return found

    def _changed(self, point: Point, other: Point) -> dict[str, int]:
        before = self._grid.setting(other)
        return {n: v for n, v in self._grid.setting(point).items() if v != before[n]}

    @property
    def warm(self) -> bool | None:
        """Whether the earlier samples still hold; None if there are none for this grid."""
        return self._warm.holds if self._warm.blocks else None

    @property
    def blocks(self) -> list[Block]:
        """What a later search may begin with: blocks of this one, then of the one before it."""
        own: dict[int, list[tuple[Point, Mapping[str, float]]]] = {}
        for block, point, figures in self._state.samples:
            own.setdefault(block, []).append((point, figures))
        every = [*own.values(), *(self._warm.blocks if self._warm.holds else ())]
        ends = accumulate(len(block) for block in every)
        kept = [block for block, end in zip(every, ends, strict=True) if end <= KEPT]
        return [[(self._grid.setting(point), f) for point, f in block] for block in kept]

    @property
    def evaluations(self) -> int:
        """How many evaluations have been told."""
        return self._state.evaluations

    def choice(self) -> Choice:
        """Return the best setting proven by now: at any time, the start where none is."""
        proof = self._confirmation.proof
        point = proof.point if proof else self._grid.start
        return Choice(
            setting=self._grid.setting(point),
            changed=proof is not None,
            gain=proof.gain if proof else Interval(1.0, 1.0, 1.0),
            per_workload=dict(proof.per_workload) if proof else {},
            reasons=reasons(self._state, point),
        )
