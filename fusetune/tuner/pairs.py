# SPDX-License-Identifier: GPL-2.0-or-later
"""The proof of ``auto --live``: pairs of blocks with the values at the start and the new ones."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from fusetune.bench.intervals import Interval, ratio_interval, t_quantile
from fusetune.tuner import constants
from fusetune.tuner.blocks import MUCH_WORSE

#: Gains by workload, as `search.Choice` has them.
Gains = dict[str, tuple[float, float, Interval]]
# A workload's speed over that before below which it counts as worse, if its interval does, too.
# Hundreds of pairs show differences that nobody feels: a faster reader leaves a writer less of the
# server.
_WORSE = 0.95
# The numbers of last pairs that may speak against the new values. After each pair they are asked
# for a great loss; at the end, once, for any.
_LAST, _ERROR_OF_LAST = (4, 8), 0.02
_ERROR = 0.05


class Pairs:
    """What was measured; ``shares``: the weights of the workloads, by name."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = shares
        self._before: list[Mapping[str, float]] = []
        self._after: list[Mapping[str, float]] = []

    def __len__(self) -> int:
        return len(self._before)

    def add(self, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        """Take in a pair, for the workloads that both have a figure of."""
        if before.keys() & after.keys():
            self._before.append(before)
            self._after.append(after)

    def _differences(self, name: str) -> list[float]:
        both = zip(self._before, self._after, strict=True)
        return [math.log(b[name] / a[name]) for a, b in both if name in a and name in b]

    def _share(self, name: str) -> float:
        """Return a workload's weight; that of one that came later is the smallest."""
        return self._shares.get(name, min(self._shares.values()))

    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for each in self._before for name in each))

    def why_lost(self, most: float = MUCH_WORSE) -> str | None:
        """Return what of the last pairs speaks against the new values, None if nothing does.

        ``most``: of the speed before, for a kind to count as lost.
        """
        for name in self._names():
            differences = self._differences(name)
            for count in _LAST:
                if len(differences) < count:
                    continue
                last = ratio_interval(differences[-count:], _ERROR_OF_LAST, math.inf)
                if last.high < 1 and last.ratio < most:
                    return f"{name}: {_text(last)} of the speed before in the last {count} pairs"
        return None

    def gain(self) -> Interval | None:
        """Return the gain and its 95 % interval, None of too few pairs.

        It is the mean over the workloads, by their shares. Its degrees of freedom are those of the
        workload with the fewest pairs.
        """
        every = {name: self._differences(name) for name in self._names()}
        every = {n: d for n, d in every.items() if len(d) >= constants.FEWEST_PAIRS}
        if not every:
            return None
        whole = sum(map(self._share, every))
        shares = {name: self._share(name) / whole for name in every}
        mean = sum(shares[name] * fmean(each) for name, each in every.items())
        squares = ((shares[name] * stdev(each)) ** 2 / len(each) for name, each in every.items())
        half = t_quantile(_ERROR, min(map(len, every.values())) - 1) * math.sqrt(sum(squares))
        return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))

    def per_workload(self) -> Gains:
        """Return before, after (geometric means) and their ratio, by the workload's name."""
        found = {}
        for name in self._names():
            interval = _interval(self._differences(name))
            if interval:
                before, after = (
                    math.exp(fmean(math.log(one[name]) for one in each if name in one))
                    for each in (self._before, self._after)
                )
                found[name] = (before, after, interval)
        return found

    def holds(self) -> bool:
        """Tell whether the gain is proven and worth a change, and no workload 5 % worse."""
        return self.why_not() is None

    def why_not(self) -> str | None:
        """Return why that does not hold, None if it does."""
        gain = self.gain()
        if gain is None:
            return f"{len(self)} pairs prove nothing"
        if gain.low <= 1 or gain.ratio < math.exp(constants.LEAST_GAIN):
            return f"{len(self)} pairs do not prove it: {_text(gain)} of the speed before"
        for name, (_, _, ratio) in self.per_workload().items():
            if ratio.high < 1 and ratio.ratio < _WORSE:
                return f"{name}: {_text(ratio)} of the speed before"
        return self.why_lost(most=_WORSE)


def _interval(differences: Sequence[float]) -> Interval | None:
    if len(differences) < constants.FEWEST_PAIRS:
        return None
    return ratio_interval(differences, _ERROR, math.inf)


def _text(interval: Interval) -> str:
    return f"{interval.ratio:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
