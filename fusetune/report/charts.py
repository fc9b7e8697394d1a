# SPDX-License-Identifier: GPL-2.0-or-later
"""Positions of the marks in a knob's chart. A template draws them as SVG in the page's colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fusetune.report.documents.measured import MeasuredKnob, MeasuredPoint

#: Size of the drawing in its own units: pixels if it is not scaled.
WIDTH, HEIGHT = 320, 150
LEFT, RIGHT, TOP, BOTTOM = 42, 300, 10, 126
# Approximate size of a character, and the minimum distance between labels.
_CHARACTER, _LINE, _SPACE = 7.5, 14.0, 6.0


@dataclass(frozen=True)
class Label:
    """A text, centred at ``at`` along its axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    """The marks of a chart: positions (x, y) from the upper left corner.

    ``line``, ``intervals`` and ``dots``: data of SVG paths; ``chosen``: None if the chosen value
    was not measured; ``one``: y of a ratio of 1.
    """

    line: str
    intervals: str
    dots: str
    chosen: tuple[float, float] | None
    one: float
    across: Sequence[Label]
    up: Sequence[Label]


class Scale:
    """Maps the points of a knob to positions.

    Values of an ordered knob are on a log scale, on which 0 is half the smallest other value;
    those of other knobs are evenly spaced. The linear scale of ratios covers 1 and all intervals.
    """

    def __init__(self, knob: MeasuredKnob) -> None:
        values = [point.value for point in knob.points]
        least = min((value for value in values if value), default=1)
        self._places = {
            value: math.log2(value or least / 2) if knob.ordered else float(number)
            for number, value in enumerate(values)
        }
        self._first, self._last = min(self._places.values()), max(self._places.values())
        self.low = min(1.0, *(point.ci95[0] for point in knob.points))
        self.high = max(1.0, *(point.ci95[1] for point in knob.points))

    def x(self, value: int) -> float:
        """Return the x position of a value."""
        span = self._last - self._first or 1.0
        return round(LEFT + (RIGHT - LEFT) * (self._places[value] - self._first) / span, 1)

    def y(self, ratio: float) -> float:
        """Return the y position of a ratio."""
        span = self.high - self.low or 1.0
        return round(BOTTOM - (BOTTOM - TOP) * (ratio - self.low) / span, 1)


def chart(knob: MeasuredKnob) -> Chart:
    """Return the chart of a knob."""
    scale = Scale(knob)
    places = {point.value: (scale.x(point.value), scale.y(point.ratio)) for point in knob.points}
    return Chart(
        "M" + "L".join(f"{x:g} {y:g}" for x, y in places.values()) if knob.ordered else "",
        "".join(_interval(scale, point) for point in knob.points),
        "".join(f"M{x:g} {y:g}h0" for x, y in places.values()),
        places.get(knob.chosen),
        scale.y(1.0),
        _across(knob, scale),
        _apart(
            [Label(scale.y(ratio), f"{ratio:.2f}") for ratio in (1.0, scale.high, scale.low)],
            lambda label: _LINE,
        ),
    )


def _interval(scale: Scale, point: MeasuredPoint) -> str:
    low, high = point.ci95
    return f"M{scale.x(point.value):g} {scale.y(low):g}V{scale.y(high):g}"


def _across(knob: MeasuredKnob, scale: Scale) -> list[Label]:
    """Return the labels of values: the chosen one, the start, the ends, and others that fit."""
    values = [point.value for point in knob.points]
    first = [value for value in (knob.chosen, knob.start) if value in values]
    wanted = dict.fromkeys([*first, values[0], values[-1], *values])
    labels = [Label(scale.x(value), str(value)) for value in wanted]
    return _apart(labels, lambda label: _CHARACTER * len(label.text) + _SPACE)


def _apart(labels: Iterable[Label], size: Callable[[Label], float]) -> list[Label]:
    """Return the labels that do not overlap an earlier one."""
    kept: list[Label] = []
    for label in labels:
        if all(abs(label.at - one.at) >= (size(label) + size(one)) / 2 for one in kept):
            kept.append(label)
    return kept
