# SPDX-License-Identifier: GPL-2.0-or-later
"""The mixed model of a run: settings with a covariance, blocks with separate means.

numpy would be shorter and faster, but it needs more disk space than the package's dependencies may
have (tests/packaging/test_debian.py, ``_MOST_BROUGHT``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import add, mul
from statistics import fmean, median

from fusetune.bench.intervals import NORMAL
from fusetune.tuner import constants

Point = tuple[int, ...]  # one index into its grid for each dimension


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the inner product over the length of the shorter one."""
    return float(sum(map(mul, a, b)))


def expected_gain(mean: float, deviation: float) -> float:
    """Return E[max(0, X)] of a normal X: the expected gain of trying X over staying at 0."""
    if deviation <= 0:
        return max(0.0, mean)
    z = mean / deviation
    return mean * NORMAL.cdf(z) + deviation * NORMAL.pdf(z)


def ordered_kernel(size: int, reach: float) -> list[list[float]]:
    """Return the correlation of a grid of `size` ordered values, `reach` in steps.

    It is part Matern 3/2, for effects that change smoothly, and part exponential, for knees and
    cliffs between two values.
    """
    row = []
    for step in range(size):
        scaled = math.sqrt(3) * step / reach
        smooth = (1 + scaled) * math.exp(-scaled)
        abrupt = math.exp(-step / reach)
        row.append(smooth + constants.ABRUPT * (abrupt - smooth))
    return [[row[abs(i - j)] for j in range(size)] for i in range(size)]


def identity_kernel(size: int) -> list[list[float]]:
    """Return the correlation of `size` independent categories."""
    return [[float(i == j) for j in range(size)] for i in range(size)]


