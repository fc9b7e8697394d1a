# SPDX-License-Identifier: GPL-2.0-or-later
"""The mixed model of a run: settings with a covariance, blocks with a mean of their own.

Only ``auto`` imports this module, so other commands do not wait for numpy to load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusetune.bench.intervals import NORMAL

Point = tuple[int, ...]  # one index into its grid for each dimension
Array = NDArray[np.float64]


def expected_gain(mean: float, deviation: float) -> float:
    """Return E[max(0, X)] of a normal X: what trying X promises over staying at 0."""
    if deviation <= 0:
        return max(0.0, mean)
    z = mean / deviation
    return mean * NORMAL.cdf(z) + deviation * NORMAL.pdf(z)


def smooth_kernel(size: int, reach: float) -> Array:
    """Return the Matern 3/2 correlation of a grid of `size` steps, `reach` in steps."""
    steps = np.arange(size)
    scaled = math.sqrt(3) * abs(steps[:, None] - steps) / reach
    kernel: Array = (1 + scaled) * np.exp(-scaled)
    return kernel


def identity_kernel(size: int) -> Array:
    """Return the correlation of `size` categories that tell nothing of each other."""
    return np.identity(size)


class BlockModel:
    """Mixed model of log figures: block + one effect a dimension + interactions + rest + noise.

    Each block has an effect of its own with a variance that leaves it free, so only comparisons
    within a block carry information and the host's drift drops out. The effect of a dimension is
    a smooth random function of its grid (categories: independent levels), that of two interacting
    dimensions one of both grids, the rest belongs to a single setting. The variances (how much a
    dimension matters, how noisy the host is) are learnt from the samples by the fixed-point
    iteration of restricted maximum likelihood, s <- s * (y'V^-1 K V^-1 y) / tr(V^-1 K) for each
    part s * K of the covariance V; outliers get a smaller weight. `kernels` are the correlations
    along each dimension, `pairs` the interacting dimensions, and a sample has `outputs` figures,
    whose mean is the objective.
    """

    # No record says how these values were found; docs/search.md has what others do.
    BLOCK = 4.0  # variance of a block's effect: e^2 either way, as good as free
    PRIOR = 0.04  # first guess of each dimension's variance: factors of about 1.2
    JOINT = 0.02  # of each interaction's
    REST = 0.0001  # first guess of what a setting has of its own
    NOISE = 0.0025  # first guess of the variance of one sample: 5 %
    REACH = 2.5  # standard deviations from which a sample loses weight
    WEIGHT = 0.1  # how many samples' worth the first guesses count
    ROUNDS = 200  # of learning, over the number of samples: few samples are cheap, and new

    def __init__(
        self, kernels: Sequence[Array], pairs: Sequence[tuple[int, int]], outputs: int
    ) -> None:
        self._kernels = kernels
        self._pairs = pairs
        self._guess = np.array(
            [self.PRIOR] * len(kernels) + [self.JOINT] * len(pairs) + [self.REST, self.NOISE]
        )
        self._variance = self._guess.copy()
        self._points: list[Point] = []
        self._blocks: list[int] = []
        self._logs: list[Sequence[float]] = []
        self._weights = np.empty(0)
        self._alpha = np.empty((0, outputs))
        self._root = np.empty((0, 0))
        self._scatter: list[float] = []
        self._effects: list[list[float]] = []
        self._joint: list[list[list[float]]] = []
        self._own: dict[Point, float] = {}
        self._fresh = False

    @property
    def noise(self) -> float:
        """Standard deviation of one sample's log (mean over outputs), as learnt so far."""
        return math.sqrt(self._variance[-1])

    @property
    def samples(self) -> int:
        """Number of evaluations the model has seen."""
        return len(self._points)

    def count(self, point: Point) -> int:
        """Return how often a point was measured."""
        return self._points.count(point)

    def points(self) -> list[Point]:
        """Return the measured points, each once, in order of their first measurement."""
        return list(dict.fromkeys(self._points))

    def add(self, block: int, point: Point, logs: Sequence[float]) -> None:
        """Take in one evaluation: the block it belongs to and one log figure an output."""
        self._points.append(point)
        self._blocks.append(block)
        self._weights = np.append(self._weights, 1.0)
        self._logs.append(logs)
        self._fresh = False

    def _correlations(self, points: Sequence[Point], others: Sequence[Point]) -> Array:
        """Return for each part of the model the correlations of points with other points."""
        rows, columns = np.array(points), np.array(others)
        single = [k[np.ix_(rows[:, i], columns[:, i])] for i, k in enumerate(self._kernels)]
        joint = [single[i] * single[j] for i, j in self._pairs]
        same = (rows[:, None, :] == columns).all(axis=2).astype(float)
        return np.array([*single, *joint, same])

    def fit(self) -> None:
        """Learn the variances further and solve for the effects."""
        if self._fresh:
            return
        parts = self._correlations(self._points, self._points)
        for _ in range(min(max(2, self.ROUNDS // len(self._points)), 10)):
            self._solve(parts)
            self._learn(parts)
        self._solve(parts)
        self._tabulate()
        self._fresh = True

    def _solve(self, parts: Array) -> None:
        """Solve V alpha = y for each output, V being the samples' covariance."""
        blocks = np.array(self._blocks)
        covariance = self.BLOCK * (blocks[:, None] == blocks)
        covariance += np.tensordot(self._variance[:-1], parts, 1)
        covariance += np.diag(self._variance[-1] / self._weights)
        self._root = np.linalg.inv(np.linalg.cholesky(covariance))
        logs = np.array(self._logs)
        self._alpha = self._root.T @ (self._root @ (logs - logs.mean(axis=0)))

    def _learn(self, parts: Array) -> None:
        """Take one step of the iteration for every variance, then weigh the samples anew."""
        inverse = self._root.T @ self._root
        alpha, precision = self._objective(), inverse.diagonal()
        fitted = np.append(parts @ alpha @ alpha, alpha**2 @ (1 / self._weights))
        trace = np.append((parts * inverse).sum(axis=(1, 2)), precision @ (1 / self._weights))
        fitted += self.WEIGHT * self._guess / self._variance**2
        trace += self.WEIGHT / self._variance
        # At most tenfold a step, so that one outlier not yet weighed down cannot upset the rest.
        step = np.clip(fitted / trace, 0.1, 10.0)
        self._variance = np.maximum(self._variance * step, 1e-7)
        self._weigh(precision)

    def _weigh(self, precision: Array) -> None:
        """Weigh each sample by its distance from what all the others predict for it."""
        noise = self._variance[-1]
        spread = 1 / precision - noise / self._weights + noise
        distances = abs(self._objective() / precision) / np.sqrt(np.maximum(spread, 1e-12))
        usual = min(1.0, 1.4826 * np.median(distances))  # less where outliers blow up the noise
        reach = self.REACH * max(usual, 0.1)
        # Half way (in logs) from the old weight, or the iteration swings.
        self._weights = np.sqrt(self._weights) * np.minimum(
            1.0, reach / np.maximum(distances, 1e-9)
        )
        scaled = abs(self._alpha) / np.sqrt(precision)[:, None]
        self._scatter = (1.4826 * np.median(scaled, axis=0)).tolist()

    def _objective(self) -> Array:
        mean: Array = self._alpha.mean(axis=1)
        return mean

    def output_noise(self, output: int) -> float:
        """Return the standard deviation of one sample's log figure of one output."""
        return self.noise * max(self._scatter[output], 0.5) if self._scatter else self.noise

    def _covariances(self, points: Sequence[Point], others: Sequence[Point]) -> Array:
        """Return the prior covariances of points' effects with those of other points."""
        correlations = self._correlations(points, others)
        covariances: Array = np.tensordot(self._variance[:-1], correlations, 1)
        return covariances

    def _fitted_points(self) -> list[Point]:
        """Return the points of the samples that the last fit knew."""
        return self._points[: len(self._root)]

    def means(self, points: Sequence[Point]) -> list[list[float]]:
        """Return for each point the expected log figure of each output, up to one constant."""
        covariances = self._covariances(points, self._fitted_points())
        means: list[list[float]] = (covariances @ self._alpha).tolist()
        return means

    def _tabulate(self) -> None:
        """Work out the expected effect of each value, pair of values, and measured setting."""
        alpha, points = self._objective(), np.array(self._points)
        kernels, single = self._kernels, len(self._kernels)
        self._effects = [
            (variance * (kernel[:, points[:, i]] @ alpha)).tolist()
            for i, (kernel, variance) in enumerate(zip(kernels, self._variance, strict=False))
        ]
        self._joint = [
            (variance * (kernels[i][:, points[:, i]] * alpha) @ kernels[j][points[:, j]]).tolist()
            for (i, j), variance in zip(self._pairs, self._variance[single:], strict=False)
        ]
        self._own = {}
        for own, point in zip((self._variance[-2] * alpha).tolist(), self._points, strict=True):
            self._own[point] = self._own.get(point, 0.0) + own

    def mean(self, point: Point) -> float:
        """Return the expected log of the objective at a point, up to one constant."""
        single = sum(effect[v] for effect, v in zip(self._effects, point, strict=True))
        tables = zip(self._pairs, self._joint, strict=True)
        joint = sum(table[point[i]][point[j]] for (i, j), table in tables)
        return single + joint + self._own.get(point, 0.0)

    def posterior(self, points: Sequence[Point]) -> Posterior:
        """Return the joint distribution of the objective (mean over outputs) at the points."""
        loads = self._covariances(points, self._fitted_points()) @ self._root.T
        covariance = self._covariances(points, points) - loads @ loads.T
        means = np.array([self.mean(point) for point in points])
        return Posterior(list(points), means, covariance, self.noise)


class Posterior:
    """Joint distribution of the objective at some points, given the samples so far."""

    def __init__(self, points: list[Point], means: Array, covariance: Array, noise: float) -> None:
        self.points = points
        self._means = means
        self.covariance = covariance
        self._noise = noise

    def contrasts(self, reference: int = 0) -> list[tuple[float, float]]:
        """Return mean and standard deviation of log(point / reference) for each point."""
        spreads, shared = self.covariance.diagonal(), self.covariance[reference]
        variances = np.maximum(spreads + spreads[reference] - 2 * shared, 0.0)
        means = self._means - self._means[reference]
        return list(zip(means.tolist(), np.sqrt(variances).tolist(), strict=True))

    def suppose(self, i: int) -> None:
        """Narrow the distribution as one more sample of point i would; the means stay."""
        load = self.covariance[i] / math.sqrt(self.covariance[i, i] + self._noise**2)
        self.covariance -= np.outer(load, load)
