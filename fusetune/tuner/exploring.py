# SPDX-License-Identifier: GPL-2.0-or-later
"""Exploration: measure the most promising candidates until none promises a gain."""

from __future__ import annotations

import math

from fusetune.tuner import constants
from fusetune.tuner.model import Point, expected_gain
from fusetune.tuner.permission import Permission
from fusetune.tuner.safer import SaferValues
from fusetune.tuner.state import State, Steps

# Log gain with which one of several searches ends: a decision. The next one, which starts there,
# sees more than this one would with further samples.
_ENOUGH = math.log(1.1)


class Exploration:
    """Finds the incumbent of `state`: the setting with the most certain gain, made safer."""

    def __init__(self, state: State, safer: SaferValues, permission: Permission) -> None:
        self._state = state
        self._grid = state.grid
        self._safer = safer
        self._permission = permission

    def run(self) -> Steps:
        """Measure the most promising candidates until none is left or the proof needs the rest."""
        if not self._state.screened:
            yield from self._screen()
            self._ask_early()
        yield from self._explore(constants.PROMISE)

    def refine(self) -> Steps:
        """Measure candidates for gains so small that only a steady host can show them."""
        least = min(constants.PROMISE, constants.FINE * self._state.model.noise)
        yield from self._explore(least, gaps=True)

    def _explore(self, least: float, *, gaps: bool = False) -> Steps:
        """Measure candidates, then points near the incumbent that only the model has judged.

        `least`: the expected log gain below which a candidate is not measured. `gaps`: see
        `_unmeasured`.
        """
        state = self._state
        while state.model.samples:
            if self._has_enough():
                return
            size = state.affordable(constants.BLOCK)
            candidates = self._candidates(size, least) or self._unmeasured(size, gaps=gaps)
            if not candidates or state.model.samples > state.most_explored:
                more = self._candidates(constants.BLOCK, constants.PROMISE)
                state.short = size < 2 and bool(more)
                return
            yield from state.measure_block([state.incumbent, *candidates])

    def _screen(self) -> Steps:
        """Measure a block of the start and the grid's first points; then the model chooses.

        One of several searches measures all of these points, unless it can end with a large gain.
        Points measured or refused before, in a screening that was cut short, are left out.
        """
        state, grid = self._state, self._grid
        done = set(state.model.points())
        points = grid.points_alone() if state.stepwise else grid.points_together()
        points = [p for p in points if p not in done and not state.excluded(p)]
        while (points or not state.model.samples) and (size := state.affordable(constants.BLOCK)):
            yield from state.measure_block([grid.start, *points[: size - 1]])
            points = points[size - 1 :]
            if not state.stepwise or self._has_enough():
                break
        state.screened = True

    def _ask_early(self) -> None:
        """Find out what is not permitted, before values like it are measured again and again."""
        if not self._state.model.samples:
            return
        self._state.model.fit()
        best = self._propose()
        if self._state.promising(best):
            self._permission.part_of(best)

    def _has_enough(self) -> bool:
        """Update the incumbent; return whether the next of several searches can start from it."""
        state = self._state
        state.model.fit()
        state.incumbent = self._propose()
        if not state.stepwise or not state.model.count(state.incumbent):
            return False
        return state.certain_gain(state.incumbent) >= _ENOUGH

    def _propose(self) -> Point:
        """Return the new incumbent: the point with the most certain gain, made safer."""
        start = self._grid.start
        centre = self._climb(self._state.incumbent)
        posterior = self._state.model.posterior([start, *self._neighbourhood(centre)])
        scores = [mean - constants.CAUTION * sd for mean, sd in posterior.contrasts()]
        for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
            point = posterior.points[i]
            if point != start and self._state.bearable(point):
                return self._safer.than(point)
            if point == start:
                break
        return start

    def _climb(self, point: Point) -> Point:
        """Return the model's best point reachable by moves in one dimension or a pair."""
        groups: list[tuple[int, ...]] = [(i,) for i in range(len(self._grid.dimensions))]
        groups += self._grid.pairs
        best = point
        for group in groups:
            box = self._grid.box(best, group)
            allowed = [p for p in box if not self._state.refused(p)]
            best = max(allowed or [best], key=self._state.model.mean)
        # Each move improves, or goes to the first of equals, so none is repeated.
        return best if best == point else self._climb(best)

    def _neighbourhood(self, centre: Point) -> list[Point]:
        """Return the candidates for measurement: measured points, and those near the centre."""
        grid, state = self._grid, self._state
        points = [centre, grid.start, grid.stock, *state.model.points(), *grid.near(centre)]
        return [p for p in dict.fromkeys(points) if not state.excluded(p)]

    def _candidates(self, size: int, least: float) -> list[Point]:
        """Return up to size - 1 points that promise the largest gains over the incumbent."""
        if size < 2:
            return []
        state, incumbent = self._state, self._state.incumbent
        near = dict.fromkeys([*self._neighbourhood(incumbent), self._climb(incumbent)])
        points = [p for p in near if p != incumbent and not state.excluded(p)]
        posterior = state.model.posterior([incumbent, *points])
        chosen: list[int] = []
        if incumbent != self._grid.start and state.model.count(incumbent) < 2:
            chosen.append(1 + points.index(self._grid.start))
        while len(chosen) < size - 1:
            promise, best = max(
                (self._promise(*contrast), i)
                for i, contrast in enumerate(posterior.contrasts())
                if i not in chosen
            )
            if promise < least:
                break
            chosen.append(best)
            posterior.suppose(best)
        return [posterior.points[i] for i in chosen]

    def _unmeasured(self, size: int, *, gaps: bool) -> list[Point]:
        """Return up to size - 1 points beside the incumbent that only the model has judged.

        The model may have smoothed away a peak or a cliff there. `gaps`: once these are measured,
        values of the dimensions that the incumbent changes, so that of two adjacent ones, one is
        measured.
        """
        state, grid, incumbent = self._state, self._grid, self._state.incumbent
        if size < 2 or incumbent == grid.start:
            return []
        measured = set(state.model.points())

        def is_judged(point: Point) -> bool:
            return point in measured or state.excluded(point)

        found = [p for p in grid.neighbours(incumbent) if not is_judged(p)]
        if gaps and not found:
            found = grid.gaps(incumbent, is_judged)
        return sorted(found, key=state.model.mean, reverse=True)[: size - 1]

    def _promise(self, mean: float, deviation: float) -> float:
        """Return the expected log gain from a few more samples of a candidate.

        `mean` and `deviation` describe its log ratio to the incumbent. The samples would shift the
        mean by less than the deviation, because they are noisy themselves (knowledge gradient).
        """
        noise = math.sqrt(2 / constants.AHEAD) * self._state.model.noise
        moved = deviation**2 / math.hypot(deviation, noise)
        return expected_gain(mean - constants.INDIFFERENCE, moved)
