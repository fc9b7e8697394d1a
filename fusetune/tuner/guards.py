# SPDX-License-Identifier: GPL-2.0-or-later
"""Guards: reads that were not asked for, but that no choice of ``auto`` may make slower.

More readahead helps a sequential reader, but may cost a program that reads a mapped file through
page faults many times more than it needs. So each proven setting is compared with the start once
more, with the guards alone, and is refused if one of them is proven to be slower.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fusetune.bench.intervals import Interval, ratio_interval
from fusetune.bench.reading import Reading
from fusetune.bench.runner import BudgetSpent
from fusetune.bench.workloads import WORKLOADS, Access, Workload, only_job
from fusetune.tuner.search import Search
from fusetune.tuner.space import SEARCHED

#: The workloads that guard choices made for reads.
GUARDS = ("mmap-read", "rand-read")
#: What programs do that need them.
_NEEDED_BY = {
    "mmap-read": "reads mapped files at random places",
    "rand-read": "reads files at random places",
}
#: Share of the time budget that is reserved for them.
SHARE = 0.2
# Probability that any guard of a setting appears slower or faster by chance, over both looks.
_ERROR = 0.05
# The same for a look before the proof.
_PASSED_OVER = 0.1
# That look only counts losses this large; the proof judges smaller ones, on more pairs.
_CLEAR_LOSS = 0.95
# Numbers of pairs at which it is judged: early if the loss is large, otherwise after all.
_FEWEST_PAIRS, _MOST_PAIRS = 3, 8

# The knob of which larger values cost the guards more (mm/filemap.c, do_sync_mmap_readahead).
_CULPRIT = "read_ahead_kb"
# The smallest apparent gain for which it is said how to get it.
_MUCH = 1.1
# The jobs of mmap-read: the one that loses by readahead, and the other.
_OF_FAULTS = ("random", "sequential")

#: Figures of the guards by label, before and after.
Pair = tuple[dict[str, float], dict[str, float]]
#: Measures jobs of guards once with a setting; returns their figures by label.
Measure = Callable[[Mapping[str, int], Sequence[Workload]], dict[str, float]]


@dataclass(frozen=True)
class Guarded:
    """One guard with ``setting``: its speed divided by the speed at the start."""

    setting: Mapping[str, int]
    guard: str
    ratio: Interval

    @property
    def refused(self) -> bool:
        """Whether it is proven to be slower."""
        return self.ratio.high < 1


@dataclass
class Guards:
    """The guards of one run, and their measurements."""

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

        Workloads that are measured anyway need no guard, because none of them may get worse. There
        are no guards with ``reading``, because they need a scratch file.
        """
        names = {workload.name for workload in workloads}.union(GUARDS if reading else left_out)
        reads = any(workload.reads for workload in workloads) and any(map(_matters, start))
        return cls([WORKLOADS[name] for name in GUARDS if reads and name not in names], start)

    @property
    def jobs(self) -> list[Workload]:
        """Their jobs; those that read ahead least come first.

        The kernel may still read ahead for one job when the next begins.
        """
        by_faults = (only_job(WORKLOADS["mmap-read"], section) for section in _OF_FAULTS)
        names = [workload.name for workload in self.workloads]
        return [job for job in (WORKLOADS["rand-read"], *by_faults) if job.name in names]

    @property
    def share(self) -> float:
        """Share of the time budget to reserve for them."""
        return SHARE if self.workloads else 0.0

    def concern(self, setting: Mapping[str, int]) -> bool:
        """Whether ``setting`` changes knobs that affect reads."""
        changed = (name for name, value in setting.items() if value != self.start.get(name))
        return bool(self.workloads) and any(map(_matters, changed))

    def watch(
        self,
        search: Search,
        explore: Callable[[], None],
        measure: Measure,
        seconds_left: Callable[[], float],
    ) -> None:
        """Let ``explore`` search until nothing is proven, or the proven setting passes the guards.

        Settings that seem to lose are skipped before their proof, to save budget.
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
            search.refuse([_CULPRIT])

    def refuse(
        self, setting: Mapping[str, int], measure: Measure, seconds_left: Callable[[], float]
    ) -> bool:
        """Measure start and ``setting`` in pairs; return whether a guard is proven to be slower.

        A setting is also refused if there is no time left to guard it.
        """
        pairs: list[Pair] = []
        found: list[Guarded] = []
        jobs = self.jobs
        for wanted in (_FEWEST_PAIRS, _MOST_PAIRS):
            self._add_pairs(pairs, wanted, setting, jobs, measure, seconds_left)
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
        """Return whether a guard clearly loses in the first pairs; False without time.

        Only the job that loses first is measured.
        """
        pairs: list[Pair] = []
        first = [job for job in self.jobs if job.name == "mmap-read"][:1] or self.jobs
        self._add_pairs(pairs, _FEWEST_PAIRS, setting, first, measure, seconds_left)
        found = judged(setting, pairs, _PASSED_OVER) if len(pairs) == _FEWEST_PAIRS else []
        lost = [one for one in found if one.refused and one.ratio.ratio < _CLEAR_LOSS]
        self.passed_over += lost
        return bool(lost)

    def _add_pairs(
        self,
        pairs: list[Pair],
        wanted: int,
        setting: Mapping[str, int],
        jobs: Sequence[Workload],
        measure: Measure,
        seconds_left: Callable[[], float],
    ) -> None:
        """Measure until there are ``wanted`` pairs or the time is up."""
        cost = 0.0
        with suppress(BudgetSpent):
            while len(pairs) < wanted and (left := seconds_left()) > 1.2 * cost:
                if len(pairs) % 2:  # reversed, so that a steady drift cancels out
                    after = measure(setting, jobs)
                    pairs.append((measure(self.start, jobs), after))
                else:
                    before = measure(self.start, jobs)
                    pairs.append((before, measure(setting, jobs)))
                cost = left - seconds_left()

    def reasons(
        self,
        words: Callable[[Mapping[str, int]], str],
        seems: Callable[[Mapping[str, int]], float],
    ) -> list[str]:
        """Return a sentence for each refusal, and the best of what each guard refused.

        ``words`` describes what a setting changes; ``seems`` returns how many times as fast as the
        start it seems.
        """
        found = [
            f"{words(one.setting)}: refused, because {one.guard} fell to "
            f"{one.ratio.ratio:.2f} [{one.ratio.low:.2f}, {one.ratio.high:.2f}] times its speed"
            for one in self.measured
            if one.refused
        ]
        found += [
            f"{words(one.setting)}: skipped, because {one.guard} seemed to fall to "
            f"{one.ratio.ratio:.2f} times its speed"
            for one in self.passed_over
        ]
        lost = [*(one for one in self.measured if one.refused), *self.passed_over]
        for name in dict.fromkeys(one.guard.partition(" ")[0] for one in lost):
            refused = [one.setting for one in lost if one.guard.startswith(name)]
            best = max(refused, key=seems)
            if seems(best) >= _MUCH:
                found.append(
                    f"if no program {_NEEDED_BY[name]}, --no-guard {name} allows {words(best)}, "
                    f"which seems {seems(best):.1f} times as fast"
                )
        if self.unmeasured is not None:
            names = " and ".join(workload.name for workload in self.workloads)
            found.append(
                f"{words(self.unmeasured)}: refused, because no time was left to measure "
                f"{names}; give a larger --budget, or leave them out with --no-guard"
            )
        return found


def judged(
    setting: Mapping[str, int], pairs: Sequence[Pair], error: float = _ERROR / 2
) -> list[Guarded]:
    """Return the ratio of each guard from pairs of figures, at the start and with ``setting``.

    ``error``: for all intervals together.
    """
    labels = list(pairs[0][0])
    found = []
    for label in labels:
        differences = [math.log(after[label] / before[label]) for before, after in pairs]
        ratio = ratio_interval(differences, error / len(labels), math.inf)
        found.append(Guarded(setting, label, ratio))
    return found


def about_files(reading: Reading | None, workloads: Sequence[Workload]) -> list[str]:
    """Return which ranges of files were read, and which guards were therefore left out."""
    if not reading:
        return []
    names = {workload.name for workload in workloads}
    missed = " and ".join(name for name in GUARDS if name not in names)
    guards = f"{missed}: not guarded, because that needs a scratch file"
    return [reading.why, guards] if missed else [reading.why]


def _matters(name: str) -> bool:
    """Whether reads may depend on this live knob; they may depend on any option."""
    return name not in SEARCHED or Access.BUFFERED_READ in SEARCHED[name].affects
