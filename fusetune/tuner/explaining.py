# SPDX-License-Identifier: GPL-2.0-or-later
"""Reasons: why each dimension was changed or not, from the model."""

from __future__ import annotations

from fusetune.bench.intervals import Interval
from fusetune.tuner import constants
from fusetune.tuner.model import Point
from fusetune.tuner.state import State

_UNDECIDED = "not decided within the budget"


def reasons(state: State, chosen: Point) -> tuple[str, ...]:
    """Return a sentence for each dimension: its value and the effect of changing it."""
    return tuple(_reason(state, chosen, i) for i in range(len(state.grid.dimensions)))


def why_not(state: State, chosen: Point, other: Point) -> str:
    """Return what the model shows of a point that was not chosen."""
    if not state.model.samples:
        return "nothing was measured"
    ratio = _estimate(state, other, chosen)
    if ratio.high < 1:
        verdict = "it is slower"
    elif ratio.high < 1 + constants.NO_EFFECT:
        verdict = "no gain found"
    else:
        verdict = _UNDECIDED
    return f"{verdict} ({_text(ratio)})"


def _reason(state: State, chosen: Point, i: int) -> str:
    grid = state.grid
    name, values = grid.dimensions[i].name, grid.values[i]
    before, after = values[grid.start[i]], values[chosen[i]]
    if not state.model.samples:
        return f"{name}: kept at {before}, nothing was measured"
    if before != after:
        ratio = _estimate(state, chosen, grid.moved(chosen, i, grid.start[i]))
        return f"{name}: {before} -> {after}, {_text(ratio)} times the figure with {before}"
    others = [v for v in range(len(values)) if v != chosen[i]]
    if not others:
        return f"{name}: kept at {before}, it has no other value"
    ratios = {v: _estimate(state, grid.moved(chosen, i, v), chosen) for v in others}
    best = max(ratios, key=lambda v: ratios[v].ratio)
    verdict = _verdict(list(ratios.values()), ratios[best])
    if verdict == _UNDECIDED and state.refused(grid.moved(chosen, i, best)):
        verdict = "what may be better was refused"
    return f"{name}: kept at {before}, {verdict} ({values[best]}: {_text(ratios[best])})"


def _verdict(ratios: list[Interval], best: Interval) -> str:
    """Return what the ratios of the other values to the current one show."""
    if best.high < 1:
        return "other values are worse"
    if best.high >= 1 + constants.NO_EFFECT:
        return _UNDECIDED
    if min(ratio.ratio for ratio in ratios) < 1 - constants.NO_EFFECT:
        return "no better value found"
    return "no effect found"


def _estimate(state: State, point: Point, reference: Point) -> Interval:
    """Return the model's ratio of two points, with its 95 % interval."""
    state.model.fit()
    return state.ratio(point, reference)


def _text(interval: Interval) -> str:
    return f"{interval.ratio:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
