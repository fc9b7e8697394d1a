# SPDX-License-Identifier: GPL-2.0-or-later
"""The mixed model learns effects and noise from blocks, whatever the host's speed in each."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from fusetune.tuner.model import BlockModel, Point, Posterior, identity_kernel, smooth_kernel


def learnt(noises: tuple[float, ...] = (0.02,), outlier: float = 0.0) -> BlockModel:
    """A model of a grid of 5 and a category, with eight blocks of four points."""
    draw = random.Random(2)
    model = BlockModel([smooth_kernel(5, 2.0), identity_kernel(2)], [], len(noises))
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
    smooth = smooth_kernel(4, 2.0)
    assert [smooth[i][i] for i in range(4)] == [1.0] * 4
    assert smooth[0][1] == smooth[1][0] == pytest.approx(0.784888, abs=1e-6)  # Matern 3/2 at 1/2
    assert list(smooth[0]) == sorted(smooth[0], reverse=True)
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


def test_each_output_has_a_noise_of_its_own() -> None:
    model = learnt((0.01, 0.1))
    assert model.output_noise(0) < 0.5 * model.output_noise(1)
    assert 0.05 < model.output_noise(1) < 0.2


def test_before_anything_is_learnt_all_outputs_have_the_first_guess() -> None:
    model = BlockModel([smooth_kernel(5, 2.0)], [], 2)
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
    """Each leaves the means, and takes less from the variance than the one before it."""
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
