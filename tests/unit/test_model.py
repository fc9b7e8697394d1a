# SPDX-License-Identifier: GPL-2.0-or-later
"""The mixed model learns effects and noise from blocks, whatever the host's speed in each."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from operator import mul
from statistics import fmean, median

import pytest

from fusetune.tuner import constants
from fusetune.tuner.model import BlockModel, Point, Posterior, identity_kernel, ordered_kernel


def learnt(noises: tuple[float, ...] = (0.02,), outlier: float = 0.0) -> BlockModel:
    """A model of a grid of 5 and a category, with eight blocks of four points."""
    draw = random.Random(2)
    model = BlockModel([ordered_kernel(5, 2.0), identity_kernel(2)], [], len(noises))
    for block in range(8):
        speed = draw.uniform(-1, 1)  # far more than any effect
        for point, effect in TRUTH.items():
            logs = [speed + effect + draw.gauss(0, noise) for noise in noises]
            model.add(block, point, [log - outlier * (block == 3) for log in logs])
            outlier = -outlier  # of the other sign for the next point
    model.fit()
    return model


TRUTH: dict[Point, float] = {(0, 0): 0.0, (2, 0): 0.3, (4, 0): 0.1, (0, 1): -0.4}


def test_kernels_are_correlations() -> None:
    ordered = ordered_kernel(4, 2.0)
    assert [ordered[i][i] for i in range(4)] == [1.0] * 4
    smooth, abrupt = 0.784888, 0.606531  # Matern 3/2 and exponential, at 1/2
    assert (
        ordered[0][1]
        == ordered[1][0]
        == pytest.approx(smooth + constants.ABRUPT * (abrupt - smooth), abs=1e-6)
    )
    assert list(ordered[0]) == sorted(ordered[0], reverse=True)
    assert identity_kernel(2) == [[1.0, 0.0], [0.0, 1.0]]


def test_effects_are_seen_through_drift_between_blocks() -> None:
    model = learnt()
    contrasts = model.posterior(list(TRUTH)).contrasts()
    for (mean, deviation), effect in zip(contrasts[1:], list(TRUTH.values())[1:], strict=True):
        assert mean == pytest.approx(effect, abs=0.05)
        assert deviation < 0.03
    assert 0.01 < model.noise < 0.04


def test_an_outlier_weighs_less() -> None:
    contrasts = learnt(outlier=0.8).posterior(list(TRUTH)).contrasts()
    for (mean, _), effect in zip(contrasts[1:], list(TRUTH.values())[1:], strict=True):
        assert mean == pytest.approx(effect, abs=0.05)


#: Blocks of a run in which an option with its cache and a limit doubles the speed.
JOINT: list[dict[Point, float]] = [
    {(1, 0, 0): 102, (0, 1, 0): 99, (1, 1, 0): 100, (0, 0, 0): 100, (0, 0, 1): 101, (1, 1, 1): 197},
    {(0, 0, 0): 100, (0, 0, 2): 99},
    {(1, 0, 1): 99, (1, 0, 0): 99, (0, 0, 0): 99, (1, 1, 0): 100, (0, 0, 2): 99, (1, 1, 1): 201},
    {(1, 1, 0): 99, (1, 0, 1): 97, (1, 1, 1): 202, (0, 0, 0): 100, (1, 0, 0): 99},
]


def test_what_several_samples_of_a_point_confirm_is_no_outlier() -> None:
    """However unlikely it is by the samples of other points."""
    kernels = [identity_kernel(2), identity_kernel(2), ordered_kernel(3, 2.0)]
    model = BlockModel(kernels, [(0, 1)], 1)
    for number, block in enumerate(JOINT):
        for point, speed in block.items():
            model.add(number, point, [math.log(speed)])
        model.fit()
    mean, deviation = model.posterior([(0, 0, 0), (1, 1, 1)]).contrasts()[1]
    assert mean == pytest.approx(math.log(2), abs=0.03)
    assert deviation < 0.03


def test_each_output_has_a_noise_of_its_own() -> None:
    model = learnt((0.01, 0.1))
    assert model.output_noise(0) < 0.5 * model.output_noise(1)
    assert 0.05 < model.output_noise(1) < 0.2


def test_before_anything_is_learnt_all_outputs_have_the_first_guess() -> None:
    model = BlockModel([ordered_kernel(5, 2.0)], [], 2)
    assert model.output_noise(0) == model.output_noise(1) == math.sqrt(BlockModel.NOISE)


def test_means_of_outputs_average_to_the_objective() -> None:
    model = learnt((0.02, 0.03))
    points = list(TRUTH)
    first, *others = (sum(means) / 2 for means in model.means(points))
    expected = [model.mean(point) - model.mean(points[0]) for point in points[1:]]
    assert [other - first for other in others] == pytest.approx(expected, abs=1e-9)


def variances(posterior: Posterior) -> list[float]:
    return [deviation**2 for _, deviation in posterior.contrasts()]


def test_supposed_samples_narrow_a_point_and_what_correlates_with_it() -> None:
    """Each leaves the means, and reduces the variance less than the one before it."""
    posterior = learnt().posterior([(0, 0), (3, 1), (4, 1), (3, 0)])
    means = [mean for mean, _ in posterior.contrasts()]
    taken = []
    for _ in range(4):
        before = variances(posterior)
        posterior.suppose(1)
        taken.append([b - a for b, a in zip(before, variances(posterior), strict=True)])
    assert [mean for mean, _ in posterior.contrasts()] == means
    for one, next_one in pairwise(taken):
        assert one[1] > next_one[1] > 0
    assert 0 < taken[0][2] < taken[0][1]
    assert abs(taken[0][0]) < 1e-12


def test_many_supposed_samples_leave_what_is_known_of_the_reference() -> None:
    """A normal mean's variance v becomes v s^2 / (s^2 + n v) after n samples of variance s^2."""
    model = learnt()
    posterior = model.posterior([(0, 0), (3, 1)])
    (reference, shared), (_, point) = (posterior._covariances(i) for i in range(2))
    for _ in range(50):
        posterior.suppose(1)
    scale = model.noise**2 + 50 * point
    expected = (
        reference
        - 50 * shared**2 / scale
        + point * model.noise**2 / scale
        - 2 * shared * model.noise**2 / scale
    )
    assert variances(posterior)[1] == pytest.approx(expected, rel=1e-6)


