# SPDX-License-Identifier: GPL-2.0-or-later
"""``auto``: let the search choose values from fio's measurements, then set and save them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fusetune.bench.intervals import Interval
from fusetune.bench.latency import Latencies
from fusetune.bench.reading import Reading, bench_of
from fusetune.bench.runner import Bench, BudgetSpent
from fusetune.bench.spending import NOTHING, OPTIONS, Budget
from fusetune.bench.usage import Usages
from fusetune.bench.worker import Interrupted, Interruption
from fusetune.bench.workloads import Access, Workload
from fusetune.changes.journal import TRIAL, Journal
from fusetune.changes.lock import Lock
from fusetune.changes.state import values_now
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import Run
from fusetune.host import Host
from fusetune.knobs import LIVE
from fusetune.knobs.remount import dirtied_bytes, remount_hint
from fusetune.mounts.mount import Mount
from fusetune.tuner.costs import UNLIMITED, Cost, Limits
from fusetune.tuner.earlier import TunedBefore, WarmStart
from fusetune.tuner.ending import Ending
from fusetune.tuner.guards import Guarded, Guards
from fusetune.tuner.noted import changed, note_run
from fusetune.tuner.search import Choice, Search, Trial
from fusetune.tuner.space import FOLLOWERS, largest, searched_on, with_followers
from fusetune.tuner.values import Values, journal_of_run

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Outcome:
    """What ``auto`` found and did; ``before`` and ``after`` by knob name, in the knob's unit.

    ``reading``: the existing files that were read, if any, with ``bytes_read`` and ``requests``.
    ``start``: the searched knobs before; ``latencies``, ``usages``: by setting of these.
    ``ended_by``: see `Ending`. ``source``: ``fio``, or ``live`` if the mount's own traffic was
    observed. ``warm_start``: the earlier run from which the search started, if any. ``run``: all
    measurements, None if the server is unknown or traffic was observed.
    """

    mount: Mount
    workloads: list[Workload]
    before: dict[str, int]
    after: dict[str, int]
    choice: Choice
    trials: list[Trial] = field(default_factory=list)
    seconds: float = 0.0
    bytes_written: int = 0
    evaluations: int = 0
    reasons: list[str] = field(default_factory=list)
    reading: Reading | None = None
    bytes_read: int = 0
    requests: int = 0
    guarded: list[Guarded] = field(default_factory=list)
    start: dict[str, int] = field(default_factory=dict)
    latencies: Latencies = field(default_factory=Latencies)
    usages: Usages = field(default_factory=Usages)
    ended_by: str = NOTHING
    source: str = "fio"
    warm_start: WarmStart | None = None
    run: Run | None = None


@dataclass(frozen=True)
class Candidates:
    """A knob's file, its current value, and the values that ``auto`` would try."""

    knob: str
    file: str
    now: int
    values: tuple[int, ...]


def preview(
    resolver: Resolver,
    mount: Mount,
    workloads: Sequence[Workload],
    allowed_owners: Collection[int] = (),
) -> list[Candidates]:
    """Return what ``auto`` would write and where, without measuring or writing anything."""
    host, before = resolver.host, values_now(resolver.host, mount)
    dimensions, _ = searched_on(resolver, mount, before, workloads, allowed_owners)
    tried = {d.name: sorted({d.stock, before[d.name], *d.values}) for d in dimensions}
    for name, follower in FOLLOWERS.items():
        if follower.leader in tried and name in before:
            settings = ({follower.leader: value} for value in tried[follower.leader])
            tried[name] = sorted({with_followers(setting, before)[name] for setting in settings})
    return [
        Candidates(
            knob.name, host.path(knob.location(mount)), before[knob.name], tuple(tried[knob.name])
        )
        for knob in LIVE
        if knob.name in tried
    ]


class _Run(Values):
    """One run of ``auto`` on a locked mount, from the first trial to the last write."""

    def __init__(self, host: Host, mount: Mount, before: dict[str, int], journal: Journal) -> None:
        super().__init__(host, mount, before, journal)
        self.latencies, self.usages = Latencies(), Usages()
        self.ended_by = NOTHING

    def measure(self, search: Search, bench: Bench, guards: Guards, progress: Progress) -> None:
        """Measure what the search asks for, then restore every value."""
        try:
            with bench:
                self._measure(search, bench, guards, progress)
        except Interrupted as error:
            raise Interrupted(f"{error}; {_proven(search.choice())}") from error
        finally:
            self.put_back()

    def _measure(self, search: Search, bench: Bench, guards: Guards, progress: Progress) -> None:
        """Search; if the guards refuse a proven setting, continue the search."""
        search.limits.check(Cost.of(bench.usage, bench.workloads))

        def guard(setting: Mapping[str, int], job: Workload) -> float:
            self._try(setting, bench, progress)
            return bench.measure_reader(job)

        explore = partial(self._search, search, bench, guards.share, progress)
        guards.watch(search, explore, guard, lambda: bench.seconds_left)
        if self.ended_by in OPTIONS:
            progress(1.0, f"{OPTIONS[self.ended_by]} is spent")

    def _try(self, setting: Mapping[str, int], bench: Bench, progress: Progress) -> None:
        self.set(with_followers(setting, self.before), TRIAL)
        progress(1 - bench.seconds_left / bench.budget.seconds, words_of(setting))

    def _search(self, search: Search, bench: Bench, kept: float, progress: Progress) -> None:
        """Give the search the figures of each setting it asks for, until the budget is spent.

        ``kept``: the share of the budget that is reserved for the guards.
        """
        while (setting := search.ask(bench.affordable(kept))) is not None:
            self._try(setting, bench, progress)
            try:
                figures = bench.measure()
            except BudgetSpent as spent:
                search.end()
                self.ended_by = spent.part
                return
            search.tell(figures, Cost.of(bench.usage, bench.workloads))
            self.latencies.add(setting, bench.bins)
            self.usages.add(setting, bench.usage)
        self.ended_by = bench.scarcest(kept) if search.short else NOTHING


