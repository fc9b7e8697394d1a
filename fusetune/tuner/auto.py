# SPDX-License-Identifier: GPL-2.0-or-later
"""``auto``: let the search choose by what fio measures, then set and save the choice."""

import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from fusetune.bench.intervals import Interval
from fusetune.bench.runner import Bench, Budget, BudgetSpent
from fusetune.bench.scratch import failure
from fusetune.bench.worker import Interrupted, Interruption
from fusetune.bench.workloads import Access, Workload
from fusetune.changes.apply import drop_if_undone, enforce, make, plan
from fusetune.changes.journal import Journal
from fusetune.changes.lock import Lock
from fusetune.changes.state import not_stock, values_now
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import forget, save
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.knobs import LIVE, LIVE_BY_NAME, knobs_of
from fusetune.knobs.remount import dirtied_bytes, remount_hint
from fusetune.mounts.control import still_mounted
from fusetune.mounts.mount import Mount
from fusetune.text import printable
from fusetune.tuner.search import Choice, Search, Trial
from fusetune.tuner.space import FOLLOWERS, searched, with_followers

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Outcome:
    """What ``auto`` found and did; ``before`` and ``after`` by knob name, in the knob's unit."""

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


@dataclass(frozen=True)
class Candidates:
    """A knob's file, its value now, and the values that ``auto`` would try."""

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
    refuse = partial(resolver.refusal, mount, allowed_owners=allowed_owners)
    dimensions, _ = searched(knobs_of(host, mount), before, workloads, refuse)
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


class _Run:
    """One ``auto`` on a locked mount, from its first trial to its last write."""

    def __init__(self, host: Host, mount: Mount, before: dict[str, int], journal: Journal) -> None:
        self.host, self.mount, self.before, self.journal = host, mount, before, journal
        # If the journal cannot be written, fail now, before anything is measured.
        journal.append([])

    def set(self, setting: Mapping[str, int], why: str) -> None:
        values = {LIVE_BY_NAME[name]: value for name, value in setting.items()}
        try:
            make(self.host, self.journal, plan(self.host, self.mount, values), why)
        except FusetuneError as error:
            if still_mounted(self.host, self.mount):
                raise
            raise failure(self.mount, errno.ENODEV, "set values") from error

    def keep(self, after: Mapping[str, int], gain: Interval) -> None:
        """Set ``after`` for good and save it; if that fails, put everything back."""
        try:
            self.set(after, f"auto: gain {gain.ratio:.3f}")
            kept = not_stock(knobs_of(self.host, self.mount), after)
            if kept:
                save(self.host, self.mount, kept, "auto", gain.ratio, (gain.low, gain.high))
            else:
                forget(self.host, self.mount)
        except FusetuneError:
            self.put_back()
            raise

    def put_back(self) -> None:
        """Set the values found at the start, even if they cannot be journalled any more."""
        try:
            self.set(self.before, "auto: put back")
        except FusetuneError:
            enforce(self.host, self.mount, self.before)
        drop_if_undone(self.host, self.journal, self.mount)

    def measure(self, search: Search, bench: Bench, progress: Progress) -> None:
        """Measure what the search asks for, then put every value back as it was."""
        try:
            with bench:
                self._measure(search, bench, progress)
        except Interrupted as error:
            raise Interrupted(f"{error}; {_proven(search.choice())}") from error
        finally:
            self.put_back()

    def _measure(self, search: Search, bench: Bench, progress: Progress) -> None:
        """Tell the search the figures of each setting it asks for, while the budget lasts."""
        while (remaining := bench.affordable()) > 0:
            setting = search.ask(remaining)
            if setting is None:
                return
            self.set(with_followers(setting, self.before), "auto: trial")
            progress(1 - bench.seconds_left / bench.budget.seconds, _words(setting))
            try:
                search.tell(bench.measure())
            except BudgetSpent:
                return


def _words(setting: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())


def auto(
    resolver: Resolver,
    mount: Mount,
    workloads: Sequence[Workload],
    budget: Budget,
    *,
    allowed_owners: Collection[int] = (),
    size: int | None = None,
    seed: int = 0,
    progress: Progress = lambda share, words: None,
) -> Outcome:
    """Measure ``mount``, choose values, set and save them.

    ``resolver``: knows what the configuration allows. Nothing is changed unless it is proven
    better. Raises FusetuneError where it cannot be measured, `Interrupted` on a signal; every value
    is then as it was.
    """
    host = resolver.host
    if why := resolver.left_alone_reason(mount):
        raise FusetuneError(f"{printable(mount.path)} is left alone: {why}")
    with ExitStack() as contexts:
        contexts.enter_context(Lock(host, mount))
        interruption = contexts.enter_context(Interruption())
        before = values_now(host, mount)
        refuse = partial(resolver.refusal, mount, allowed_owners=allowed_owners)
        dimensions, reasons = searched(knobs_of(host, mount), before, workloads, refuse)
        if not dimensions:
            reasons.append("no knob that can be set live matters to these workloads")
            return Outcome(mount, list(workloads), before, before, _unchanged(), reasons=reasons)
        start = {dimension.name: before[dimension.name] for dimension in dimensions}
        search = Search(dimensions, start, [w.name for w in workloads], seed)
        bench = Bench(host, mount, workloads, budget, interruption, size)
        run = _Run(host, mount, before, Journal.to_change(host, mount))
        run.measure(search, bench, progress)
        choice = search.choice()
        after = before | with_followers(choice.setting, before)
        if choice.changed:
            run.keep(after, choice.gain)
            reasons += resolver.caveats(mount, after)
        reasons += [*choice.reasons, *_without_writeback(host, mount, workloads, before, after)]
        cost = (bench.seconds, bench.bytes_written, bench.evaluations)
        trials = search.trials
        return Outcome(mount, list(workloads), before, after, choice, trials, *cost, reasons)


def _unchanged() -> Choice:
    return Choice({}, False, Interval(1.0, 1.0, 1.0), {}, ())


def _proven(choice: Choice) -> str:
    if not choice.changed:
        return "nothing was proven better so far"
    gain = choice.gain
    return (
        f"the best proven so far was {_words(choice.setting)} with "
        f"{gain.ratio:.2f} [{gain.low:.2f}, {gain.high:.2f}] of the speed before"
    )


def _without_writeback(
    host: Host,
    mount: Mount,
    workloads: Sequence[Workload],
    before: Mapping[str, int],
    after: Mapping[str, int],
) -> list[str]:
    """Tell what a writeback cache would bring, if the measured writes went without one."""
    if not any(Access.BUFFERED_WRITE in workload.accesses for workload in workloads):
        return []
    if any(before.get(knob) != after.get(knob) for knob in ("max_ratio", "strict_limit")):
        return []  # a dirty limit was proven to matter, so there are dirty pages
    dirtied = dirtied_bytes(host, mount)
    if dirtied:
        return []
    found = (
        "this mount has no writeback cache"
        if dirtied == 0
        else "if this mount has no writeback cache (debugfs would tell)"
    )
    return [
        f"{found}: each small write is a request of its own, and max_ratio has no effect; "
        + remount_hint(mount, "writeback_cache")
    ]