# Compared with textbook formulas, with every matrix written out


def objective(model: BlockModel) -> list[float]:
    """Return the mean over the outputs of each sample."""
    return [fmean(logs) for logs in zip(*map(centred, model._logs), strict=True)]


def interacting(seed: int = 7) -> BlockModel:
    """A model of two grids that interact and a category, with two outputs and an outlier."""
    draw = random.Random(seed)
    kernels = [ordered_kernel(4, 2.0), ordered_kernel(3, 2.0), identity_kernel(2)]
    model = BlockModel(kernels, [(0, 1)], 2)
    points = [(0, 0, 0), (2, 0, 0), (0, 2, 0), (3, 2, 0), (1, 1, 1), (3, 2, 1)]
    for block in range(4):
        for point in draw.sample(points, 4):
            effect = 0.1 * point[0] * point[1] - 0.2 * point[2] + 0.05 * point[0]
            outlier = 0.5 * (model.samples == 6)
            model.add(block, point, [effect + outlier + draw.gauss(0, s) for s in (0.02, 0.05)])
    model.fit()
    return model


def inverse(matrix: list[list[float]]) -> list[list[float]]:
    """Invert by elimination."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i in range(size):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in set(range(size)) - {i}:
            rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[size:] for row in rows]


def times(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Return their product."""
    return [sum(map(mul, row, vector)) for row in matrix]


def centred(logs: list[float]) -> list[float]:
    """Return the figures without their mean, which the model leaves free."""
    return [log - fmean(logs) for log in logs]


def prior(model: BlockModel, one: Point, other: Point) -> float:
    """Covariance of two points' effects: each dimension's, each interaction's, and the rest."""
    single = [kernel[a][b] for kernel, a, b in zip(model._kernels, one, other, strict=True)]
    parts = [*single, *(single[i] * single[j] for i, j in model._pairs), float(one == other)]
    return sum(v * part for v, part in zip(model._variance[:-1], parts, strict=True))


def covariance(model: BlockModel, block: float = BlockModel.BLOCK) -> list[list[float]]:
    """Covariance of the samples: their points', their blocks' and their own noise."""
    every = range(model.samples)
    return [
        [
            prior(model, model._points[i], model._points[j])
            + block * (model._blocks[i] == model._blocks[j])
            + (i == j) * model.noise**2 / model._weights[i]
            for j in every
        ]
        for i in every
    ]


