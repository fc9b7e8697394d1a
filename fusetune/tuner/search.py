# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the next setting to measure, and finally the setting that is proven to be better.

Pure: no I/O, no clock, no global random numbers; the same seed and figures give the same run.

The host drifts, so settings are measured in short blocks in random order, and only differences of
log figures within a block count. A run has two stages, preceded by a short one if there was an
earlier run (`warm`):

1. Exploration (`exploring`, `safer`). First a block of points far from the start, then blocks of
   the incumbent and the candidates that are most promising by the mixed model `model.BlockModel`.
   A setting that is clearly worse or makes no difference is not measured again. The stage ends
   when no candidate is promising and the incumbent's neighbours were measured, or when the rest of
   the budget is needed for the proof. If the incumbent is worth its proof, smaller gains are looked
   for as well, as far as the noise allows, and values in gaps between measured ones are measured.
2. Confirmation (`confirming`). Start, incumbent and, where it may be as good, stock in fresh
   blocks. Only these samples decide, by Student intervals whose error is divided among all interim
   analyses: 1/2, 1/6, 1/12, ... of it, so that the sum is at most the total for any number of
   analyses. Another part is kept for an analysis at the end of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from fusetune.bench.intervals import Interval
from fusetune.tuner import constants
from fusetune.tuner.confirming import Confirmation
from fusetune.tuner.costs import UNKNOWN, UNLIMITED, Cost, Limits
from fusetune.tuner.explaining import reasons, why_not
from fusetune.tuner.exploring import Exploration
from fusetune.tuner.grid import Grid, Setting
from fusetune.tuner.model import Point
from fusetune.tuner.permission import Permission
from fusetune.tuner.safer import SaferValues
from fusetune.tuner.space import Dimension
from fusetune.tuner.state import PointBlock, State, Steps
from fusetune.tuner.warm import KEPT, Block, Earlier, WarmStart

