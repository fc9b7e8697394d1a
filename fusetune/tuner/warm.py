# SPDX-License-Identifier: GPL-2.0-or-later
"""Warm start: a search that starts at an earlier run's choice, after checking that it still holds.

The samples of the earlier run go into the model, so that little seems more promising than its
choice, and the proof can begin soon. They never count in the proof, which uses fresh samples only.
Before that, the choice and other settings are measured again. If they differ from the predictions
of the earlier samples by more than chance explains, these are dropped and the search is a cold one.
They are also dropped if the proof fails, unless the earlier choice is already set.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fusetune.tuner import constants
from fusetune.tuner.grid import Setting
from fusetune.tuner.model import Point, dot
from fusetune.tuner.state import PointBlock, State, Steps

# `python3 -m tests.bench.warm_start` judges these on simulated mounts.
SURPRISE = 3.0  # standard deviations from the expectation at which one is measured again
DISAGREEMENT = 2.0  # mean square of these distances that chance does not explain
MISFIT = 0.05  # log ratio by which the model may miss a setting that was measured often
EXPLORED = 10  # additional samples for exploration while the earlier ones hold
KEPT = 80  # samples to save for a later run

#: A block of measurements: each setting with its figures.
Block = Sequence[tuple[Setting, Mapping[str, float]]]


@dataclass(frozen=True)
class Earlier:
    """An earlier run: its choice, and its samples in their blocks."""

    setting: Setting
    blocks: Sequence[Block]


class WarmStart:
    """Starts a search at an earlier run's choice; `holds`: whether its samples are in use."""

    def __init__(self, state: State, earlier: Earlier | None) -> None:
        self._state = state
        self._point = state.grid.point(earlier.setting) if earlier else None
        self.blocks = _known(state, earlier.blocks) if earlier and self._point is not None else []
        self.holds = bool(self.blocks)
        self._checked = False

    def check(self) -> Steps:
        """Measure, once, whether the earlier samples still predict the results."""
        state, point = self._state, self._point
        if self._checked or not self.holds or point is None:
            return
        self._checked = state.screened = True
        state.assume(self.blocks)
        state.incumbent = point
        state.model.fit()
        probes = self._probes(point)
        expected = self._expected([state.grid.start, *probes])
        distances = []
        if size := state.affordable(1 + len(probes)):
            asked = probes[: size - 1]
            found = yield from self._distances(asked, expected)
            far = [p for p in asked if found[p] > SURPRISE]
            if far and state.affordable(1 + len(far)):  # a single deviation may be a hiccup
                again = yield from self._distances(far, expected)
                found |= {p: min(found[p], again[p]) for p in far}
            # A single one that stays far may have been a hiccup back then, so it is ignored.
            distances = [min(found[p], SURPRISE) ** 2 for p in asked]
        if distances and fmean(distances) > DISAGREEMENT:
            self._drop()
        else:
            state.most_explored = state.model.samples + EXPLORED

    def _probes(self, point: Point) -> list[Point]:
        """Return a block of settings to measure again: the earlier choice, then its first ones."""
        grid = self._state.grid
        probes = dict.fromkeys([point, grid.stock, *self._state.model.points()])
        probes.pop(grid.start, None)
        return list(probes)[: constants.BLOCK - 1]

    def _expected(self, points: Sequence[Point]) -> dict[Point, tuple[float, float]]:
        """Return mean and standard deviation of each point's log ratio to the first one."""
        return dict(zip(points, self._state.model.posterior(points).contrasts(), strict=True))

    def _distances(
        self, points: Sequence[Point], expected: Mapping[Point, tuple[float, float]]
    ) -> Generator[Point, dict[str, float], dict[Point, float]]:
        """Measure points in a block with the start.

        Return how far each ratio to the start is from the expectation, in standard deviations.
        """
        state, before = self._state, len(self._state.samples)
        noise = math.hypot(math.sqrt(2) * state.model.noise, MISFIT)
        yield from state.measure_block([state.grid.start, *points])
        missed = {
            point: dot(state.weights, [math.log(figures[name]) for name in state.workloads])
            - expected[point][0]
            for _, point, figures in state.samples[before:]
        }
        usual = missed[state.grid.start]
        return {p: abs(missed[p] - usual) / math.hypot(expected[p][1], noise) for p in points}

    def proof_failed(self) -> None:
        """Continue without the earlier samples if the earlier choice should have been proven."""
        if self._point != self._state.grid.start:
            self._drop()

    def _drop(self) -> None:
        if self.holds:
            self.holds = self._state.screened = False
            self._state.drop_assumed()
            self._state.most_explored = constants.MOST_EXPLORED
            self._state.incumbent = self._state.grid.start


def _known(state: State, blocks: Sequence[Block]) -> list[PointBlock]:
    """Return the blocks as points of the grid, without settings outside it."""
    names, known = set(state.workloads), []
    for block in blocks:
        points = [(state.grid.point(setting), figures) for setting, figures in block]
        known.append([(p, f) for p, f in points if p is not None and set(f) == names])
    return [block for block in known if len(block) > 1]
