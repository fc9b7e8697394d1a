# SPDX-License-Identifier: GPL-2.0-or-later
"""The proof of ``auto --live``: pairs of blocks with the initial and the new values."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean, stdev

from fusetune.bench.intervals import Interval, ratio_interval, t_quantile
from fusetune.tuner import constants
from fusetune.tuner.blocks import MUCH_WORSE

#: Gains by workload, as in `search.Choice`.
Gains = dict[str, tuple[float, float, Interval]]
# A workload counts as worse if its speed relative to the start is below this, with its interval.
# Hundreds of pairs show differences that nobody notices: a faster reader leaves less of the server
# to a writer.
_WORSE = 0.95
# Numbers of consecutive pairs that may contradict the new values. They are checked for a large
# loss after each pair, and for any loss once at the end.
_LAST = (4, 8)
# How many further pairs must confirm it, and the error of the interval before them. A long proof
# has so many pairs that some contradict any values by chance.
_CONFIRMED = ((0, 0.0001), (4, 0.02))
_ERROR = 0.05
# Last pairs of which one at least must show a kind of traffic that the values were chosen for.
_PRESENT = 3


class Pairs:
    """The measured pairs; ``shares``: the weights of the workloads, by name."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = shares
        self._before: list[Mapping[str, float]] = []
        self._after: list[Mapping[str, float]] = []

    def __len__(self) -> int:
        return len(self._before)

    def add(self, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        """Add a pair, for the workloads with a figure in both."""
        if before.keys() & after.keys():
            self._before.append(before)
            self._after.append(after)

    def _logs(self, name: str) -> list[tuple[float, float]]:
        """Return the logs before and after of the pairs that have both."""
        both = zip(self._before, self._after, strict=True)
        return [(math.log(a[name]), math.log(b[name])) for a, b in both if name in a and name in b]

    def _differences(self, name: str) -> list[float]:
        return [after - before for before, after in self._logs(name)]

    def _share(self, name: str) -> float:
        """Return a workload's weight; one that appeared later gets the smallest."""
        return self._shares.get(name, min(self._shares.values()))

    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for each in self._before for name in each))

    def why_lost(self, most: float = MUCH_WORSE) -> str | None:
        """Return which of the last pairs contradict the new values, None if none do.

        ``most``: ratio to the speed before below which a kind counts as lost.
        """
        for name, (further, error), count in product(self._names(), _CONFIRMED, _LAST):
            differences = self._differences(name)
            known = max(0, len(differences) - further)
            before, latest = differences[:known][-count:], differences[known:]
            if len(before) < count or (latest and fmean(latest) >= math.log(most)):
                continue
            found = ratio_interval(before, error, math.inf)
            if found.high < 1 and found.ratio < most:
                where = f"the last {count} pairs"
                if further:
                    where = f"{count} pairs, and the next {further} confirm it"
                return f"{name}: {_text(found)} times the speed before in {where}"
        return None

    def gain(self) -> Interval | None:
        """Return the gain and its 95 % interval, None if there are too few pairs.

        It is the weighted mean over the workloads. Its degrees of freedom are those of the workload
        with the fewest pairs.
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
                logs = zip(*self._logs(name), strict=True)
                before, after = (math.exp(fmean(each)) for each in logs)
                found[name] = (before, after, interval)
        return found

    def seem_slower(self) -> bool:
        """Return whether the new values seem slower by more than about a standard error.

        True as well if there are too few pairs.
        """
        gain = self.gain()
        if gain is None:
            return True
        doubt = math.log(gain.high / gain.ratio) / 3
        return math.log(gain.ratio) < -constants.INDIFFERENCE - doubt

    def holds(self) -> bool:
        """Return whether the gain is proven and worth a change, and no workload is 5 % worse."""
        return self.why_not() is None

    def why_not(self) -> str | None:
        """Return why `holds` is false, None if it is true."""
        gain = self.gain()
        if gain is None:
            return f"{len(self)} pairs are too few for a proof"
        if gain.low <= 1 or gain.ratio < math.exp(constants.LEAST_GAIN):
            return f"{len(self)} pairs do not prove a gain: {_text(gain)} times the speed before"
        if not any(self._shares.keys() & pair.keys() for pair in self._after[-_PRESENT:]):
            return "the kind of traffic changed"
        for name, (_, _, ratio) in self.per_workload().items():
            if ratio.high < 1 and ratio.ratio < _WORSE:
                return f"{name}: {_text(ratio)} times the speed before"
        return self.why_lost(most=_WORSE)


def _interval(differences: Sequence[float]) -> Interval | None:
    if len(differences) < constants.FEWEST_PAIRS:
        return None
    return ratio_interval(differences, _ERROR, math.inf)


def _text(interval: Interval) -> str:
    return f"{interval.ratio:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
