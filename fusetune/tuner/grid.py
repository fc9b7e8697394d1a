# SPDX-License-Identifier: GPL-2.0-or-later
"""The grid of a search: its dimensions, their values, and moves from point to point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product

from fusetune.tuner.model import Point, identity_kernel, ordered_kernel
from fusetune.tuner.space import Dimension

Setting = Mapping[str, int]  # dimension name -> value, every dimension named


class Grid:
    """All combinations of the dimensions' values, as points: one index for each dimension.

    `values` are each dimension's values, the safest first; `start` and `stock` are points; `pairs`
    are the interacting dimensions, by index. Raises ValueError if a dimension or start value is
    missing or impossible.
    """

    def __init__(self, dimensions: Sequence[Dimension], start: Setting) -> None:
        _check(dimensions, start)
        self.dimensions = tuple(dimensions)
        self.values = [_values(d, start[d.name]) for d in dimensions]
        self.start = tuple(v.index(start[d.name]) for d, v in self.with_values())
        self.stock = tuple(v.index(d.stock) for d, v in self.with_values())
        self.pairs = _interacting(dimensions)

    def with_values(self) -> Iterable[tuple[Dimension, tuple[int, ...]]]:
        """Return each dimension with its values."""
        return zip(self.dimensions, self.values, strict=True)

    def kernels(self) -> list[list[list[float]]]:
        """Return for each dimension how similarly its values perform.

        Values within a third of the grid are strongly correlated, categories not at all.
        """
        return [
            ordered_kernel(len(values), max(2.0, len(values) / 3))
            if dimension.ordered
            else identity_kernel(len(values))
            for dimension, values in self.with_values()
        ]

    def setting(self, point: Point) -> dict[str, int]:
        """Return the values of a point, by name."""
        return {d.name: v[i] for (d, v), i in zip(self.with_values(), point, strict=True)}

    def point(self, setting: Setting) -> Point | None:
        """Return the point of a setting, None if its names or values are not in the grid."""
        if set(setting) != {d.name for d in self.dimensions}:
            return None
        if any(setting[d.name] not in values for d, values in self.with_values()):
            return None
        return tuple(values.index(setting[d.name]) for d, values in self.with_values())

    @staticmethod
    def moved(point: Point, dimension: int, index: int) -> Point:
        """Return the point with another value in one dimension."""
        return (*point[:dimension], index, *point[dimension + 1 :])

    def is_between(self, point: Point, end: Point) -> bool:
        """Return whether each value is on the way from that of the start to that of the end.

        A category is on the way only at either end.
        """
        return all(
            value in (s, e) or (d.ordered and min(s, e) < value < max(s, e))
            for d, s, value, e in zip(self.dimensions, self.start, point, end, strict=True)
        )

    def line(self, point: Point, dimension: int) -> list[Point]:
        """Return the point with each value of one dimension."""
        return [self.moved(point, dimension, v) for v in range(len(self.values[dimension]))]

    def box(self, point: Point, dimensions: Sequence[int]) -> Iterable[Point]:
        """Return the point with all values of some dimensions."""
        free = [
            range(len(values)) if i in dimensions else (point[i],)
            for i, values in enumerate(self.values)
        ]
        return product(*free)

    def near(self, centre: Point) -> list[Point]:
        """Return the lines through a point, and coarse joint moves of interacting dimensions."""
        points = [move for i in range(len(self.values)) for move in self.line(centre, i)]
        for i, j in self.pairs:
            steps = product(self._coarse(i, centre[i]), self._coarse(j, centre[j]))
            points += [self.moved(self.moved(centre, i, v), j, w) for v, w in steps]
        return points

    def neighbours(self, point: Point) -> list[Point]:
        """Return the points that differ in one dimension: by a step, or by any other category."""
        found = []
        for i, dimension in enumerate(self.dimensions):
            found += [
                move
                for move in self.line(point, i)
                if move != point and (not dimension.ordered or abs(move[i] - point[i]) == 1)
            ]
        return found

    def gaps(self, point: Point, is_known: Callable[[Point], bool]) -> list[Point]:
        """Return the middles of gaps: adjacent values of which none is known.

        They are those of ordered dimensions that the point changes. A single value is no gap.
        """
        found = []
        for i, dimension in enumerate(self.dimensions):
            if dimension.ordered and point[i] != self.start[i]:
                line = self.line(point, i)
                known = [v for v, move in enumerate(line) if is_known(move)]
                bounds = pairwise([-1, *known, len(line)])
                found += [line[(low + high) // 2] for low, high in bounds if high - low > 2]
        return found

    def _coarse(self, dimension: int, index: int) -> list[int]:
        last = len(self.values[dimension]) - 1
        steps = {index - 1, index + 1, 0, last, round(last / 3), round(2 * last / 3)}
        return sorted(s for s in steps if 0 <= s <= last)

    def points_together(self) -> list[Point]:
        """Return the points to measure first: far from the start in all dimensions together.

        These are the far end, stock, the middle, the far end without the change in one dimension,
        and one limit half way down. Most limits are too low, so the far end is often near the best,
        and each change left out shows what it contributes there, with so few points that a block
        holds them.
        """
        far, middle = self._away(1.0), self._away(0.5)
        points = [far, self.stock, middle, *self._one_moved(far, self.start)]
        return self._unlike_start([*points, *self._half_way_down()])

    def points_alone(self) -> list[Point]:
        """Return the points to measure first if a bad setting would be felt.

        These are stock, the far end of each dimension and of interacting ones, the middle of each,
        every category, and one limit half way down.
        """
        far, middle, start = self._away(1.0), self._away(0.5), self.start
        points = [self.stock, *self._one_moved(start, far)]
        points += [self.moved(self.moved(start, i, far[i]), j, far[j]) for i, j in self.pairs]
        points += self._one_moved(start, middle)
        for i, dimension in enumerate(self.dimensions):
            points += [] if dimension.ordered else self.line(start, i)
        return self._unlike_start([*points, *self._half_way_down()])

    def _one_moved(self, point: Point, target: Sequence[int]) -> list[Point]:
        """Return the points that have the target's value in one dimension, each in another."""
        return [self.moved(point, i, index) for i, index in enumerate(target)]

    def _half_way_down(self) -> list[Point]:
        """Return the start with each limit in turn half way down, as it could be too large."""
        down = [
            index // 2 if dimension.ordered else index
            for dimension, index in zip(self.dimensions, self.start, strict=True)
        ]
        return self._one_moved(self.start, down)

    def _unlike_start(self, points: Iterable[Point]) -> list[Point]:
        return [point for point in dict.fromkeys(points) if point != self.start]

    def _away(self, part: float) -> Point:
        """Return for each dimension the index at that fraction of the way from start to end."""
        target = []
        for start, values in zip(self.start, self.values, strict=True):
            last = len(values) - 1
            if start < last:
                target.append(start + max(1, round(part * (last - start))))
            else:
                target.append(round((1 - part) * last))
        return tuple(target)


