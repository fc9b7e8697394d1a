# SPDX-License-Identifier: GPL-2.0-or-later
"""The effect of the values of a knob, as measured by a run of ``auto``."""

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
            ends = (point.ratio.low, point.ratio.ratio, point.ratio.high)
            if not all(isinstance(end, float) and 0 < end < math.inf for end in ends):
                raise ValueError("a ratio must be a number above 0")
            if type(point.samples) is not int or point.samples < 1:
                raise ValueError("the samples of a value must be counted")
        if len(points) < 2 or type(curve.ordered) is not bool:
            raise ValueError("a curve has two or more points")
        return curve
