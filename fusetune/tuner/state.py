# SPDX-License-Identifier: GPL-2.0-or-later
"""State shared by the stages of a search: model, incumbent, and remaining evaluations."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from statistics import fmean

from fusetune.bench.intervals import NORMAL, Interval, normal_interval, t_quantile
from fusetune.tuner import constants
from fusetune.tuner.costs import UNLIMITED, Costs, Limits
from fusetune.tuner.grid import Grid
from fusetune.tuner.model import BlockModel, Point, dot

#: Yields the next point to measure, and receives its figure for each workload.
Steps = Generator[Point, dict[str, float], None]
#: Points that were measured together, with their figures.
PointBlock = list[tuple[Point, Mapping[str, float]]]


class State:
    """The model of the samples so far, and the budget.

    `weights` are the workloads' shares of the objective, which sum to 1; `remaining` is how many
    evaluations are affordable; `analyses` how many interim analyses the error was spent on;
    `last_error` that of an analysis at the end of the budget, until it is spent;
    `rejected` the points that failed the proof; `refusals` those refused for a reason that the
    figures do not show. `short`: whether the last stage ended for lack of budget; `screened`:
    whether the measurement of distant points has ended; `stepwise`: see `search.Search`. `costs` is
    the cost of the points, `costly` why a point was refused in comparison with another one because
    of its cost. `others_need`: the evaluations that exploration leaves for other things than the
    proof of a point.
    """

    def __init__(
        self,
        grid: Grid,
        workloads: Sequence[str],
        seed: int,
        weights: Sequence[float] = (),
        limits: Limits = UNLIMITED,
        *,
        stepwise: bool = False,
    ) -> None:
        self.grid = grid
        self.workloads = tuple(workloads)
        weights = weights or [1.0] * len(self.workloads)
        self.weights = tuple(weight / sum(weights) for weight in weights)
        self.random = random.Random(seed)  # noqa: S311 (an order of measurement, not a secret)
        self.model = self._new_model()
        self.stepwise = stepwise
        self.costs = Costs(grid.start, limits)
        self.evaluations = 0
        self.remaining = 0
        self.short = False
        self.analyses = 0
        self.last_error = constants.LAST_ERROR
        self.incumbent = grid.start
        self.rejected: set[Point] = set()
        self.refusals: list[Point] = []
        self.costly: dict[tuple[Point, Point], str] = {}
        self.screened = False
        self.most_explored = constants.MOST_EXPLORED
        #: The samples of this search only: number of the block, point and figures.
        self.samples: list[tuple[int, Point, dict[str, float]]] = []
        self.others_need: Callable[[Point], int] = lambda point: 0
        self._blocks = 0

    def measure_block(self, points: Sequence[Point]) -> Steps:
        """Measure each point once, in random order."""
        order = list(dict.fromkeys(points))
        self.random.shuffle(order)
        yield from self.measure_in_order(order)

    def measure_in_order(
        self, points: Sequence[Point]
    ) -> Generator[Point, dict[str, float], dict[Point, dict[str, float]]]:
        """Measure the points as a separate block of the model; return their figures."""
        self._blocks += 1
        measured: dict[Point, dict[str, float]] = {}
        for point in points:
            figures = measured[point] = yield point
            self.samples.append((self._blocks, point, figures))
            self._model_takes(self._blocks, point, figures)
        return measured

    def _model_takes(self, block: int, point: Point, figures: Mapping[str, float]) -> None:
        logs = [math.log(figures[workload]) for workload in self.workloads]
        self.model.add(block, point, logs)

    def assume(self, blocks: Sequence[PointBlock]) -> None:
        """Add blocks of an earlier run to the model."""
        for block in blocks:
            self._blocks += 1
            for point, figures in block:
                self._model_takes(self._blocks, point, figures)

    def drop_assumed(self) -> None:
        """Remove from the model everything that this run has not measured itself."""
        self.model = self._new_model()
        for sample in self.samples:
            self._model_takes(*sample)

    def _new_model(self) -> BlockModel:
        return BlockModel(self.grid.kernels(), self.grid.pairs, len(self.workloads), self.weights)

    def excluded(self, point: Point) -> bool:
        """Return whether a point was rejected, or is as far from the start as a refused one.

        That is, in each value that the refused one changes, in the same direction.
        """
        return point in self.rejected or self.refused(point)

    def refused(self, point: Point) -> bool:
        """Return whether a point is at least as far from the start as a refused one."""
        start = self.grid.start
        return any(
            all(
                (mine >= theirs) if theirs > origin else (mine <= theirs)
                for mine, theirs, origin in zip(point, refusal, start, strict=True)
                if theirs != origin
            )
            for refusal in self.refusals
        )

    def keeps_limits(self, point: Point, *, proven: bool = False) -> bool:
        """Return whether a point keeps the limits on costs; if not, refuse it.

        `proven`: whether it would be chosen, so that its cost must be known.
        """
        why = self.costs.over_limit(point, proven=proven)
        if why:
            self.costly[point, self.grid.start] = why
            if not self.refused(point):
                self.refusals.append(point)
        return not why

    def too_dear(self, point: Point, other: Point, gain: Interval) -> bool:
        """Return whether a gain over another point is not worth its cost, and then reject it."""
        why = self.costs.why_too_dear(point, other, gain)
        if why:
            self.rejected.add(point)
            self.costly[point, other] = why
        return bool(why)

    def contrast(self, point: Point, reference: Point) -> tuple[float, float]:
        """Return the model's mean and standard deviation of the log ratio of two points."""
        return self.model.posterior([reference, point]).contrasts()[1]

    def certain_gain(self, point: Point) -> float:
        """Return a point's log gain over the start, less CAUTION standard deviations."""
        gain, deviation = self.contrast(point, self.grid.start)
        return gain - constants.CAUTION * deviation

    def apparent_gain(self, point: Point, reference: Point) -> float:
        """Return the mean log ratio of two points in the blocks that have both.

        The model, which takes a single extreme figure for an outlier, is asked only without such a
        block.
        """
        blocks = map(dict, self.blocks())
        both = [
            self.log_ratio(block[point], block[reference])
            for block in blocks
            if {point, reference} <= block.keys()
        ]
        return fmean(both) if both else self.contrast(point, reference)[0]

    def log_ratio(self, after: Mapping[str, float], before: Mapping[str, float]) -> float:
        """Return the log ratio of the objective in two samples."""
        return dot(self.weights, [math.log(after[w] / before[w]) for w in self.workloads])

    def blocks(self) -> list[PointBlock]:
        """Return the samples of this search by block, in order."""
        found: dict[int, PointBlock] = {}
        for block, point, figures in self.samples:
            found.setdefault(block, []).append((point, figures))
        return list(found.values())

    def ratio(self, point: Point, reference: Point) -> Interval:
        """Return the model's ratio of two points, with its 95 % interval."""
        return normal_interval(*self.contrast(point, reference))

    def promising(self, point: Point) -> bool:
        """Return whether a point seems clearly enough better than the start for the proof."""
        if point == self.grid.start:
            return False
        mean, deviation = self.contrast(point, self.grid.start)
        certainty = NORMAL.cdf(mean / max(deviation, 1e-9))
        return mean >= constants.LEAST_GAIN and certainty >= constants.EVIDENCE

    def bearable(self, point: Point) -> bool:
        """Return whether no workload is expected to suffer under a setting."""
        if len(self.workloads) == 1:
            return True
        _, deviation = self.contrast(point, self.grid.start)
        after, before = self.model.means([point, self.grid.start])
        leeway = deviation * math.sqrt(len(self.workloads))
        return all(a - b > -leeway for a, b in zip(after, before, strict=True))

    def contestants(self, point: Point) -> list[Point]:
        """Return what a proof compares: the start, the point, and stock where it may be as good."""
        points = list(dict.fromkeys([self.grid.start, point]))
        stock = self.grid.stock
        if stock in points or self.refused(stock):
            return points
        if len(points) > 1 and self.model.samples:
            mean, deviation = self.contrast(stock, point)
            if mean + 3 * deviation < -constants.INDIFFERENCE:
                return points
        return [*points, stock]

    def affordable(self, wanted: int) -> int:
        """Return how many of the wanted evaluations exploration may use: 0 or at least 2.

        The others are reserved for the proof and `others_need`.
        """
        left = self.remaining - self.others_need(self.incumbent)
        total = self.evaluations + left
        contestants = max(2, len(self.contestants(self.incumbent)))
        fewest = constants.FEWEST_PAIRS * contestants
        reserve = fewest
        if self.model.samples and self.promising(self.incumbent):
            # As many as its second analysis needs, should chance spoil the first.
            pairs = math.ceil(constants.ANALYSIS_GROWTH * self.pairs_needed(self.incumbent))
            most = round(constants.MOST_RESERVED * total)
            reserve = max(fewest, min(contestants * pairs, most))
        spare = min(wanted, left - reserve)
        return spare if spare >= 2 else 0

    def pairs_needed(self, point: Point) -> int:
        """Return the number of pairs that almost certainly prove a point's gain."""
        if not self.model.samples or point == self.grid.start:
            return constants.FEWEST_PAIRS
        gain, _ = self.contrast(point, self.grid.start)
        return self.pairs_for(gain, constants.POWER, self.next_error())

    def next_error(self, *, last: bool = False) -> float:
        """Return the error that the next analysis may use; `last`: if it ends the budget."""
        share = error_of_analysis(self.analyses + 1)
        return max(share, self.last_error) if last else share

    def pairs_for(self, gain: float, spare: float, error: float) -> int:
        """Return how many pairs prove a log gain with `spare` standard errors left over.

        `error`: the error that the analysis of the pairs may use.
        """
        signal = max(gain, constants.LEAST_GAIN) / (math.sqrt(2) * self.model.noise)
        for pairs in range(constants.FEWEST_PAIRS, constants.MOST_PAIRS):
            if t_quantile(error, pairs - 1) + spare <= signal * math.sqrt(pairs):
                return pairs
        return constants.MOST_PAIRS


def error_of_analysis(number: int) -> float:
    """Return the error that an interim analysis may use, 1 for the first; their sum is ERROR."""
    return constants.ERROR * (1 / (number * (number + 1)))
