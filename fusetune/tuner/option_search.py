# SPDX-License-Identifier: GPL-2.0-or-later
"""The search over options of a server and live knobs, on shadow mounts."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from fusetune.bench.intervals import Interval, ratio_interval
from fusetune.bench.latency import Latencies, Latency
from fusetune.bench.runner import BudgetSpent
from fusetune.bench.spending import NOTHING
from fusetune.bench.usage import Usage, Usages
from fusetune.bench.workloads import Workload
from fusetune.tuner.auto import Progress
from fusetune.tuner.candidates import Candidates, Options
from fusetune.tuner.costs import UNLIMITED, Cost, Limits
from fusetune.tuner.ending import Ending
from fusetune.tuner.guards import Guards
from fusetune.tuner.search import Search
from fusetune.tuner.space import Dimension, with_followers
from fusetune.tuner.trials import Trials, describe

_MARK = "-o "  # prefix of options in names of dimensions
_MOST_OF_SHARES = 0.25  # of the budget that exploration leaves for each option's gain
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 12
_ERROR = 0.05  # of the interval of one option's gain


@dataclass(frozen=True)
class OptionTrial:
    """Options with their values (None: left out), live knobs, and all samples of both."""

    options: Mapping[str, str | None]
    setting: dict[str, int]
    samples: tuple[dict[str, float], ...]
    latency: Mapping[str, Latency] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)


class OptionSearch:
    """The search over options and live knobs, followed by each option's own gain."""

    def __init__(
        self,
        trials: Trials,
        candidates: Candidates,
        knobs: Sequence[Dimension],
        before: dict[str, int],
        workloads: Sequence[Workload],
        unguarded: Collection[str],
        seed: int,
        progress: Progress,
        limits: Limits = UNLIMITED,
    ) -> None:
        self.candidates = candidates
        self.before = before
        self._trials, self._progress = trials, progress
        self._measured = workloads
        self._workloads = [workload.name for workload in workloads]
        self._weights = [workload.weight for workload in workloads]
        self._knobs = [dimension.name for dimension in knobs]
        dimensions = [*map(self._dimension, candidates.changes), *knobs]
        start = {d.name: before.get(d.name, 0) for d in dimensions}
        self.start, self.latencies, self.usages = start, Latencies(), Usages()
        self.ended_by = NOTHING
        self._without_gains: list[str] = []
        self.guards = Guards.of(workloads, start, unguarded)
        self.search = Search(dimensions, start, self._workloads, seed, self._weights, limits)
        self.search.others_need = self._of_shares

    def _dimension(self, name: str) -> Dimension:
        required = tuple(_MARK + one for one in self.candidates.required[name])
        return Dimension(_MARK + name, (0, 1), 0, ordered=False, interacts=required)

    def options(self, setting: Mapping[str, int]) -> Options:
        """Return the options of a setting of the search."""
        names = [n for n in self.candidates.changes if setting.get(_MARK + n)]
        return self.candidates.possible(names)

    def knobs(self, setting: Mapping[str, int]) -> dict[str, int]:
        """Return the live knobs of a setting of the search; the others are unchanged."""
        chosen = {name: setting[name] for name in self._knobs}
        return self.before | with_followers(chosen, self.before)

    def explore(self) -> None:
        """Search; if the guards refuse a proven setting, continue the search.

        Raises FusetuneError if a limit is set on a cost that the last measurement did not yield.
        """
        self.search.limits.check(Cost.of(self._trials.usage, self._measured))
        self.guards.watch(self.search, self._explore, self._guard, self._seconds_left)

    def _seconds_left(self) -> float:
        return self._trials.budget.seconds - self._trials.seconds

    def _of_shares(self, setting: Mapping[str, int]) -> int:
        """Return how many evaluations to leave for `shares` of a setting."""
        if not self._has_parts(setting):
            return 0
        total = self.search.evaluations + self._trials.affordable(1.0)
        return min(_MOST_ROUNDS * (1 + len(self.options(setting))), round(_MOST_OF_SHARES * total))

    def _has_parts(self, setting: Mapping[str, int]) -> bool:
        """Return whether each option of a setting has a gain that is not that of the setting."""
        chosen = self.options(setting)
        return len(chosen) > 1 or bool(chosen and self.knobs(setting) != self.before)

    def _guard(self, setting: Mapping[str, int], job: Workload) -> float:
        options, knobs = self.options(setting), self.knobs(setting)
        self._show_progress(options, knobs)
        return self._trials.measure_reader(self.candidates, options, knobs, job)

    def _explore(self) -> None:
        """Give the search the figures of each setting that it asks for, until its share ends."""
        share = 1.0 - self.guards.share
        while (setting := self.search.ask(self._trials.affordable(share))) is not None:
            try:
                figures = self._measure(self.options(setting), self.knobs(setting))
            except BudgetSpent as spent:
                self.search.end()
                self.ended_by = spent.part
                return
            self.search.tell(figures, Cost.of(self._trials.usage, self._measured))
            self.latencies.add(setting, self._trials.bins)
            self.usages.add(setting, self._trials.usage)
        self.ended_by = self._trials.scarcest(share) if self.search.short else NOTHING

    def shares(self) -> dict[str, Interval]:
        """Return for each chosen option the speed with it divided by the speed without it.

        Options that require it are left out with it; everything else is as chosen. Empty if too
        little is left of the budget; `reasons` says so.
        """
        choice = self.search.choice()
        chosen, knobs = self.options(choice.setting), self.knobs(choice.setting)
        if not self._has_parts(choice.setting):
            return dict.fromkeys(chosen, choice.gain)
        without = {name: self.candidates.possible(chosen - {name}) for name in chosen}
        logs: dict[str, list[float]] = {name: [] for name in chosen}
        order = [chosen, *dict.fromkeys(without.values())]
        spent = NOTHING
        for _ in range(_MOST_ROUNDS):
            if self._trials.affordable(1.0) < len(order):
                spent = self._trials.scarcest(1.0)
                break
            try:
                means = {options: self._mean(options, knobs) for options in order}
            except BudgetSpent as error:
                spent = error.part
                break
            for name, others in without.items():
                logs[name].append(means[chosen] - means[others])
            order.reverse()  # so that a steady drift cancels out over two rounds
        gains = {
            name: ratio_interval(each, _ERROR, math.inf)
            for name, each in logs.items()
            if len(each) >= _FEWEST_ROUNDS
        }
        if not gains:
            cause = Ending(spent, self._trials.budget, self.search.evaluations).cause
            self._without_gains = [f"the gain of each option was not measured, because {cause}"]
        return gains

    def _mean(self, options: Options, knobs: Mapping[str, int]) -> float:
        figures = self._measure(options, knobs)
        return fmean([math.log(figures[name]) for name in self._workloads], self._weights)

    def _measure(self, options: Options, knobs: Mapping[str, int]) -> dict[str, float]:
        self._show_progress(options, knobs)
        return self._trials.measure(self.candidates, options, knobs)

    def _show_progress(self, options: Options, knobs: Mapping[str, int]) -> None:
        spent = self._trials.seconds / self._trials.budget.seconds
        self._progress(spent, self.words(options, knobs))

    def reasons(self) -> list[str]:
        """Return a sentence on each option that was not chosen, and on each live knob.

        The first one says why `shares` returned nothing, if it did.
        """
        choice = self.search.choice()
        chosen = self.options(choice.setting)
        found = []
        for name in (one for one in self.candidates.changes if one not in chosen):
            added = {_MARK + one: 1 for one in self.candidates.with_required(name)}
            if why := self.search.why_not(choice.setting | added):
                words = describe(self.candidates.values(frozenset({name})))
                found.append(f"{words}: not proposed, {why}")
        return [*self._without_gains, *found, *choice.reasons[len(self.candidates.changes) :]]

    def setting_words(self, setting: Mapping[str, int]) -> str:
        """Return `words` of a setting of the search."""
        return self.words(self.options(setting), self.knobs(setting))

    def change_words(self, changed: Mapping[str, int]) -> str:
        """Return as text the options and live knobs that a setting changes."""
        names = frozenset(name.removeprefix(_MARK) for name in changed if name.startswith(_MARK))
        knobs = [f"{n}={v}" for n, v in changed.items() if not n.startswith(_MARK)]
        return " ".join(filter(None, [describe(self.candidates.values(names)), *knobs]))

    def words(self, options: Options, knobs: Mapping[str, int]) -> str:
        """Return the options, and the live knobs that differ from those before, as text."""
        moved = [f"{name}={v}" for name, v in knobs.items() if v != self.before.get(name)]
        changes = filter(None, [describe(self.candidates.values(options)), *moved])
        return " ".join(changes) or "no change"

    def trials(self) -> Iterator[OptionTrial]:
        """Yield what the search has measured."""
        for trial in self.search.trials:
            values = self.candidates.values(self.options(trial.setting))
            knobs = {name: trial.setting[name] for name in self._knobs}
            found = self.latencies.of(trial.setting), self.usages.of(trial.setting)
            yield OptionTrial(values, knobs, trial.samples, *found)