class BlockModel:
    """Mixed model of log figures: block + effect of each dimension + interactions + rest + noise.

    Each block has its own effect, with a variance that exceeds the usual drift of a host, so mostly
    comparisons within a block carry information. As that variance has a bound, a setting is
    expected to perform like the average of all samples until more is known. The effect of a
    dimension is a smooth random function of its grid (categories: independent levels), that of two
    interacting dimensions one of both grids, and the rest belongs to a single setting. The
    variances (how much a dimension matters, how noisy the host is) are learnt from the samples by
    the fixed-point iteration of restricted maximum likelihood, s <- s * (y'V^-1 K V^-1 y) / tr(V^-1
    K) for each part s * K of the covariance V; outliers get a smaller weight. `kernels` are the
    correlations along each dimension, `pairs` the interacting dimensions. A sample has `outputs`
    figures, whose weighted mean is the objective; `weights` sum to 1 and are equal by default.
    """

    # How these values were found is not recorded; docs/search.md has the effect of others.
    BLOCK = 0.1  # variance of a block's effect: factors of about 1.4 either way
    PRIOR = 0.04  # first guess of each dimension's variance: factors of about 1.2
    JOINT = 0.02  # of each interaction's
    REST = 0.0001  # first guess of the variance specific to one setting
    NOISE = 0.0025  # first guess of the variance of one sample: 5 %
    REACH = 2.5  # standard deviations above which a sample loses weight
    ALIKE = 2.0  # weight of a sample's distance from the others of its point; see `_weigh`
    WEIGHT = 0.1  # weight of the first guesses, in samples
    ROUNDS = 200  # of learning, divided by the number of samples

    def __init__(
        self,
        kernels: Sequence[list[list[float]]],
        pairs: Sequence[tuple[int, int]],
        outputs: int,
        weights: Sequence[float] = (),
    ) -> None:
        self._shares = weights or [1 / outputs] * outputs
        self._kernels = kernels
        self._pairs = pairs
        count = len(kernels) + len(pairs)
        self._guess = [self.PRIOR] * len(kernels) + [self.JOINT] * len(pairs)
        self._guess += [self.REST, self.NOISE]
        self._variance = list(self._guess)
        self._parts: list[list[list[float]]] = [[] for _ in range(count + 1)]
        self._points: list[Point] = []
        self._blocks: list[int] = []
        self._logs: list[list[float]] = [[] for _ in range(outputs)]
        self._weights: list[float] = []
        self._alpha: list[list[float]] = []
        self._root: list[list[float]] = []
        self._scatter: list[float] = []
        self._effects: list[list[float]] = []
        self._joint: list[list[list[float]]] = []
        self._own: dict[Point, float] = {}
        self._fresh = False

    @property
    def noise(self) -> float:
        """Standard deviation of one sample's log (of the objective), as learnt so far."""
        return math.sqrt(self._variance[-1])

    @property
    def samples(self) -> int:
        """Number of evaluations in the model."""
        return len(self._points)

    def count(self, point: Point) -> int:
        """Return how often a point was measured."""
        return self._points.count(point)

    def points(self) -> list[Point]:
        """Return the measured points, each once, in order of their first measurement."""
        return list(dict.fromkeys(self._points))

    def add(self, block: int, point: Point, logs: Sequence[float]) -> None:
        """Add an evaluation: the block it belongs to and one log figure for each output."""
        self._points.append(point)
        self._blocks.append(block)
        self._weights.append(1.0)
        rows = self._correlations(point, Columns(self._points))
        for part, row in zip(self._parts, rows, strict=True):
            part.append(row)
        for output, value in zip(self._logs, logs, strict=True):
            output.append(value)
        self._fresh = False

    def _correlations(self, point: Point, columns: Columns) -> list[list[float]]:
        """Return for each part of the model the correlations of a point with other points."""
        single = [
            list(map(kernel[index].__getitem__, column))
            for kernel, index, column in zip(self._kernels, point, columns.indexes, strict=True)
        ]
        joint = [list(map(mul, single[i], single[j])) for i, j in self._pairs]
        return [*single, *joint, [float(point == other) for other in columns.points]]

    def fit(self) -> None:
        """Refine the variances and solve for the effects."""
        if self._fresh:
            return
        for _ in range(min(max(2, self.ROUNDS // len(self._points)), 10)):
            self._solve()
            self._learn()
        self._solve()
        self._tabulate()
        self._fresh = True

    def _solve(self) -> None:
        """Solve V alpha = y for each output, V being the samples' covariance."""
        scales = self._variance
        rows = []
        for i, block in enumerate(self._blocks):
            row = [self.BLOCK if block == other else 0.0 for other in self._blocks[: i + 1]]
            for scale, part in zip(scales, self._parts, strict=False):
                row = [r + scale * p for r, p in zip(row, part[i], strict=True)]
            row[i] += scales[-1] / self._weights[i]
            rows.append(row)
        self._root = inverse_root(rows)
        columns = [[row[j] for row in self._root[j:]] for j in range(len(rows))]
        self._alpha = []
        for logs in self._logs:
            centre = fmean(logs)
            centred = [y - centre for y in logs]
            half = [dot(row, centred) for row in self._root]
            self._alpha.append([dot(column, half[j:]) for j, column in enumerate(columns)])

    def _learn(self) -> None:
        """Take one step of the iteration for every variance, then reweight the samples."""
        inverse = inverse_from_root(self._root)
        alpha = self._objective()
        for k, part in enumerate(self._parts):
            fitted = trace = 0.0
            for i, row in enumerate(part):
                fitted += alpha[i] * (2 * dot(row, alpha) - row[i] * alpha[i])
                trace += 2 * dot(row, inverse[i]) - row[i] * inverse[i][i]
            self._step(k, fitted, trace)
        fitted = sum(a * a / w for a, w in zip(alpha, self._weights, strict=True))
        trace = sum(inverse[i][i] / w for i, w in enumerate(self._weights))
        noise = self._variance[-1]  # as used in `inverse`
        self._step(len(self._parts), fitted, trace)
        self._weigh([inverse[i][i] for i in range(len(alpha))], noise)

    def _step(self, part: int, fitted: float, trace: float) -> None:
        now, guess = self._variance[part], self._guess[part]
        fitted += self.WEIGHT * guess / now**2
        trace += self.WEIGHT / now
        # At most tenfold per step, so that an outlier not yet downweighted cannot upset the rest.
        self._variance[part] = max(now * min(max(fitted / trace, 0.1), 10.0), 1e-7)

    def _weigh(self, precision: Sequence[float], noise: float) -> None:
        """Weight each sample by its distance from the prediction of all others.

        A sample that the other samples of its point confirm is no outlier, however surprising.
        """
        alpha = self._objective()
        distances = []
        for a, p, weight in zip(alpha, precision, self._weights, strict=True):
            spread = 1 / p - noise / weight + noise
            distances.append(abs(a / p) / math.sqrt(max(spread, 1e-12)))
        usual = min(1.0, 1.4826 * median(distances))  # less if outliers inflate the noise
        alike = (self.ALIKE * distance for distance in self._from_its_likes(alpha, noise))
        distances = list(map(min, distances, alike))
        reach = self.REACH * max(usual, 0.1)
        self._weights = [  # half way (in logs) from the old weight, or the iteration oscillates
            math.sqrt(weight) * min(1.0, reach / max(d, 1e-9))
            for weight, d in zip(self._weights, distances, strict=True)
        ]
        self._scatter = [
            1.4826 * median(abs(a) / math.sqrt(p) for a, p in zip(alpha, precision, strict=True))
            for alpha in self._alpha
        ]

    def _from_its_likes(self, alpha: Sequence[float], noise: float) -> list[float]:
        """Return each sample's distance from the other samples of its point; infinite if alone."""
        speeds: dict[int, float] = {}
        for block, a in zip(self._blocks, alpha, strict=True):
            speeds[block] = speeds.get(block, 0.0) + self.BLOCK * a
        logs = [dot(self._shares, each) for each in zip(*self._logs, strict=True)]
        levels = [log - speeds[block] for log, block in zip(logs, self._blocks, strict=True)]
        likes: dict[Point, list[float]] = {}
        for point, level in zip(self._points, levels, strict=True):
            likes.setdefault(point, []).append(level)
        distances = []
        for point, level in zip(self._points, levels, strict=True):
            others = list(likes[point])
            others.remove(level)
            spread = math.sqrt(noise * (1 + 1 / max(len(others), 1)))
            distances.append(abs(level - median(others)) / spread if others else math.inf)
        return distances

    def _objective(self) -> list[float]:
        return [dot(self._shares, each) for each in zip(*self._alpha, strict=True)]

    def output_noise(self, output: int) -> float:
        """Return the standard deviation of one sample's log figure of one output."""
        return self.noise * max(self._scatter[output], 0.5) if self._scatter else self.noise

    def covariances(self, point: Point, columns: Columns) -> list[float]:
        """Return the prior covariances of a point's effect with those of other points."""
        total = [0.0] * len(columns.points)
        for variance, row in zip(self._variance, self._correlations(point, columns), strict=False):
            total = list(map(add, total, map(variance.__mul__, row)))
        return total

    def means(self, points: Sequence[Point]) -> list[list[float]]:
        """Return for each point the expected log figure of each output, up to one constant."""
        measured = Columns(self._points)
        rows = [self.covariances(point, measured) for point in points]
        return [[dot(row, alpha) for alpha in self._alpha] for row in rows]

    def _tabulate(self) -> None:
        """Compute the expected effect of each value, pair of values, and measured setting."""
        alpha = self._objective()
        self._effects = []
        for k, kernel in enumerate(self._kernels):
            scaled = [self._variance[k] * a for a in alpha]
            self._effects.append([dot(scaled, [row[p[k]] for p in self._points]) for row in kernel])
        self._joint = []
        for (i, j), v in zip(self._pairs, self._variance[len(self._kernels) :], strict=False):
            sums = [[0.0] * len(self._kernels[j]) for _ in self._kernels[i]]
            for a, p in zip(alpha, self._points, strict=True):
                sums[p[i]][p[j]] += v * a
            across = [[dot(row, kernel) for kernel in self._kernels[j]] for row in sums]
            down = list(zip(*across, strict=True))
            self._joint.append([[dot(kernel, c) for c in down] for kernel in self._kernels[i]])
        self._own = {}
        rest = self._variance[-2]
        for a, p in zip(alpha, self._points, strict=True):
            self._own[p] = self._own.get(p, 0.0) + rest * a

    def mean(self, point: Point) -> float:
        """Return the expected log of the objective at a point, up to one constant."""
        single = sum(effect[v] for effect, v in zip(self._effects, point, strict=True))
        tables = zip(self._pairs, self._joint, strict=True)
        joint = sum(table[point[i]][point[j]] for (i, j), table in tables)
        return single + joint + self._own.get(point, 0.0)

    def posterior(self, points: Sequence[Point]) -> Posterior:
        """Return the joint distribution of the objective at the points."""
        measured = Columns(self._points)
        loads = []
        for point in points:
            row = self.covariances(point, measured)
            loads.append([dot(r, row) for r in self._root])
        return Posterior(self, list(points), [self.mean(p) for p in points], loads)


class Posterior:
    """Joint distribution of the objective at some points, given the samples so far."""

    def __init__(
        self,
        model: BlockModel,
        points: list[Point],
        means: list[float],
        loads: list[list[float]],
    ) -> None:
        self._model = model
        self.points = points
        self._columns = Columns(points)
        self._means = means
        self._loads = loads
        self._spreads = [
            model.covariances(p, Columns([p]))[0] - dot(load, load)
            for p, load in zip(points, loads, strict=True)
        ]

    def _covariances(self, i: int) -> list[float]:
        prior = self._model.covariances(self.points[i], self._columns)
        load = self._loads[i]
        return [p - dot(load, other) for p, other in zip(prior, self._loads, strict=True)]

    def contrasts(self, reference: int = 0) -> list[tuple[float, float]]:
        """Return mean and standard deviation of log(point / reference) for each point."""
        spread = self._spreads[reference]
        return [
            (mean - self._means[reference], math.sqrt(max(s + spread - 2 * shared, 0.0)))
            for mean, s, shared in zip(
                self._means, self._spreads, self._covariances(reference), strict=True
            )
        ]

    def suppose(self, i: int) -> None:
        """Assume one more sample of point i with the expected result."""
        scale = math.sqrt(self._spreads[i] + self._model.noise**2)
        for j, shared in enumerate(self._covariances(i)):
            self._loads[j].append(shared / scale)
            self._spreads[j] -= (shared / scale) ** 2


class Columns:
    """Points by dimension, to process many at once."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = points
        self.indexes = list(zip(*points, strict=True))


def inverse_root(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the lower inverse R of the Cholesky factor: R A R' = 1, A given by lower rows."""
    root: list[list[float]] = []
    columns: list[list[float]] = []
    for i, row in enumerate(rows):
        left = [dot(r, row) for r in root]  # the factor's row i
        pivot = math.sqrt(max(row[i] - dot(left, left), 1e-12))
        line = [-dot(left[j:], column) / pivot for j, column in enumerate(columns)] + [1 / pivot]
        root.append(line)
        columns.append([])
        for column, value in zip(columns, line, strict=True):
            column.append(value)
    return root


def inverse_from_root(root: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the lower rows of R'R, the inverse of the matrix that `inverse_root` was given."""
    size = len(root)
    columns = [[root[i][j] for i in range(j, size)] for j in range(size)]
    return [[dot(columns[i], columns[j][i - j :]) for j in range(i + 1)] for i in range(size)]
