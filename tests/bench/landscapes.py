# SPDX-License-Identifier: GPL-2.0-or-later
"""Simulated mounts and hosts to judge a search by: known optimum, known noise, known drift.

A landscape has the true value of a setting; a host returns what fio would print on a machine whose
speed drifts and whose samples scatter. Both are functions of a seed alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from fusetune.tuner.grid import Setting
from fusetune.tuner.space import Dimension

READ_AHEAD = Dimension(
    "read_ahead_kb", (0, *(32 << i for i in range(11))), 128, interacts=("max_background",)
)
MAX_BACKGROUND = Dimension("max_background", (12, 16, 24, 32, 48, 64, 96, 128, 256), 12)
MAX_RATIO = Dimension("max_ratio", (1, 2, 5, 10, 20, 40, 70, 100), 1, interacts=("strict_limit",))
STRICT_LIMIT = Dimension("strict_limit", (1, 0), 1, ordered=False)
MAX_PAGES = Dimension("max_pages", (32, 64, 128, 256, 512, 1024), 32)
REAL = (READ_AHEAD, MAX_BACKGROUND, MAX_RATIO, STRICT_LIMIT, MAX_PAGES)

FAMILIES = ("unimodal", "plateau", "cliff", "interacting", "flat")
NOISES = (0.02, 0.05, 0.15)
DRIFTS = ("sine", "walk", "steps")


class Effect(Protocol):
    """The factor by which a part of a setting changes the figure."""

    def __call__(self, setting: Setting) -> float: ...


@dataclass(frozen=True)
class Saturating:
    """Rises with the value and levels off, as if each request costs a fixed extra time."""

    name: str
    half: float  # value at which half of the gain is reached
    gain: float  # of an endless value over 0

    def __call__(self, setting: Setting) -> float:
        value = setting[self.name]
        return 1 + (self.gain - 1) * value / (value + self.half)


@dataclass(frozen=True)
class Hump:
    """Rises to a peak and falls again, as readahead that evicts what it has read."""

    name: str
    peak: float
    width: float  # standard deviation in octaves
    gain: float  # of the peak over values far from it

    def __call__(self, setting: Setting) -> float:
        octaves = math.log2((setting[self.name] + 8) / (self.peak + 8))
        return 1 + (self.gain - 1) * math.exp(-(octaves**2) / (2 * self.width**2))


@dataclass(frozen=True)
class Plateau:
    """One level below the knee and a higher one from it on: the knee is the safest best."""

    name: str
    knee: int
    gain: float

    def __call__(self, setting: Setting) -> float:
        return self.gain if setting[self.name] >= self.knee else 1.0


@dataclass(frozen=True)
class Cliff:
    """Falls to half of the figure past a value."""

    name: str
    edge: int  # the last good value

    def __call__(self, setting: Setting) -> float:
        return 0.5 if setting[self.name] > self.edge else 1.0


@dataclass(frozen=True)
class Level:
    """A category's factor; 1 if none is given."""

    name: str
    factors: Mapping[int, float]

    def __call__(self, setting: Setting) -> float:
        return self.factors.get(setting[self.name], 1.0)


@dataclass(frozen=True)
class Narrowest:
    """The narrower of two pipes limits: requests in flight and the window read ahead."""

    gain: float
    step: float  # octaves of readahead that are worth one octave of max_background

    def __call__(self, setting: Setting) -> float:
        flight = math.log2(setting["max_background"] / 12)
        window = max(0.0, math.log2((setting["read_ahead_kb"] + 1) / 129)) / self.step
        return 1 + (self.gain - 1) * (1 - math.exp(-min(flight, window)))


@dataclass(frozen=True)
class DirtyLimit:
    """max_ratio matters under strict_limit and hardly without it."""

    gain: float
    half: float  # max_ratio at which half of the gain is reached
    unlimited: float  # part of the gain that strict_limit=0 reaches alone

    def __call__(self, setting: Setting) -> float:
        ratio = setting["max_ratio"]
        part = ratio / (ratio + self.half)
        if setting["strict_limit"] == 0:
            part = max(part, self.unlimited)
        return 1 + (self.gain - 1) * part


@dataclass(frozen=True)
class Landscape:
    """The true value of every setting for each workload, apart from the host's speed."""

    family: str
    seed: int
    dimensions: tuple[Dimension, ...]
    start: dict[str, int]
    effects: tuple[Effect, ...]
    workloads: Mapping[str, float]  # name -> how strongly the effects show in it (an exponent)

    def figures(self, setting: Setting) -> dict[str, float]:
        """Return the true figure of each workload under a setting."""
        worth = math.prod(effect(setting) for effect in self.effects)
        return {name: 100 * worth**exponent for name, exponent in self.workloads.items()}

    def worth(self, setting: Setting) -> float:
        """Return the geometric mean of the true figures."""
        return math.exp(sum(map(math.log, self.figures(setting).values())) / len(self.workloads))

    def settings(self) -> list[dict[str, int]]:
        """Return the whole grid."""
        names = [d.name for d in self.dimensions]
        values = (d.values for d in self.dimensions)
        return [dict(zip(names, v, strict=True)) for v in product(*values)]

    def best_setting(self) -> dict[str, int]:
        """Return the best setting; the start if none is better."""
        return max([self.start, *self.settings()], key=self.worth)

    def best(self) -> float:
        """Return the geometric mean of the true figures of the best setting."""
        return self.worth(self.best_setting())


