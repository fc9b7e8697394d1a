# SPDX-License-Identifier: GPL-2.0-or-later
"""Safer settings that perform as well: values nearer the start, smaller ones, switches put back."""

from __future__ import annotations

from itertools import count

from fusetune.tuner import constants
from fusetune.tuner.model import Point
from fusetune.tuner.state import State, Steps


class SaferValues:
    """Replaces a good point by the safest that the model counts as equal to it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._grid = state.grid

    def than(self, best: Point) -> Point:
        """Keep each dimension's start value unless a change shows, else take the safest value.

        A change must beat the start's value by INDIFFERENCE and the samples' doubt; among changes
        the smallest values win that together cost no more than INDIFFERENCE.
        """
        state, grid = self._state, self._grid
        point = self._unswitched(best)
        for i in range(len(point)) if best != grid.stock else ():
            kept = grid.moved(point, i, grid.start[i])
            mean, deviation = state.contrast(point, kept)
            ordered = grid.dimensions[i].ordered
            doubt = constants.DOUBT if ordered else constants.SWITCH_DOUBT
            if mean <= constants.INDIFFERENCE + doubt * deviation and kept not in state.rejected:
                point = kept
                continue
            moves = [grid.moved(point, i, v) for v in range(point[i])]
            losses = [state.model.mean(best) - state.model.mean(move) for move in moves]
            equals = [
                move
                for move, loss in zip(moves, losses, strict=True)
                if loss <= constants.INDIFFERENCE and move not in state.rejected
            ]
            point = equals[0] if equals else point
        return point

    def _unswitched(self, point: Point) -> Point:
        """Put a changed category back where a value of what it interacts with does as well."""
        for move in self._limits_instead(point):
            mean, deviation = self._state.contrast(point, move)
            if mean <= constants.INDIFFERENCE + constants.SWITCH_DOUBT * deviation:
                return move
        return point

    def _limits_instead(self, point: Point) -> list[Point]:
        """Return for each changed category the best point without it, by what it interacts with.

        A switch is riskier than any value of a limit.
        """
        state, grid = self._state, self._grid
        instead = []
        for category, other in (*grid.pairs, *((j, i) for i, j in grid.pairs)):
            changed = point[category] != grid.start[category]
            if not grid.dimensions[category].ordered and changed:
                back = grid.moved(point, category, grid.start[category])
                allowed = [move for move in grid.line(back, other) if move not in state.rejected]
                instead += [max(allowed, key=state.model.mean)] if allowed else []
        return instead

    def walk_back(self) -> Steps:
        """Measure safer points against the incumbent a few times, and take one that is as good."""
        state = self._state
        best = state.incumbent
        for walked in count():
            state.model.fit()
            point = self.than(best)
            if not state.promising(point):
                return
            state.incumbent = point
            rivals = self._rivals()
            size = state.affordable(1 + len(rivals))
            if walked == constants.WALK_BLOCKS or not size:
                return
            yield from state.measure_block([point, *rivals[: size - 1]])

    def _rivals(self) -> list[Point]:
        """Return for each changed dimension the smallest value that may well be as good."""
        state, grid, incumbent = self._state, self._grid, self._state.incumbent
        rivals = []
        for move in self._limits_instead(incumbent):
            mean, deviation = state.contrast(move, incumbent)
            rivals += [move] if mean + 2 * deviation >= -constants.INDIFFERENCE else []
        for i, index in enumerate(incumbent):
            if index == grid.start[i]:
                continue
            moves = [grid.moved(incumbent, i, v) for v in range(index)]
            contrasts = state.model.posterior([incumbent, *moves]).contrasts()[1:]
            rivals += [
                move
                for move, (mean, deviation) in zip(moves, contrasts, strict=True)
                if mean + deviation >= -constants.INDIFFERENCE
                and deviation <= constants.WALKABLE
                and move not in state.rejected
            ][:1]
        return rivals