def _check(dimensions: Sequence[Dimension], start: Setting) -> None:
    names = [d.name for d in dimensions]
    if len(set(names)) != len(names):
        raise ValueError(f"dimension named twice in {names}")
    if set(start) != set(names):
        raise ValueError(f"start must name {sorted(names)}, not {sorted(start)}")
    for d in dimensions:
        if not d.values or len(set(d.values)) != len(d.values):
            raise ValueError(f"values of {d.name} must be one or more distinct numbers")
        if d.name in d.interacts:
            raise ValueError(f"{d.name} cannot interact with itself")


def _values(dimension: Dimension, start: int) -> tuple[int, ...]:
    """Return the dimension's values, including stock and start."""
    values = list(dimension.values)
    sign = 1 if values == sorted(values) else -1
    for extra in (dimension.stock, start):
        if extra in values:
            continue
        smaller = sum(1 for v in values if sign * v < sign * extra)
        values.insert(smaller if dimension.ordered else 0, extra)
    return tuple(values)


def _interacting(dimensions: Sequence[Dimension]) -> list[tuple[int, int]]:
    place = {d.name: i for i, d in enumerate(dimensions)}
    named = [(place[d.name], place[o]) for d in dimensions for o in d.interacts if o in place]
    return sorted({(min(pair), max(pair)) for pair in named})