class Host:
    """A machine that measures: its speed drifts by up to 30 %, samples scatter lognormally.

    `noise` is the standard deviation of one sample's log; `outliers` the probability that a sample
    comes out 1.5 to 2.5 times too slow; `drift` one of DRIFTS, or "none".
    """

    def __init__(self, seed: int, noise: float, outliers: float = 0.0, drift: str = "none") -> None:
        self._random = random.Random(f"host {seed}")
        self._noise = noise
        self._outliers = outliers
        self._drift = drift
        self._phase = self._random.uniform(0, 2 * math.pi)
        self._period = self._random.uniform(60, 150)
        self._level = 0.0
        self._evaluations = 0

    def _speed(self) -> float:
        self._evaluations += 1
        if self._drift == "sine":
            self._level = 0.15 * math.sin(
                self._phase + 2 * math.pi * self._evaluations / self._period
            )
        elif self._drift == "walk":
            self._level += self._random.gauss(0, 0.012)
        elif self._drift == "steps" and self._random.random() < 1 / 40:
            self._level = self._random.uniform(-0.15, 0.15)
        self._level = min(max(self._level, -0.15), 0.15)
        return math.exp(self._level)

    def measure(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Return the result of measuring these true figures now."""
        speed = self._speed()
        measured = {}
        for name, figure in figures.items():
            sample = figure * speed * math.exp(self._random.gauss(0, self._noise))
            if self._random.random() < self._outliers:
                sample /= self._random.uniform(1.5, 2.5)
            measured[name] = sample
        return measured


def landscape(family: str, seed: int) -> Landscape:
    """Return the landscape of a family (one of FAMILIES) that a seed stands for."""
    draw = random.Random(f"{family} {seed}")
    needed = (READ_AHEAD, MAX_BACKGROUND) if family == "interacting" else (READ_AHEAD,)
    if family == "interacting" and draw.random() < 0.5:
        needed = (MAX_RATIO, STRICT_LIMIT)
    others = [d for d in REAL if d not in needed]
    extra = draw.randint(2, 5) - len(needed)
    chosen = {d.name for d in (*needed, *draw.sample(others, extra))}
    dimensions = tuple(d for d in REAL if d.name in chosen)
    start = {d.name: d.stock for d in dimensions}
    if draw.random() < 0.25:
        start = {d.name: draw.choice(d.values) for d in dimensions}
    return Landscape(
        family=family,
        seed=seed,
        dimensions=dimensions,
        start=start,
        effects=_effects(family, dimensions, draw),
        workloads=draw.choice([{"read": 1.0}, {"read": 1.0}, {"read": 1.0, "write": 0.6}]),
    )


def _effects(
    family: str, dimensions: tuple[Dimension, ...], draw: random.Random
) -> tuple[Effect, ...]:
    names = [d.name for d in dimensions]
    if family == "flat":
        return ()
    effects: list[Effect] = []
    if family == "interacting":
        if "read_ahead_kb" in names and "max_background" in names:
            effects.append(Narrowest(draw.uniform(1.3, 5), draw.uniform(1, 2)))
        if "max_ratio" in names and "strict_limit" in names:
            effects.append(
                DirtyLimit(draw.uniform(1.5, 5), draw.uniform(2, 20), draw.choice([0.3, 0.6, 0.95]))
            )
    else:
        relevant = draw.sample(names, draw.randint(1, min(3, len(names))))
        effects = [_effect(family, d, draw) for d in dimensions if d.name in relevant]
        if family == "cliff":
            effects += _cliffs([d for d in dimensions if d.ordered], draw)
    return tuple(effects)


def _effect(family: str, dimension: Dimension, draw: random.Random) -> Effect:
    gain = math.exp(draw.uniform(math.log(1.1), math.log(6)))
    if not dimension.ordered:
        return Level(dimension.name, {dimension.values[1]: draw.choice([gain**0.5, 1 / gain])})
    inner = dimension.values[1:-1]
    if family == "plateau":
        return Plateau(dimension.name, draw.choice(inner), gain)
    if family == "unimodal" and draw.random() < 0.5:
        return Hump(dimension.name, draw.choice(inner), draw.uniform(1, 3), gain)
    return Saturating(dimension.name, draw.choice(inner), gain)


def _cliffs(dimensions: list[Dimension], draw: random.Random) -> list[Effect]:
    chosen = draw.sample(dimensions, draw.randint(1, min(2, len(dimensions))))
    return [Cliff(d.name, draw.choice(d.values[len(d.values) // 2 : -1])) for d in chosen]
