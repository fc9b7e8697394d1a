# SPDX-License-Identifier: GPL-2.0-or-later
"""The measurements of a run of ``auto``: a curve for each knob, and figures before and after.

The curves come from the search's own model, which removes the host's drift between blocks. Pure:
no I/O.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from fusetune.bench.intervals import Interval, normal_interval, ratio_interval
from fusetune.desired.curve import BeforeAfter, Curve, CurvePoint
from fusetune.desired.results import Run
from fusetune.tuner.grid import Grid
from fusetune.tuner.space import SEARCHED, Dimension
from fusetune.tuner.state import State
from fusetune.tuner.warm import Block

_ERROR = 0.05
#: Maximum number of settings in a confirming block: start, incumbent and stock.
_CONTESTANTS = 3
#: The figures before and after in one block.
Pair = tuple[Mapping[str, float], Mapping[str, float]]


def curves(run: Run) -> list[Curve]:
    """Return a curve for each knob with several measured values.

    Empty if the run does not record its start, or if its knobs or workloads differ from those of
    its blocks.
    """
    blocks = [block for block in _fitting(run) if len(block) > 1]
    if not blocks:
        return []
    grid = Grid(_dimensions(run, blocks), run.start)
    names = list(run.conditions.units)
    state = State(grid, names, 0, [run.weights.get(name, 1.0) for name in names])
    points = [[(grid.point(setting), figures) for setting, figures in block] for block in blocks]
    state.assume([[(p, f) for p, f in block if p is not None] for block in points])
    state.model.fit()
    counts = Counter(item for block in blocks for setting, _ in block for item in setting.items())
    found = [_curve(run, state, i, counts) for i in range(len(grid.dimensions))]
    return [curve for curve in found if len(curve.points) > 1]


def before_and_after(run: Run) -> list[BeforeAfter]:
    """Return each workload's figures before and after, of a run that does not record its proof.

    They are from the blocks of the start, the chosen setting, and at most one other, among which
    may be some of the exploration. Empty if there are fewer than two, or if nothing was changed.
    """
    pairs = [_proof(run, block) for block in _fitting(run)]
    both = [pair for pair in pairs if pair]
    if len(both) < 2 or run.start == run.chosen:
        return []
    return [_before_after(name, both) for name in run.conditions.units]


def _fitting(run: Run) -> list[Block]:
    """Return the blocks without entries that lack a knob or a workload of the run."""
    if not run.start or run.start.keys() != run.chosen.keys():
        return []
    names = run.conditions.units.keys()
    return [
        [(s, f) for s, f in block if s.keys() == run.start.keys() and f.keys() == names]
        for block in run.blocks
    ]


def _dimensions(run: Run, blocks: Sequence[Block]) -> list[Dimension]:
    """Return the dimensions of a run's search, with the values that it measured."""
    found = []
    for name, start in run.start.items():
        entry = SEARCHED.get(name)
        values = {start, run.chosen[name], *(s[name] for block in blocks for s, _ in block)}
        interacts = entry.interacts if entry else ()
        ordered = entry is None or entry.ordered
        if entry and ordered:  # the distance of grid steps must be as in the search
            values.update(v for v in entry.candidates if min(values) <= v <= max(values))
        found.append(Dimension(name, tuple(sorted(values)), start, ordered, interacts))
    return found


def _curve(run: Run, state: State, i: int, counts: Mapping[tuple[str, int], int]) -> Curve:
    """Return the curve of a dimension through the chosen point, at the values measured."""
    grid = state.grid
    name, values = grid.dimensions[i].name, grid.values[i]
    chosen = grid.point(run.chosen)
    assert chosen is not None  # noqa: S101 - `_dimensions` added it
    start = run.start[name]
    measured = [v for v in sorted(values) if counts.get((name, v))]
    line = [grid.moved(chosen, i, values.index(value)) for value in (start, *measured)]
    contrasts = state.model.posterior(line).contrasts()[1:]
    points = tuple(
        CurvePoint(
            value,
            Interval(1.0, 1.0, 1.0) if value == start else normal_interval(*contrast),
            counts[name, value],
        )
        for value, contrast in zip(measured, contrasts, strict=True)
    )
    return Curve(name, grid.dimensions[i].ordered, start, run.chosen[name], points)


def _proof(run: Run, block: Block) -> Pair | None:
    """Return the figures of start and chosen setting in a confirming block."""
    before = next((figures for setting, figures in block if setting == run.start), None)
    after = next((figures for setting, figures in block if setting == run.chosen), None)
    return (before, after) if before and after and len(block) <= _CONTESTANTS else None


def _before_after(name: str, pairs: Sequence[Pair]) -> BeforeAfter:
    before, after = ([math.log(pair[i][name]) for pair in pairs] for i in (0, 1))
    differences = [b - a for a, b in zip(before, after, strict=True)]
    ratio = ratio_interval(differences, _ERROR, math.inf)
    return BeforeAfter(name, math.exp(fmean(before)), math.exp(fmean(after)), ratio)
