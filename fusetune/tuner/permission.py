# SPDX-License-Identifier: GPL-2.0-or-later
"""Permission: whether a setting may be chosen, for reasons that the figures do not show."""

from __future__ import annotations

from collections.abc import Callable

from fusetune.tuner.grid import Setting
from fusetune.tuner.model import Point
from fusetune.tuner.state import State


class Permission:
    """Asks `permit`, which may be slow, about as few settings as possible.

    What is not permitted becomes one of the state's refusals.
    """

    def __init__(self, state: State, permit: Callable[[Setting], bool]) -> None:
        self._state = state
        self._grid = state.grid
        self._permit = permit
        self._passed: set[Point] = set()

    def part_of(self, end: Point) -> Point:
        """Return the point itself, or else the part of its changes that is permitted.

        One value after the other moves back towards the start, as far as it is not permitted alone,
        until the rest is. If it never is, all move back together.
        """
        start = self._grid.start
        if self._is_permitted(end):
            return end
        moved = [i for i in range(len(end)) if end[i] != start[i]]
        for i in sorted(moved, key=lambda i: -abs(end[i] - start[i])):
            alone = self._grid.moved(start, i, end[i])
            end = self._grid.moved(end, i, self._furthest(alone)[i])
            if self._is_permitted(end):
                break
        return self._furthest(end)

    def _furthest(self, end: Point) -> Point:
        """Return the furthest permitted point on the way from the start to the end."""
        if self._is_permitted(end):
            return end
        start = found = self._grid.start
        least, length = 0, max(abs(e - s) for s, e in zip(start, end, strict=True))
        most = length
        while most - least > 1:
            middle = (least + most) // 2
            steps = [int((e - s) * middle / length) for s, e in zip(start, end, strict=True)]
            point = tuple(s + step for s, step in zip(start, steps, strict=True))
            if self._is_permitted(point):
                least, found = middle, point
            else:
                most = middle
        return found

    def _is_permitted(self, point: Point) -> bool:
        """Ask once about each point, and not about one between the start and a permitted one."""
        if self._state.refused(point):
            return False
        if any(self._grid.is_between(point, passed) for passed in self._passed):
            return True
        if self._permit(self._grid.setting(point)):
            self._passed.add(point)
            return True
        self._state.refusals.append(point)
        return False