def _changes(setting: Mapping[str, int], start: Mapping[str, int]) -> str:
    return words_of({name: value for name, value in setting.items() if value != start[name]})


def words_of(setting: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())


def auto(
    resolver: Resolver,
    mount: Mount,
    workloads: Sequence[Workload],
    budget: Budget,
    *,
    allowed_owners: Collection[int] = (),
    unguarded: Collection[str] = (),
    limits: Limits = UNLIMITED,
    size: int | None = None,
    reading: Reading | None = None,
    seed: int = 0,
    cold: bool = False,
    progress: Progress = lambda share, words: None,
) -> Outcome:
    """Measure ``mount``, choose values, set and save them.

    ``resolver``: knows what the configuration allows; ``reading``: the files to read, None for
    scratch files; ``unguarded``: the guards to leave out; ``limits``: on the cost of a choice;
    ``cold``: ignore earlier runs. Nothing is changed unless it is proven to be better. Raises
    FusetuneError if it cannot be measured, `Interrupted` on a signal; then all is restored.
    """
    host = resolver.host
    resolver.check_not_left_alone(mount)
    with Lock(host, mount), Interruption() as interruption:
        journal = journal_of_run(host, mount)
        before = values_now(host, mount)
        dimensions, reasons = searched_on(resolver, mount, before, workloads, allowed_owners)
        if not dimensions:
            reasons.append("no live knob affects these workloads")
            return Outcome(mount, list(workloads), before, before, unchanged(), reasons=reasons)
        start = {dimension.name: before[dimension.name] for dimension in dimensions}
        known = TunedBefore(host, mount, workloads, cold=cold)
        search = known.search(dimensions, start, seed, limits)
        bench = bench_of(host, mount, workloads, budget, interruption, size=size, reading=reading)
        run = _Run(host, mount, before, journal)
        guards = Guards.of(workloads, start, unguarded)
        if reading:
            ahead = largest(dimensions, "read_ahead_kb")
            reading.expect(ahead, guarded=bool(guards.workloads))
        run.measure(search, bench, guards, progress)
        choice, ending = search.choice(), Ending(run.ended_by, budget, bench.evaluations)
        after = before | with_followers(choice.setting, before)
        run_of = known.run(search)
        if choice.changed:
            run.keep(after, choice.gain, run_of)
            reasons += resolver.caveats(mount, after)
        reasons += [*_reasons(search, ending, guards), *(reading.why if reading else [])]
        reasons += _without_writeback(host, mount, workloads, before, after)
        cost = (bench.seconds, bench.bytes_written, bench.evaluations, reasons)
        found = (search.trials, *cost, reading, bench.bytes_read, bench.requests, guards.measured)
        gathered = (start, run.latencies, run.usages, run.ended_by, "fio", known.begun(search))
        note_run(host, mount, "auto", workloads, choice, reasons, changed(before, after), run_of)
        return Outcome(mount, list(workloads), before, after, choice, *found, *gathered, run_of)


def _reasons(search: Search, ending: Ending, guards: Guards) -> list[str]:
    """Return why the search ended, the reasons for the choice, and what was refused."""
    words = partial(_changes, start=guards.start)
    refused = [f"{words_of(one)}: refused, because {why}" for one, why in search.refused]
    found = [*ending.reasons(search, words), *refused]
    return [*found, *search.choice().reasons, *guards.reasons(words, search.seems)]


def unchanged() -> Choice:
    return Choice({}, False, Interval(1.0, 1.0, 1.0), {}, ())


def _proven(choice: Choice) -> str:
    if not choice.changed:
        return "nothing was proven to be better so far"
    gain = choice.gain
    return (
        f"the best proven setting so far was {words_of(choice.setting)} with "
        f"{gain.ratio:.2f} [{gain.low:.2f}, {gain.high:.2f}] times the speed before"
    )


def _without_writeback(
    host: Host,
    mount: Mount,
    workloads: Sequence[Workload],
    before: Mapping[str, int],
    after: Mapping[str, int],
) -> list[str]:
    """Return a hint on the writeback cache, if the measured writes did not use one."""
    if not any(Access.BUFFERED_WRITE in workload.accesses for workload in workloads):
        return []
    if any(before.get(knob) != after.get(knob) for knob in ("max_ratio", "strict_limit")):
        return []  # a dirty limit had an effect, so there are dirty pages
    dirtied = dirtied_bytes(host, mount)
    if dirtied:
        return []
    found = (
        "this mount has no writeback cache"
        if dirtied == 0
        else "if this mount has no writeback cache (debugfs would show it)"
    )
    return [
        f"{found}: each small write is a separate request, and max_ratio has no effect; "
        + remount_hint(mount, "writeback_cache")
    ]
