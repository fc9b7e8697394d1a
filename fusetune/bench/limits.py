# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mount of a stack limits its speed, measured at the mount of each layer.

The layers are measured in turn, so that drift of the host affects all alike. The time that a layer
needs for a unit of work (1 / figure) includes that of the layers below it. So the difference to the
layer below is what a layer adds; as shares of the time that the top needs, all layers sum to 1. A
layer limits if its share is larger than that of every other layer, by the 95 % interval of the
difference (jackknife over the rounds). The share of several workloads is their mean.

This holds for layers that work one after another, whose times add up, and for layers that work in
parallel, where the slowest determines the speed of all above it: the others then add nothing.

A layer that is more than `HIDING` times as fast as one below it does not wait for that one: it has
a cache, or its files are in another layer. If this holds for all layers below, the whole time is
its own. If it may wait for several layers directly below, the one nearest in speed counts. The
share of the lowest layer includes what it lies on: a disk, a network.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fusetune.bench.intervals import Interval, ratio_interval, t_quantile

if TYPE_CHECKING:
    from fusetune.bench.measure import Measurement

HIDING = 2.0


@dataclass(frozen=True)
class Share:
    """A layer's share of the time that the top needs, 1 for all of it, with its 95 % interval.

    ``over``: the label of the layer below it in the comparison, None for the lowest one;
    ``fall``: the speed of that layer divided by its own. Noise can make a share negative.
    """

    label: str
    share: float
    low: float
    high: float
    over: str | None = None
    fall: Interval | None = None


@dataclass(frozen=True)
class Limits:
    """The layers that count for the speed of the top, from the bottom up, and which one limits.

    ``limiting``: its label, None if no layer stands out. ``hidden``: whether the
    cache of the lowest of them hides what is below it. ``measured``: all figures, also of layers
    that do not count. ``left_out``: why a layer was not measured, by its label.
    """

    shares: Sequence[Share]
    limiting: str | None
    hidden: bool
    measured: Sequence[Measurement]
    left_out: Mapping[str, str] = field(default_factory=dict)


def limits(measured: Sequence[Measurement], below: Mapping[str, Sequence[str]], top: str) -> Limits:
    """Return which of the measured layers of ``top`` limits; ``below`` as in `measure_layers`."""
    times = {one.label: _times(one) for one in measured}
    chain, hidden = _chain(times, below, top)
    rounds = len(measured[0].figures[0].samples)
    whole = _shares(times, chain, range(rounds))
    parts = [_shares(times, chain, [r for r in range(rounds) if r != out]) for out in range(rounds)]
    shares = []
    for position, label in enumerate(chain):
        over = chain[position - 1] if position else None
        half = _half([one[label] for one in parts])
        fall = _fall(times[label], times[over]) if over else None
        shares.append(
            Share(label, whole[label], whole[label] - half, whole[label] + half, over, fall)
        )
    first, *others = sorted(whole, key=lambda label: whole[label], reverse=True)
    surely = all(
        whole[first] - whole[other] > _half([one[first] - one[other] for one in parts])
        for other in others
    )
    return Limits(shares, first if surely else None, hidden, measured)


#: Seconds for a unit of work in each round, for each workload.
Times = Sequence[Sequence[float]]


def _times(one: Measurement) -> Times:
    return [[1 / sample for sample in figure.samples] for figure in one.figures]


def _fall(own: Times, below: Times) -> Interval:
    """Return a layer's time divided by the time of the layer below."""
    logs = [
        statistics.fmean(math.log(a / b) for a, b in zip(mine, its, strict=True))
        for mine, its in zip(zip(*own, strict=True), zip(*below, strict=True), strict=True)
    ]
    return ratio_interval(logs, 0.05, math.inf)


def _chain(
    times: Mapping[str, Times], below: Mapping[str, Sequence[str]], top: str
) -> tuple[list[str], bool]:
    """Return the layers that count, from the bottom up, and whether the lowest hides others."""
    chain, seen = [top], {top}
    while candidates := _measured_below(times, below, chain[0]):
        falls = {
            label: abs(math.log(fall))
            for label in candidates - seen
            if (fall := _fall(times[chain[0]], times[label]).ratio) * HIDING >= 1
        }
        if not falls:
            return chain, bool(candidates - seen)
        nearest = min(sorted(falls), key=lambda label: falls[label])
        chain.insert(0, nearest)
        seen.add(nearest)
    return chain, False


def _measured_below(
    times: Mapping[str, Times], below: Mapping[str, Sequence[str]], label: str
) -> set[str]:
    """Return the measured layers below a layer; those below replace unmeasured ones."""
    found, seen, todo = set(), {label}, list(below.get(label, ()))
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in times:
            found.add(one)
        else:
            todo += below.get(one, ())
    return found


def _shares(
    times: Mapping[str, Times], chain: Sequence[str], rounds: Sequence[int]
) -> dict[str, float]:
    """Return the share of each layer from its mean times in ``rounds``, averaged over workloads.

    Means are geometric, because a hiccup of the host makes one sample many times as long.
    """
    means = {
        label: [
            math.exp(statistics.fmean(math.log(one[number]) for number in rounds))
            for one in times[label]
        ]
        for label in chain
    }
    under = [[0.0] * len(means[chain[0]]), *(means[label] for label in chain[:-1])]
    return {
        label: statistics.fmean(
            (own - its) / top
            for own, its, top in zip(means[label], below, means[chain[-1]], strict=True)
        )
        for label, below in zip(chain, under, strict=True)
    }


def _half(parts: Sequence[float]) -> float:
    """Return half the 95 % interval of an estimate: ``parts`` leave out one round each (jackknife).

    Tukey, Bias and confidence in not quite large samples, 1958.
    """
    count = len(parts)
    error = statistics.stdev(parts) * (count - 1) / math.sqrt(count)
    return t_quantile(0.05, count - 1) * error