@pytest.mark.parametrize(("one", "other"), [((3, 2, 0), (0, 0, 0)), ((2, 1, 1), (1, 0, 0))])
def test_the_posterior_is_that_of_the_textbook(one: Point, other: Point) -> None:
    """Kriging: mean c'V^-1(y - mean y), variance prior - c'V^-1 c, of a measured point or not."""
    model = interacting()
    shared = [prior(model, one, p) - prior(model, other, p) for p in model._points]
    weights = times(inverse(covariance(model)), shared)
    expected = [sum(map(mul, weights, centred(logs))) for logs in model._logs]
    mean, deviation = model.posterior([other, one]).contrasts()[1]
    assert mean == pytest.approx(sum(expected) / 2, rel=1e-6)
    assert model.mean(one) - model.mean(other) == pytest.approx(mean, rel=1e-9)
    after, before = model.means([one, other])
    assert [a - b for a, b in zip(after, before, strict=True)] == pytest.approx(expected, rel=1e-6)
    unconditioned = prior(model, one, one) + prior(model, other, other)
    explained = sum(map(mul, weights, shared))
    variance = unconditioned - 2 * prior(model, one, other) - explained
    assert deviation**2 == pytest.approx(variance, rel=1e-6)


@pytest.fixture(scope="module", params=[7, 11])
def learnt_model(request: pytest.FixtureRequest) -> BlockModel:
    """A model that learns nothing more from its samples."""
    model = interacting(request.param)
    for _ in range(8):
        model._fresh = False
        model.fit()
    return model


def test_the_variances_are_the_likeliest(learnt_model: BlockModel) -> None:
    """Restricted likelihood: y'V^-1 K V^-1 y = tr(V^-1 K) for each part K of the covariance V.

    The first guesses count like `WEIGHT` samples of them.
    """
    precision = inverse(covariance(learnt_model))
    alpha = times(precision, objective(learnt_model))
    every = range(learnt_model.samples)
    learnt = learnt_model._variance
    for k, (variance, guess) in enumerate(zip(learnt, learnt_model._guess, strict=True)):
        learnt_model._variance = [float(k == other) for other in range(len(learnt))]
        part = covariance(learnt_model, block=0.0)
        learnt_model._variance = learnt
        fitted = sum(map(mul, alpha, times(part, alpha)))
        trace = sum(precision[i][j] * part[i][j] for i in every for j in every)
        fitted += BlockModel.WEIGHT * guess / variance**2
        assert fitted == pytest.approx(trace + BlockModel.WEIGHT / variance, rel=1e-3)


def test_a_sample_weighs_by_how_well_the_others_predict_it(learnt_model: BlockModel) -> None:
    """Each is left out and predicted from the rest; the outlier is far from what they predict.

    Unless the median of the point's other samples is less than half as far.
    """
    whole, figures = covariance(learnt_model), objective(learnt_model)
    noise = learnt_model.noise**2
    distances = []
    for i, weight in enumerate(learnt_model._weights):
        others = [j for j in range(learnt_model.samples) if j != i]
        rest = inverse([[whole[a][b] for b in others] for a in others])
        weights = times(rest, [whole[i][j] for j in others])
        predicted = sum(map(mul, weights, [figures[j] for j in others]))
        spread = whole[i][i] - sum(map(mul, weights, [whole[i][j] for j in others]))
        distances.append(abs(figures[i] - predicted) / math.sqrt(spread - noise / weight + noise))
    reach = BlockModel.REACH * min(1.0, 1.4826 * median(distances))
    alpha = times(inverse(whole), figures)
    every = range(learnt_model.samples)
    blocks, points = learnt_model._blocks, learnt_model._points
    levels = [
        figures[i] - BlockModel.BLOCK * sum(alpha[j] for j in every if blocks[j] == blocks[i])
        for i in every
    ]
    for i in every:
        likes = [levels[j] for j in every if points[j] == points[i] and j != i]
        if likes:
            spread = math.sqrt(noise * (1 + 1 / len(likes)))
            distances[i] = min(distances[i], 2 * abs(levels[i] - median(likes)) / spread)
    wanted = [min(1.0, reach / distance) ** 2 for distance in distances]
    assert learnt_model._weights == pytest.approx(wanted, rel=1e-3)
    assert learnt_model._weights[6] == min(learnt_model._weights) < 0.9


def test_the_noise_of_an_output_is_that_of_its_own_residuals(learnt_model: BlockModel) -> None:
    precision = inverse(covariance(learnt_model))
    for output, logs in enumerate(learnt_model._logs):
        residuals = [
            abs(a) / math.sqrt(precision[i][i])
            for i, a in enumerate(times(precision, centred(logs)))
        ]
        wanted = learnt_model.noise * 1.4826 * median(residuals)
        assert learnt_model.output_noise(output) == pytest.approx(wanted, rel=1e-3)
