# SPDX-License-Identifier: GPL-2.0-or-later
"""The results of a run of ``auto``: the effect of each knob's values, and the proof."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from fusetune.bench.intervals import Interval
from fusetune.knobs import LIVE_BY_NAME


@dataclass(frozen=True)
class CurvePoint:
    """A value of a knob, its speed relative to the initial value, and how often it was set.

    The interval of the initial value itself is 1 [1, 1].
    """

    value: int
    ratio: Interval
    samples: int


@dataclass(frozen=True)
class Curve:
    """The effect of a knob's values with the other knobs as chosen; smallest value first.

    ``ordered``: whether neighbouring values perform similarly, so that a line may connect them.
    """

    knob: str
    ordered: bool
    start: int
    chosen: int
    points: tuple[CurvePoint, ...]

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """Return the curve of a file. ValueError, TypeError, KeyError or UsageError if damaged."""
        points = tuple(
            CurvePoint(one["value"], Interval(**one["ratio"]), one["samples"])
            for one in fields["points"]
        )
        curve = cls(**{**fields, "points": points})
        knob = LIVE_BY_NAME[curve.knob]
        for value in (curve.start, curve.chosen, *(point.value for point in points)):
            knob.parse(f"{value:d}")
        for point in points:
            _check(point.ratio.low, point.ratio.ratio, point.ratio.high)
            if type(point.samples) is not int or point.samples < 1:
                raise ValueError("the samples of a value must be counted")
        if len(points) < 2 or type(curve.ordered) is not bool:
            raise ValueError("a curve has two or more points")
        return curve


@dataclass(frozen=True)
class BeforeAfter:
    """A workload's figures with the initial and with the chosen values.

    They are geometric means in the workload's unit; ``ratio`` is after / before.
    """

    workload: str
    before: float
    after: float
    ratio: Interval

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """Return the figures of a file. ValueError, TypeError or KeyError if damaged."""
        found = cls(**{**fields, "ratio": Interval(**fields["ratio"])})
        _check(found.before, found.after, found.ratio.low, found.ratio.ratio, found.ratio.high)
        return found


def _check(*numbers: object) -> None:
    """Raise ValueError unless they are numbers above 0."""
    if not all(isinstance(number, float) and 0 < number < math.inf for number in numbers):
        raise ValueError("a ratio or figure must be a number above 0")
