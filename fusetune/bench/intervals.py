# SPDX-License-Identifier: GPL-2.0-or-later
"""Student intervals of ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, median, stdev

NORMAL = NormalDist()
# Standard deviations beyond which a difference is not noise. Tried 3, 6 (docs/search.md): the same
# choices.
HICCUP = 4.0
# Share of the differences above which none is considered a hiccup: they are then the usual scatter.
# Tried 0.2, 0.45 (docs/search.md). With 0.2, two hiccups in nine pairs hide a gain of 1.3.
MOST_HICCUPS = 1 / 3


@dataclass(frozen=True)
class Interval:
    """A ratio (1 = no change) and its 95 % interval, `low` <= `ratio` <= `high`."""

    ratio: float
    low: float
    high: float


def normal_interval(mean: float, deviation: float) -> Interval:
    """Return the ratio whose log is normal with this mean and standard deviation."""
    half = NORMAL.inv_cdf(0.975) * deviation
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def t_probability(t: float, freedom: int) -> float:
    """Return P(|T| <= t) for Student's T, t >= 0 (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2 == 1
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(3 if odd else 2, freedom + 1, 2):
        total += term
        term *= square * (k - 1) / k
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


@lru_cache(maxsize=1024)  # a search asks for some 200, thousands of times
def t_quantile(error: float, freedom: int) -> float:
    """Return t with P(|T| > t) = error: 0 < error < 1, freedom >= 1; else ValueError."""
    if not 0 < error < 1 or freedom < 1:
        raise ValueError(f"no t quantile for error {error} and {freedom} degrees of freedom")
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < 1 - error:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if t_probability(middle, freedom) < 1 - error:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def ratio_interval(differences: Sequence[float], error: float, noise: float) -> Interval:
    """Return the interval of the mean ratio, from the log differences of pairs.

    `error` is the two-sided probability that the interval misses the ratio. Fewer than 2
    differences are a ValueError.
    """
    kept = [differences[i] for i in without_hiccups(differences, noise)]
    if len(kept) < 2:
        raise ValueError("an interval needs at least two pairs")
    mean = fmean(kept)
    half = t_quantile(error, len(kept) - 1) * stdev(kept) / math.sqrt(len(kept))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def without_hiccups(differences: Sequence[float], noise: float) -> list[int]:
    """Return the indexes of the differences without those that only a hiccup of the host explains.

    A hiccup is further from the median than HICCUP times the `noise` (the known standard deviation
    of one difference). If more than MOST_HICCUPS of the differences are, none is considered one.
    """
    middle = median(differences)
    every = range(len(differences))
    kept = [i for i in every if abs(differences[i] - middle) <= HICCUP * noise]
    dropped = len(differences) - len(kept)
    return kept if dropped <= MOST_HICCUPS * len(differences) else list(every)
