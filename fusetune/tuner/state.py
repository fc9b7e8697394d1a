# SPDX-License-Identifier: GPL-2.0-or-later
"""What the stages of a search share: the model, the incumbent, and the evaluations left."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence

from fusetune.bench.intervals import NORMAL, t_quantile
from fusetune.tuner import constants
from fusetune.tuner.grid import Grid
from fusetune.tuner.model import BlockModel, Point

#: Yields the next point to measure, and is sent its figure for each workload.
Steps = Generator[Point, dict[str, float], None]


class State:
    """The samples so far in a model, and the budget.

    `remaining` is how many evaluations are affordable, `analyses` how many interim analyses the
    error was spent on, `rejected` the points that failed the proof.
    """

    def __init__(self, grid: Grid, workloads: Sequence[str], seed: int) -> None:
        self.grid = grid
        self.workloads = tuple(workloads)
        self.random = random.Random(seed)  # noqa: S311 (an order of measurement, not a secret)
        self.model = BlockModel(grid.kernels(), grid.pairs, len(workloads))
        self.evaluations = 0
        self.remaining = 0
        self.analyses = 0
        self.incumbent = grid.start
        self.rejected: set[Point] = set()
        self._blocks = 0

    def measure_block(self, points: Sequence[Point]) -> Steps:
        """Measure each point once, in random order."""
        order = list(dict.fromkeys(points))
        self.random.shuffle(order)
        yield from self.measure_in_order(order)

    def measure_in_order(
        self, points: Sequence[Point]
    ) -> Generator[Point, dict[str, float], dict[Point, dict[str, float]]]:
        """Measure the points as a block of their own for the model; return their figures."""
        self._blocks += 1
        measured: dict[Point, dict[str, float]] = {}
        for point in points:
            figures = measured[point] = yield point
            logs = [math.log(figures[workload]) for workload in self.workloads]
            self.model.add(self._blocks, point, logs)
        return measured

    def contrast(self, point: Point, reference: Point) -> tuple[float, float]:
        """Return mean and standard deviation of the log ratio of two points, by the model."""
        return self.model.posterior([reference, point]).contrasts()[1]

    def promising(self, point: Point) -> bool:
        """Tell whether a point seems better than the start clearly enough for the proof."""
        if point == self.grid.start:
            return False
        mean, deviation = self.contrast(point, self.grid.start)
        certainty = NORMAL.cdf(mean / max(deviation, 1e-9))
        return mean >= constants.LEAST_GAIN and certainty >= constants.EVIDENCE

    def affordable(self, wanted: int) -> int:
        """Return how many of the wanted evaluations exploration can have: 0 or at least 2.

        The others are reserved for the proof.
        """
        total = self.evaluations + self.remaining
        contestants = len({self.grid.start, self.incumbent, self.grid.stock})
        fewest = constants.FEWEST_PAIRS * max(2, contestants)
        reserve = fewest
        if self.model.samples and self.promising(self.incumbent):
            pairs = (
                math.ceil(constants.ANALYSIS_GROWTH * self.pairs_needed()) + constants.SPARE_PAIRS
            )
            most = round(constants.MOST_RESERVED * total)
            reserve = max(fewest, min(contestants * pairs, most))
        spare = min(wanted, self.remaining - reserve)
        return spare if spare >= 2 else 0

    def pairs_needed(self) -> int:
        """Return after how many pairs the incumbent's gain is almost certain to be proven."""
        if not self.model.samples or self.incumbent == self.grid.start:
            return constants.FEWEST_PAIRS
        gain, _ = self.contrast(self.incumbent, self.grid.start)
        return self.pairs_for(gain, constants.POWER)

    def pairs_for(self, gain: float, spare: float) -> int:
        """Return how many pairs prove a log gain with `spare` standard errors left over."""
        signal = max(gain, constants.LEAST_GAIN) / (math.sqrt(2) * self.model.noise)
        error = error_of_analysis(self.analyses + 1)
        for pairs in range(constants.FEWEST_PAIRS, constants.MOST_PAIRS):
            if t_quantile(error, pairs - 1) + spare <= signal * math.sqrt(pairs):
                return pairs
        return constants.MOST_PAIRS


def error_of_analysis(number: int) -> float:
    """Return the error that an interim analysis may use, 1 for the first; their sum is ERROR."""
    return constants.ERROR * (1 / (number * (number + 1)))
