# SPDX-License-Identifier: GPL-2.0-or-later
"""A search's state, and simulated figures for its measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusetune.tuner.grid import Grid, Setting
from fusetune.tuner.model import Point
from fusetune.tuner.space import Dimension
from fusetune.tuner.state import State, Steps

Figure = Callable[[Setting], dict[str, float]]

RATIO = Dimension("max_ratio", (1, 2, 5, 10, 20, 40, 70, 100), 1)
STRICT = Dimension("strict_limit", (1, 0), 1, ordered=False, interacts=("max_ratio",))
#: Places of max_ratio: stock, and an incumbent.
STOCK, POINT = (0,), (5,)


def state(
    *dimensions: Dimension,
    start: Setting | None = None,
    workloads: tuple[str, ...] = ("read",),
    seed: int = 0,
    stepwise: bool = False,
) -> State:
    """A search's state before its first sample."""
    values = {d.name: d.stock for d in dimensions}
    made = State(Grid(dimensions, start or values), workloads, seed, stepwise=stepwise)
    made.remaining = 100
    return made


def measured(steps: Steps, of: State, figure: Figure) -> list[Point]:
    """Run steps until they end, with these figures; return the requested points."""
    asked: list[Point] = []
    try:
        point = next(steps)
        while True:
            asked.append(point)
            of.evaluations += 1
            of.remaining -= 1
            point = steps.send(figure(of.grid.setting(point)))
    except StopIteration:
        return asked


def modelled(of: State, figure: Figure, points: Sequence[Point], count: int = 3) -> State:
    """Give the model this many blocks of the points, and fit it."""
    for _ in range(count):
        measured(of.measure_block(points), of, figure)
    of.model.fit()
    return of
