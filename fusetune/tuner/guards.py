# SPDX-License-Identifier: GPL-2.0-or-later
"""Guards: reads that nobody asked to measure, but that no choice of ``auto`` may make slower.

More readahead serves a sequential reader, and may cost a program that faults its way through a
mapped file many times what it reads. So a proven setting is put beside the start once more, with
the guards alone, and is refused where one of them is proven to lose.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fusetune.bench.intervals import Interval, ratio_interval
from fusetune.bench.reading import Reading
from fusetune.bench.runner import BudgetSpent
from fusetune.bench.workloads import WORKLOADS, Access, Workload
from fusetune.tuner.search import Search
from fusetune.tuner.space import SEARCHED

#: The workloads that guard a choice made for reads.
GUARDS = ("mmap-read", "rand-read")
#: Part of the budget of seconds that is kept for them.
SHARE = 0.2
# Probability that any guard of a setting is taken for slower or faster by chance, at both looks.
_ERROR = 0.05
# The same of a look before the proof, by which a harmless value is passed over in 1 of 10 cases.
_PASSED_OVER = 0.2
# And only for a loss of this much: the proof judges smaller ones, on more pairs.
_GREAT_LOSS = 0.8
# After how many pairs it is judged: at once where much is lost, else on all of them.
_FEWEST_PAIRS, _MOST_PAIRS = 3, 8

#: Figures of the guards by label, before and after.
Pair = tuple[dict[str, float], dict[str, float]]
#: Measures the guards once with a setting, by label.
Measure = Callable[[Mapping[str, int]], dict[str, float]]


@dataclass(frozen=True)
class Guarded:
    """One guard with ``setting``: its speed over the speed at the start."""

    setting: Mapping[str, int]
    guard: str
    ratio: Interval

    @property
    def refused(self) -> bool:
        """Whether it is proven to be slower."""
        return self.ratio.high < 1


@dataclass
class Guards:
    """The guards of one run, and what was measured with them."""

    workloads: Sequence[Workload]
    start: Mapping[str, int]
    measured: list[Guarded] = field(default_factory=list)
    passed_over: list[Guarded] = field(default_factory=list)
    unmeasured: Mapping[str, int] | None = None

    @classmethod
    def of(
        cls,
        workloads: Sequence[Workload],
        start: Mapping[str, int],
        left_out: Collection[str],
        reading: Reading | None,
    ) -> "Guards":
        """Return the guards for ``workloads`` and the searched knobs, by name in ``start``.

        Workloads that are measured anyway need no guard, for none of them may get worse. There is
        none with ``reading``, for guards need a scratch file.
        """
        names = {workload.name for workload in workloads}.union(GUARDS if reading else left_out)
        reads = any(workload.reads for workload in workloads) and any(map(_matters, start))
        return cls([WORKLOADS[name] for name in GUARDS if reads and name not in names], start)

    @property
    def share(self) -> float:
        """Part of the budget of seconds to keep for them."""
        return SHARE if self.workloads else 0.0

    def concern(self, setting: Mapping[str, int]) -> bool:
        """Whether ``setting`` changes what reads depend on."""
        changed = (name for name, value in setting.items() if value != self.start.get(name))
        return bool(self.workloads) and any(map(_matters, changed))

    def watch(
        self,
        search: Search,
        explore: Callable[[], None],
        measure: Measure,
        seconds_left: Callable[[], float],
    ) -> None:
        """Let ``explore`` search until nothing is proven, or what is proven passes the guards.

        What seems to lose is passed over before it is proven, so that the budget goes to less.
        """

        def permit(setting: Mapping[str, int]) -> bool:
            return not (self.concern(setting) and self._loses(setting, measure, seconds_left))

        search.permit = permit
        while True:
            explore()
            choice = search.choice()
            if not choice.changed or not self.concern(choice.setting):
                return
            if not self.refuse(choice.setting, measure, seconds_left):
                return
            search.refuse()

    def refuse(
        self, setting: Mapping[str, int], measure: Measure, seconds_left: Callable[[], float]
    ) -> bool:
        """Measure start and ``setting`` in pairs; return whether a guard is proven to lose.

        What there is no time to guard is refused as well.
        """
        pairs: list[Pair] = []
        found: list[Guarded] = []
        for wanted in (_FEWEST_PAIRS, _MOST_PAIRS):
            self._add_pairs(pairs, wanted, setting, measure, seconds_left)
            if len(pairs) < _FEWEST_PAIRS:
                self.unmeasured = setting
                return True
            found = judged(setting, pairs)
            if any(one.refused for one in found):
                break
        self.measured += found
        return any(one.refused for one in found)

    def _loses(
        self, setting: Mapping[str, int], measure: Measure, seconds_left: Callable[[], float]
    ) -> bool:
        """Return whether a guard seems to lose much by the fewest pairs; no without time."""
        pairs: list[Pair] = []
        self._add_pairs(pairs, _FEWEST_PAIRS, setting, measure, seconds_left)
        found = judged(setting, pairs, _PASSED_OVER) if len(pairs) == _FEWEST_PAIRS else []
        lost = [one for one in found if one.refused and one.ratio.ratio < _GREAT_LOSS]
        self.passed_over += lost
        return bool(lost)

    def _add_pairs(
        self,
        pairs: list[Pair],
        wanted: int,
        setting: Mapping[str, int],
        measure: Measure,
        seconds_left: Callable[[], float],
    ) -> None:
        """Measure until there are as many pairs as ``wanted``, while there is time."""
        cost = 0.0
        with suppress(BudgetSpent):
            while len(pairs) < wanted and (left := seconds_left()) > 1.2 * cost:
                if len(pairs) % 2:  # the other way round, so that a steady drift cancels
                    after = measure(setting)
                    pairs.append((measure(self.start), after))
                else:
                    before = measure(self.start)
                    pairs.append((before, measure(setting)))
                cost = left - seconds_left()

    def reasons(self, words: Callable[[Mapping[str, int]], str]) -> list[str]:
        """Return a sentence for each refusal.

        ``words``: says what a setting changes.
        """
        found = [
            f"{words(one.setting)}: refused, because {one.guard} has "
            f"{one.ratio.ratio:.2f} [{one.ratio.low:.2f}, {one.ratio.high:.2f}] of its speed before"
            for one in self.measured
            if one.refused
        ]
        found += [
            f"{words(one.setting)}: passed over, because {one.guard} seemed to fall to "
            f"{one.ratio.ratio:.2f} of its speed"
            for one in self.passed_over
        ]
        if self.unmeasured is not None:
            names = " and ".join(workload.name for workload in self.workloads)
            found.append(
                f"{words(self.unmeasured)}: refused, because no time was left to see what becomes "
                f"of {names}; give a larger --budget, or leave them out with --no-guard"
            )
        return found


def judged(
    setting: Mapping[str, int], pairs: Sequence[Pair], error: float = _ERROR / 2
) -> list[Guarded]:
    """Return what pairs of figures, at the start and with ``setting``, show of each guard.

    ``error``: of all their intervals together.
    """
    labels = list(pairs[0][0])
    found = []
    for label in labels:
        differences = [math.log(after[label] / before[label]) for before, after in pairs]
        ratio = ratio_interval(differences, error / len(labels), math.inf)
        found.append(Guarded(setting, label, ratio))
    return found


def about_files(reading: Reading | None, workloads: Sequence[Workload]) -> list[str]:
    """Say which ranges of files were read, and what was not guarded because of that."""
    if not reading:
        return []
    names = {workload.name for workload in workloads}
    missed = " and ".join(name for name in GUARDS if name not in names)
    guards = f"{missed}: not guarded, because that needs a scratch file"
    return [reading.why, guards] if missed else [reading.why]


def _matters(name: str) -> bool:
    """Whether reads may depend on a live knob or, as any of them may, on an option."""
    return name not in SEARCHED or Access.BUFFERED_READ in SEARCHED[name].affects
