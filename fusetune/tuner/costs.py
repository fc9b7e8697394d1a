# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of settings: CPU time per unit of work and the server's memory, with limits on both.

The CPU times of two settings are compared by the geometric means of their samples. Most settings
have few samples, so the scatter is estimated from all settings together, without hiccups of the
host. Drift of the host widens the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from fusetune.bench.intervals import HICCUP, Interval, t_quantile
from fusetune.bench.usage import Usage
from fusetune.bench.workloads import Workload
from fusetune.errors import FusetuneError
from fusetune.tuner import constants
from fusetune.tuner.model import Point

# Decisions, not measured optima: a gain of less than LITTLE is not worth DEAR times the CPU time,
# and smaller differences of CPU time count as equal.
LITTLE, DEAR = 1.1, 2.0
# Standard deviation divided by the median absolute deviation, for a normal distribution.
_DEVIATIONS = 1.4826
# Minimum standard deviation, because short CPU times are only a few clock ticks.
_LEAST_NOISE = 0.05
# Probability that a ratio of CPU times is outside its interval.
_ERROR = 0.05
_NOT_KNOWN = "its cost is unknown"


@dataclass(frozen=True)
class Limits:
    """The maximum cost of a choice; None: no limit.

    ``cpu_ratio``: CPU seconds per unit of work, divided by those at the start.
    ``memory_bytes``: the server's peak memory.
    """

    cpu_ratio: float | None = None
    memory_bytes: int | None = None

    def check(self, cost: Cost) -> None:
        """Raise FusetuneError if a limit is set on a cost that cannot be measured here."""
        for option, limit, known in (
            ("--max-cpu-ratio", self.cpu_ratio, cost.cpu_seconds),
            ("--max-memory", self.memory_bytes, cost.memory_bytes),
        ):
            if limit is not None and known is None:
                raise FusetuneError(
                    f"{option} cannot be enforced, because the processes that serve this mount "
                    "cannot be measured; run fusetune as root, or leave the option out"
                )


@dataclass(frozen=True)
class Cost:
    """The cost of an evaluation; None if unknown.

    ``cpu_seconds``: of client and server per unit of work, the weighted geometric mean over the
    workloads. ``memory_bytes``: the server's peak memory.
    """

    cpu_seconds: float | None = None
    memory_bytes: int | None = None

    @classmethod
    def of(cls, usage: Mapping[str, Usage], workloads: Sequence[Workload]) -> Cost:
        """Return the cost of an evaluation of ``workloads`` from their ``usage`` by name."""
        logs = [math.log(s) for w in workloads if (s := usage[w.name].cpu_seconds) is not None]
        peaks = [p for w in workloads if (p := usage[w.name].memory_bytes) is not None]
        known = len(logs) == len(workloads)
        return cls(
            math.exp(fmean(logs, [w.weight for w in workloads])) if known else None,
            max(peaks) if len(peaks) == len(workloads) else None,
        )


UNLIMITED, UNKNOWN = Limits(), Cost()


class Costs:
    """The costs of the points that a search has measured; ``start``: its first point."""

    def __init__(self, start: Point, limits: Limits) -> None:
        self._start, self._limits = start, limits
        self._logs: dict[Point, list[float]] = {}
        self._peaks: dict[Point, int] = {}

    def add(self, point: Point, cost: Cost) -> None:
        """Add an evaluation."""
        if cost.cpu_seconds is not None:
            self._logs.setdefault(point, []).append(math.log(cost.cpu_seconds))
        if cost.memory_bytes is not None:
            self._peaks[point] = max(cost.memory_bytes, self._peaks.get(point, 0))

    def ratio(self, point: Point, other: Point) -> Interval | None:
        """Return a point's CPU time divided by another's, None until there are enough samples."""
        kept = self._without_hiccups()
        ours, theirs = kept.get(point), kept.get(other)
        freedom = sum(len(logs) - 1 for logs in kept.values())
        if not ours or not theirs or freedom < constants.FEWEST_PAIRS - 1:
            return None
        squares = sum((log - fmean(logs)) ** 2 for logs in kept.values() for log in logs)
        error = math.sqrt(squares / freedom * (1 / len(ours) + 1 / len(theirs)))
        mean, half = fmean(ours) - fmean(theirs), t_quantile(_ERROR, freedom) * error
        return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))

    def _without_hiccups(self) -> dict[Point, list[float]]:
        """Return the samples near the median of their point, relative to the scatter of all."""
        middles = {point: median(logs) for point, logs in self._logs.items()}
        several = {point: logs for point, logs in self._logs.items() if len(logs) > 1}
        away = [abs(log - middles[point]) for point, logs in several.items() for log in logs]
        noise = max(_LEAST_NOISE, _DEVIATIONS * median(away)) if away else math.inf
        near = {
            point: [log for log in logs if abs(log - middles[point]) <= HICCUP * noise]
            for point, logs in self._logs.items()
        }
        return {point: logs for point, logs in near.items() if logs}

    def likely_ratio(self, point: Point, other: Point) -> Interval | None:
        """Return `ratio`, or the ratio of other measured points that differ only in the same value.

        Of several such pairs, the one with the most samples is used.
        """
        places = [i for i, (one, two) in enumerate(zip(point, other, strict=True)) if one != two]
        if len(places) != 1 or (point in self._logs and other in self._logs):
            return self.ratio(point, other)
        (i,) = places
        pairs = [
            (len(self._logs[moved]) + len(logs), one, moved)
            for one, logs in self._logs.items()
            if one[i] == point[i] and (moved := (*one[:i], other[i], *one[i + 1 :])) in self._logs
        ]
        return self.ratio(*max(pairs)[1:]) if pairs else None

    def cheaper(self, point: Point, other: Point) -> bool:
        """Whether a point is proven to need considerably less CPU time than another."""
        ratio = self.likely_ratio(point, other)
        return ratio is not None and ratio.high < 1 and ratio.ratio * LITTLE <= 1

    def cheapest(self, points: Sequence[Point]) -> Point:
        """Return the first of ``points``, unless others are proven to need less CPU time."""
        chosen = points[0]
        for point in points[1:]:
            chosen = point if self.cheaper(point, chosen) else chosen
        return chosen

    def why_too_dear(self, point: Point, other: Point, gain: Interval) -> str | None:
        """Return why a point's gain over another is not worth its CPU time, None if it is."""
        ratio = self.likely_ratio(point, other)
        if ratio is None or ratio.ratio < DEAR or ratio.low <= 1 or gain.ratio >= LITTLE:
            return None
        return f"a gain of {_text(gain)} is not worth {_text(ratio)} times the CPU time"

    def over_limit(self, point: Point, *, proven: bool) -> str | None:
        """Return why a point exceeds a limit, None if it does not or is the start.

        A point whose gain is ``proven`` also exceeds a limit on an unknown cost.
        """
        if point == self._start:
            return None
        most, limit = self._limits.cpu_ratio, self._limits.memory_bytes
        ratio, peak = self.ratio(point, self._start), self._peaks.get(point)
        if most is not None and ratio and ratio.low > most:
            return f"it needs {_text(ratio)} times the CPU time, above --max-cpu-ratio {most:g}"
        if limit is not None and peak is not None and peak > limit:
            return f"the server needs {_mib(peak)} of memory, above --max-memory {_mib(limit)}"
        unknown = (most is not None and not ratio) or (limit is not None and peak is None)
        return _NOT_KNOWN if proven and unknown else None


def _text(interval: Interval) -> str:
    return f"{interval.ratio:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