_MUCH = 1.5  # how much better a refused setting seems than a part of it, to be listed as well
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
    before, after (geometric means) and their ratio, all from the confirming blocks only; 1 [1, 1]
    and empty if unchanged. `reasons` has one sentence for each dimension, from the exploration.
    """

    setting: dict[str, int]
    changed: bool
    gain: Interval
    per_workload: dict[str, tuple[float, float, Interval]]
    reasons: tuple[str, ...]


class Search:
    """Usage: ask for a setting, measure every workload once with it, tell the figures, repeat.

    `weights`: of the workloads in their order, above 0; equal by default. `limits`: on the cost of
    the choice. `earlier`: the run to start from. `stepwise`: this is one of several searches, each
    from the choice of the last: end with a large gain instead of looking for small ones.
    `passed_over`: settings passed over in the last one, if it had the same start. Raises ValueError
    if a dimension, start value, workload or figure is missing or impossible.
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
        *,
        stepwise: bool = False,
        passed_over: Sequence[Setting] = (),
    ) -> None:
        if weights and (len(weights) != len(workloads) or min(weights) <= 0):
            raise ValueError("weights must be numbers above 0, one for each workload")
        if not workloads or len(set(workloads)) != len(workloads):
            raise ValueError("workloads must be one or more distinct names")
        self.limits = limits
        self._grid = Grid(dimensions, start)
        self._state = State(self._grid, workloads, seed, weights, limits, stepwise=stepwise)
        points = map(self._grid.point, passed_over)
        self._state.refusals += [point for point in points if point is not None]
        self._confirmation = Confirmation(self._state)
        self._warm = WarmStart(self._state, earlier)
        self._samples: dict[Point, list[dict[str, float]]] = {}
        self._steps = self._run()
        self._pending: Point | None = None
        self._asked = False
        self._begun = False
        #: Asked about promising settings, after the first block and before a proof; it may be slow.
        self.permit: Callable[[Setting], bool] = lambda setting: True
        self._permission = Permission(self._state, lambda setting: self.permit(setting))
        #: Evaluations that exploration leaves for other things than the proof of a setting.
        self.others_need: Callable[[Setting], int] = lambda setting: 0
        self._state.others_need = lambda point: self.others_need(self._grid.setting(point))

    def _run(self) -> Steps:
        state = self._state
        safer = SaferValues(state)
        exploration = Exploration(state, safer, self._permission)
        stages = (exploration.run,) if state.stepwise else (exploration.run, exploration.refine)
        state.short = True
        yield from self._warm.check()
        while state.affordable(2) or self._may_prove():
            for explore in stages:
                yield from explore()
                yield from safer.walk_back()
                if not state.promising(state.incumbent):
                    return
                permitted = self._permission.part_of(state.incumbent)
                if permitted != state.incumbent:
                    state.incumbent = permitted
                    break
            else:
                yield from self._confirmation.run(state.incumbent)
                if self._confirmation.proof:
                    return
                state.rejected.add(state.incumbent)
                self._warm.proof_failed()

    def _may_prove(self) -> bool:
        """Return whether a proof is affordable, even if no exploration is, and something is known.

        A refusal may have come too late to explore what is left.
        """
        state = self._state
        return state.model.samples > 0 and state.remaining >= 2 * constants.FEWEST_PAIRS

    def ask(self, remaining: int) -> dict[str, int] | None:
        """Return the next setting to evaluate, or None if the search has finished.

        `remaining` is how many evaluations are still affordable, including this one; it may shrink
        or grow between calls. At 0 or less, `end` is called and None is returned; a later call with
        more continues.
        """
        if remaining <= 0:
            self.end()
            return None
        self._state.remaining = remaining
        if not self._begun:
            self._begun = True
            self._pending = next(self._steps, None)
        if self._pending is None:
            return None
        self._asked = True
        return self._grid.setting(self._pending)

    def end(self) -> None:
        """Decide an unfinished proof by what was measured, because the budget has run out.

        Nothing happens if the search has finished.
        """
        if not self._begun or self._pending is not None:
            self._state.short = True
            self._confirmation.end()

    def tell(self, figures: Figures, cost: Cost = UNKNOWN) -> None:
        """Record the figures of the last setting asked for, and the cost of its evaluation.

        Raises ValueError without such a setting, or unless each workload has a finite figure > 0.
        """
        if not self._asked or self._pending is None:
            raise ValueError("tell() needs an ask() before it")
        workloads = self._state.workloads
        if set(figures) != set(workloads):
            raise ValueError(f"figures must be for {sorted(workloads)}, not {sorted(figures)}")
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

    def refuse(self, blamed: Collection[str] = ()) -> None:
        """Reject the proven setting, for a reason that the search does not see, and continue.

        Settings at least as far from the start are rejected with it, in the `blamed` dimensions
        that it changes, or in all if it changes none of these. ValueError if none is proven.
        """
        proof, start = self._confirmation.proof, self._grid.start
        if proof is None:
            raise ValueError("refuse() needs a proven setting")
        names = [dimension.name for dimension in self._grid.dimensions]
        alone = tuple(
            place if name in blamed else origin
            for name, place, origin in zip(names, proof.point, start, strict=True)
        )
        self._refuse(proof.point if alone == start else alone)

    def pass_over(self) -> None:
        """Reject the setting asked for last, whose measurement was aborted, and continue.

        Like `refuse`. ValueError without such a setting, or if it is the start.
        """
        point = self._pending if self._asked else None
        if point is None or point == self._grid.start:
            raise ValueError("pass_over() needs an ask() for another setting than the start")
        self._refuse(point)

    def _refuse(self, point: Point) -> None:
        self._state.refusals.append(point)
        self._confirmation.drop()
        self._steps, self._pending = self._run(), None
        self._asked = self._begun = False

    @property
    def short(self) -> bool:
        """Whether more evaluations would have been worth asking for."""
        return self._state.short or self.unproven() is not None

    def unproven(self) -> tuple[dict[str, int], int] | None:
        """Return what seems better than the start but is not proven, None if nothing does.

        The second value is the number of evaluations that its proof would need.
        """
        state, undecided = self._state, self._confirmation.undecided
        if self._confirmation.proof or not state.model.samples:
            return None
        state.model.fit()
        points = [*state.model.points(), state.incumbent] if state.short else undecided
        points = [p for p in points if state.promising(p) and state.bearable(p)]
        points = [p for p in points if p in undecided or not state.excluded(p)]
        points = [p for p in points if not state.refused(p)]
        if not points:
            return None
        best = max(points, key=state.certain_gain)
        evaluations = len(state.contestants(best)) * state.pairs_needed(best)
        return self._grid.setting(best), evaluations

    def seems(self, setting: Setting) -> float:
        """Return how many times as fast as the start a setting seems, after some samples.

        Raises ValueError if the setting is not in the grid.
        """
        self._state.model.fit()
        return self._state.ratio(self._known(setting), self._grid.start).ratio

    def why_not(self, setting: Setting) -> str | None:
        """Return what was found on a setting that is not the choice, None if it was refused.

        Raises ValueError if the setting is not in the grid.
        """
        point = self._known(setting)
        if self._state.refused(point):
            return None
        return why_not(self._state, self._chosen, point)

    def _known(self, setting: Setting) -> Point:
        point = self._grid.point(setting)
        if point is None:
            raise ValueError(f"{dict(setting)} is not in the grid")
        return point

    @property
    def trials(self) -> list[Trial]:
        """Every setting measured so far, in order of its first measurement."""
        return [Trial(self._grid.setting(p), tuple(s)) for p, s in self._samples.items()]

    @property
    def refused(self) -> list[tuple[dict[str, int], str]]:
        """What was refused because of its cost although it seems better: changed values, and why.

        A refusal is left out if another one changes the same dimensions, or fewer, and seems nearly
        as good. The largest apparent gain comes first.
        """
        if not self._state.costly:
            return []
        self._state.model.fit()
        gains = {pair: self._state.apparent_gain(*pair) for pair in self._state.costly}
        better = [pair for pair in gains if gains[pair] >= constants.LEAST_GAIN]
        found: list[tuple[Point, Point]] = []
        for pair in sorted(better, key=lambda pair: (len(self._changed(*pair)), -gains[pair])):
            names = self._changed(*pair).keys()
            parts = [other for other in found if self._changed(*other).keys() <= names]
            nearly_as_good = gains[pair] - math.log(_MUCH)
            if all(gains[other] < nearly_as_good for other in parts):
                found.append(pair)
        found.sort(key=lambda pair: -gains[pair])
        return [(self._changed(*pair), self._state.costly[pair]) for pair in found]

    def _changed(self, point: Point, other: Point) -> dict[str, int]:
        before = self._grid.setting(other)
        return {n: v for n, v in self._grid.setting(point).items() if v != before[n]}

    @property
    def warm(self) -> bool | None:
        """Whether the earlier samples still hold; None if there are none for this grid."""
        return self._warm.holds if self._warm.blocks else None

    @property
    def blocks(self) -> list[Block]:
        """Blocks from which a later search may start: of this search, then of the one before it.

        Of too many, the proof and the first ones are kept.
        """
        own = self._state.blocks()
        end = self._confirmation.first_block if self._confirmation.proof else len(own)
        proof = _first(own[end:], KEPT)
        kept = [*_first(own[:end], KEPT - sum(map(len, proof))), *proof]
        if self._warm.holds:
            kept += _first(self._warm.blocks, KEPT - sum(map(len, kept)))
        return [[(self._grid.setting(point), f) for point, f in block] for block in kept]

    @property
    def evaluations(self) -> int:
        """How many evaluations have been recorded."""
        return self._state.evaluations

    @property
    def _chosen(self) -> Point:
        proof = self._confirmation.proof
        return proof.point if proof else self._grid.start

    def choice(self) -> Choice:
        """Return the best setting proven so far, the start if there is none."""
        proof, point = self._confirmation.proof, self._chosen
        return Choice(
            setting=self._grid.setting(point),
            changed=proof is not None,
            gain=proof.gain if proof else Interval(1.0, 1.0, 1.0),
            per_workload=dict(proof.per_workload) if proof else {},
            reasons=reasons(self._state, point),
        )


def _first(blocks: Sequence[PointBlock], most: int) -> Sequence[PointBlock]:
    """Return the first blocks, with at most that many samples."""
    ends = accumulate(map(len, blocks))
    return blocks[: sum(end <= most for end in ends)]
