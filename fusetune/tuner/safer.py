# SPDX-License-Identifier: GPL-2.0-or-later
"""Safer settings that perform equally: values nearer the start, smaller ones, restored switches.

Less CPU time takes precedence over safety.
"""

from __future__ import annotations

import math

from fusetune.tuner import constants
from fusetune.tuner.costs import LITTLE
from fusetune.tuner.model import Point
from fusetune.tuner.state import State, Steps

# How many times as much one of several searches doubts a change, because wrong ones add up: a
# decision.
_DOUBTS_OF_STEPS = 2


class SaferValues:
    """Replaces a good point by an equal one that is cheaper or safer, according to the model."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._grid = state.grid

    def than(self, best: Point) -> Point:
        """Keep each dimension's start value unless a change has an effect; then use the safest one.

        A change must beat the start's value by INDIFFERENCE plus the uncertainty, or be equally
        fast and proven to need less CPU time; a small gain must not cost much more CPU time. Among
        changes, the smallest values win that together lose no more than INDIFFERENCE, and rather
        certainly no more than MOST_LOSS, or equally fast ones that are proven to need less CPU time
        than these.
        """
        state, grid = self._state, self._grid
        point = self._unswitched(best)
        for i in range(len(point)) if best != grid.stock else ():
            kept = grid.moved(point, i, grid.start[i])
            mean, doubt = self._doubt(point, kept, switch=not grid.dimensions[i].ordered)
            cheaper = mean >= -constants.INDIFFERENCE and state.costs.cheaper(point, kept)
            proven = mean > constants.INDIFFERENCE + doubt
            dear = proven and self._little_and_dear(point, kept)
            if (dear or not (cheaper or proven)) and kept not in state.rejected:
                point = kept
                continue
            point = state.costs.cheapest(self._equals(best, point, i))
        return point

    def _equals(self, best: Point, point: Point, dimension: int) -> list[Point]:
        """Return the point, and it with each value of a dimension that performs like the best."""
        line = self._grid.line(point, dimension)
        contrasts = self._state.model.posterior([best, *line]).contrasts()[1:]
        return [
            move
            for move, (mean, deviation) in zip(line, contrasts, strict=True)
            if move == point
            or (
                mean >= -constants.INDIFFERENCE
                and mean - constants.SURE * deviation >= -constants.MOST_LOSS
                and not self._state.excluded(move)
            )
        ]

    def _doubt(self, point: Point, kept: Point, *, switch: bool) -> tuple[float, float]:
        """Return a point's log gain over a safer one, and how much of it doubt takes away.

        An unmeasured point is not preferred because little is known about it; `walk_back` will
        measure it.
        """
        state = self._state
        mean, deviation = state.contrast(point, kept)
        if not state.model.count(kept):
            deviation = min(deviation, math.sqrt(2) * state.model.noise)
        doubt = constants.SWITCH_DOUBT if switch else constants.DOUBT
        return mean, deviation * doubt * (_DOUBTS_OF_STEPS if state.stepwise else 1)

    def _little_and_dear(self, point: Point, kept: Point) -> bool:
        """Return whether a point certainly gains little over another but costs much more."""
        gain = self._state.ratio(point, kept)
        return gain.high < LITTLE and self._state.too_dear(point, kept, gain)

    def _unswitched(self, point: Point) -> Point:
        """Restore a changed category if a value of a limit performs equally without it."""
        for move in self._limits_instead(point):
            mean, doubt = self._doubt(point, move, switch=True)
            if mean <= constants.INDIFFERENCE + doubt:
                return move
        return point

    def _limits_instead(self, point: Point) -> list[Point]:
        """Return, for each changed category, the best point without it as one limit varies.

        A switch is riskier than any value of a limit.
        """
        state, grid = self._state, self._grid
        limits = [i for i, dimension in enumerate(grid.dimensions) if dimension.ordered]
        instead = []
        for i, dimension in enumerate(grid.dimensions):
            if not dimension.ordered and point[i] != grid.start[i]:
                back = grid.moved(point, i, grid.start[i])
                moves = [back, *(move for limit in limits for move in grid.line(back, limit))]
                allowed = [move for move in moves if not state.excluded(move)]
                instead += [max(allowed, key=state.model.mean)] if allowed else []
        return instead

    def walk_back(self) -> Steps:
        """Measure safer points against the incumbent a few times, and adopt one that is as good.

        Each newly adopted point is measured as often. One that was never measured is not adopted if
        the budget does not allow its measurement.
        """
        state = self._state
        best = state.incumbent
        left, most = constants.WALK_BLOCKS, 4 * constants.WALK_BLOCKS
        while True:
            state.model.fit()
            point = self.than(best)
            if not state.promising(point):
                return
            if not (state.model.count(point) or state.affordable(2)):
                return
            if point != state.incumbent:
                left = constants.WALK_BLOCKS
            state.incumbent = point
            rivals = self._rivals()
            size = state.affordable(1 + len(rivals))
            if not size or not left or not most:
                return
            yield from state.measure_block([point, *rivals[: size - 1]])
            left, most = left - 1, most - 1

    def _rivals(self) -> list[Point]:
        """Return for each changed dimension the smallest value that may be as good.

        Before it the start's value, if even the gain over that one is in doubt.
        """
        state, grid, incumbent = self._state, self._grid, self._state.incumbent
        rivals = list(filter(self._may_be_as_good, self._limits_instead(incumbent)))
        for i, index in enumerate(incumbent):
            if index == grid.start[i]:
                continue
            kept = grid.moved(incumbent, i, grid.start[i])
            if self._may_be_as_good(kept) and not state.excluded(kept):
                rivals.append(kept)
            moves = [grid.moved(incumbent, i, v) for v in range(index)]
            contrasts = state.model.posterior([incumbent, *moves]).contrasts()[1:]
            rivals += [
                move
                for move, (mean, deviation) in zip(moves, contrasts, strict=True)
                if mean + deviation >= -constants.INDIFFERENCE
                and deviation <= constants.WALKABLE
                and move not in state.rejected
            ][:1]
        return list(dict.fromkeys(rivals))

    def _may_be_as_good(self, move: Point) -> bool:
        """Return whether a point may be as good as the incumbent, by two standard deviations."""
        mean, deviation = self._state.contrast(move, self._state.incumbent)
        return mean + 2 * deviation >= -constants.INDIFFERENCE
