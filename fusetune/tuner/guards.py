# SPDX-License-Identifier: GPL-2.0-or-later
"""Guards: reads that were not asked for, but that no choice of ``auto`` may make slower.

More readahead helps a sequential reader, but may cost a program that reads a mapped file through
page faults many times more than it needs. So each proven setting is compared with the start once
more, with the guards alone, and is refused if one of them is proven to be slower.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from fusetune.bench.intervals import Interval, ratio_interval
from fusetune.bench.runner import BudgetSpent
from fusetune.bench.spending import OPTIONS, RANGES
from fusetune.bench.workloads import WORKLOADS, Access, Workload, only_job
from fusetune.tuner.constants import LEAST_GAIN
from fusetune.tuner.search import Search
from fusetune.tuner.space import SEARCHED

#: The workloads that guard choices made for reads.
GUARDS = ("mmap-read", "rand-read")
#: What programs do that need them.
_NEEDED_BY = {
    "mmap-read": "reads mapped files at random places",
    "rand-read": "reads files at random places",
}
#: Share of the budget that is reserved for them.
SHARE = 0.2
# Probability that any guard of a setting appears slower or faster by chance, in all judgements.
_ERROR = 0.05
# A look before the proof also passes over settings that seem to lose this much, and does so by
# chance with this probability.
_CLEAR_LOSS, _PASSED_OVER = 0.95, 0.1
# A smaller loss does not count, as a smaller gain does not.
_NO_LOSS = math.exp(-LEAST_GAIN)
# Numbers of pairs at which a job is judged: early if the difference is large, otherwise after all.
_FEWEST_PAIRS, _MOST_PAIRS = 3, 8
# And of one that seems to lose much after these, which only a noisy host leaves unproven.
_DOUBTFUL_PAIRS = 24
_JUDGED = (_FEWEST_PAIRS, _MOST_PAIRS, _DOUBTFUL_PAIRS)

# The knob of which larger values cost the guards more (mm/filemap.c, do_sync_mmap_readahead).
_CULPRIT = "read_ahead_kb"
# The smallest apparent gain for which it is said how to get it.
_MUCH = 1.1
# The jobs of mmap-read: the one that loses by readahead, and the other.
_OF_FAULTS = ("random", "sequential")

#: Figures of a guard's job, before and after.
Pair = tuple[float, float]
_Setting = frozenset[tuple[str, int]]
#: Measures a guard's job once with a setting; returns its figure.
Measure = Callable[[Mapping[str, int], Workload], float]


@dataclass(frozen=True)
class Guarded:
    """One guard with ``setting``: its speed divided by the speed at the start."""

    setting: Mapping[str, int]
    guard: str
    ratio: Interval

    @property
    def refused(self) -> bool:
        """Whether it is proven to be slower."""
        return self.ratio.high < 1 and self.ratio.ratio < _NO_LOSS

    def decided_before(self, pairs: int) -> bool:
        """Whether a judgement after this many pairs would change nothing."""
        in_doubt = pairs < _DOUBTFUL_PAIRS or self.ratio.ratio < _CLEAR_LOSS
        return self.ratio.low > 1 or not in_doubt


@dataclass
class Guards:
    """The guards of one run, and their measurements."""

    workloads: Sequence[Workload]
    start: Mapping[str, int]
    measured: list[Guarded] = field(default_factory=list)
    passed_over: list[Guarded] = field(default_factory=list)
    unmeasured: Mapping[str, int] | None = None
    _pairs: dict[tuple[_Setting, str], list[Pair]] = field(default_factory=dict)
    # The parts of the budget that ended the last measurement, and that `unmeasured` lacked.
    _spent: str = "seconds"
    _lacked: str = "seconds"

    @classmethod
    def of(
        cls,
        workloads: Sequence[Workload],
        start: Mapping[str, int],
        left_out: Collection[str],
    ) -> "Guards":
        """Return the guards for ``workloads`` and the searched knobs, by name in ``start``.

        Workloads that are measured anyway need no guard, because none of them may get worse.
        """
        return cls(guarding(workloads, left_out) if any(map(_matters, start)) else [], start)

    @cached_property
    def jobs(self) -> list[Workload]:
        """Their jobs: first the one that loses first, then those that read ahead least."""
        random, sequential = (only_job(WORKLOADS["mmap-read"], one) for one in _OF_FAULTS)
        names = [workload.name for workload in self.workloads]
        jobs = [random, WORKLOADS["rand-read"], sequential]
        return [job for job in jobs if _guard_of(job.name) in names]

    @property
    def share(self) -> float:
        """Share of the budget to reserve for them."""
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
            suspect = self._suspects(setting)
            return not (self.concern(suspect) and self._loses(suspect, measure, seconds_left))

        search.permit = permit
        while True:
            explore()
            choice = search.choice()
            if not choice.changed or not self.concern(choice.setting):
                return
            if not self.refuse(choice.setting, measure, seconds_left):
                return
            search.refuse([_CULPRIT])

    def _suspects(self, setting: Mapping[str, int]) -> dict[str, int]:
        """Return a setting without changes of live knobs that hardly cost the guards anything."""
        return {
            name: self.start[name] if name in SEARCHED and name != _CULPRIT else value
            for name, value in setting.items()
        }

    def refuse(
        self, setting: Mapping[str, int], measure: Measure, seconds_left: Callable[[], float]
    ) -> bool:
        """Measure start and ``setting`` in pairs; return whether a guard is proven to be slower.

        A setting is also refused if too little is left of the budget to guard it.
        """
        found: dict[str, Guarded] = {}
        for wanted, job in product(_JUDGED, self.jobs):
            if job.name in found and found[job.name].decided_before(wanted):
                continue
            pairs = self._measured(setting, job, wanted, measure, seconds_left)
            if len(pairs) < _FEWEST_PAIRS:
                self.unmeasured, self._lacked = setting, self._spent
                return True
            found[job.name] = judged(setting, job.name, pairs, self._error)
            if found[job.name].refused:
                break
        self.measured += found.values()
        return any(one.refused for one in found.values())

    def _loses(
        self, setting: Mapping[str, int], measure: Measure, seconds_left: Callable[[], float]
    ) -> bool:
        """Return whether a guard loses, clearly or proven, in the first pairs.

        False if too little is left of the budget for them.
        Only the job that loses first is measured. `refuse` does not measure these pairs again.
        """
        job = self.jobs[0]
        if (frozenset(setting.items()), job.name) in self._pairs:
            return any(one.setting == setting for one in self._lost)
        for wanted in (_FEWEST_PAIRS - 1, _FEWEST_PAIRS, _MOST_PAIRS):
            pairs = self._measured(setting, job, wanted, measure, seconds_left)
            if len(pairs) < wanted:
                return False
            found = judged(setting, job.name, pairs, self._error)
            if wanted >= _FEWEST_PAIRS and found.refused:
                self.measured.append(found)
                return True
            seen = judged(setting, job.name, pairs, _PASSED_OVER / 2)
            if seen.refused and seen.ratio.ratio < _CLEAR_LOSS:
                self.passed_over.append(seen)
                return True
            if wanted >= _FEWEST_PAIRS and found.ratio.ratio > _NO_LOSS:
                break
        return False

    @property
    def _error(self) -> float:
        """The error of the interval of one job at one judgement."""
        return _ERROR / len(_JUDGED) / len(self.jobs)

    @property
    def _lost(self) -> list[Guarded]:
        return [*(one for one in self.measured if one.refused), *self.passed_over]

    def _measured(
        self,
        setting: Mapping[str, int],
        job: Workload,
        wanted: int,
        measure: Measure,
        seconds_left: Callable[[], float],
    ) -> list[Pair]:
        """Return the pairs of a job, measured until there are ``wanted`` or the budget is spent."""
        pairs = self._pairs.setdefault((frozenset(setting.items()), job.name), [])
        cost, self._spent = 0.0, "seconds"
        try:
            while len(pairs) < wanted and (left := seconds_left()) > 1.2 * cost:
                if len(pairs) % 2:  # reversed, so that a steady drift cancels out
                    after = measure(setting, job)
                    pairs.append((measure(self.start, job), after))
                else:
                    before = measure(self.start, job)
                    pairs.append((before, measure(setting, job)))
                cost = left - seconds_left()
        except BudgetSpent as spent:
            self._spent = spent.part
        return pairs

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
        for name in dict.fromkeys(_guard_of(one.guard) for one in self._lost):
            refused = [one.setting for one in self._lost if _guard_of(one.guard) == name]
            best = max(refused, key=seems)
            if seems(best) >= _MUCH:
                found.append(
                    f"if no program {_NEEDED_BY[name]}, --no-guard {name} allows {words(best)}, "
                    f"which seems {seems(best):.1f} times as fast"
                )
        if self.unmeasured is not None:
            names = " and ".join(workload.name for workload in self.workloads)
            left, remedy = _left_and_remedy(self._lacked)
            found.append(
                f"{words(self.unmeasured)}: refused, because {left} was left to measure "
                f"{names}; {remedy}, or leave them out with --no-guard"
            )
        return found


def guarding(workloads: Sequence[Workload], left_out: Collection[str]) -> list[Workload]:
    """Return the guards for ``workloads`` if any searched knob or option affects reads."""
    names = {workload.name for workload in workloads}.union(left_out)
    reads = any(workload.reads for workload in workloads)
    return [WORKLOADS[name] for name in GUARDS if reads and name not in names]


def judged(setting: Mapping[str, int], guard: str, pairs: Sequence[Pair], error: float) -> Guarded:
    """Return a guard's ratio from its figures at the start and with ``setting``."""
    differences = [math.log(after / before) for before, after in pairs]
    return Guarded(setting, guard, ratio_interval(differences, error, math.inf))


def _left_and_remedy(part: str) -> tuple[str, str]:
    """Return what is left of a part of the budget, and what to do about it."""
    if part == RANGES:
        return "no range of the files", "name more files with --files"
    option = OPTIONS[part]
    return "no time" if part == "seconds" else f"too little of {option}", f"give a larger {option}"


def _guard_of(job: str) -> str:
    """Return the workload of a job, which may have the job's own name in brackets."""
    return job.partition(" ")[0]


def _matters(name: str) -> bool:
    """Whether reads may depend on this live knob; they may depend on any option."""
    return name not in SEARCHED or Access.BUFFERED_READ in SEARCHED[name].affects
