# SPDX-License-Identifier: GPL-2.0-or-later
"""Measurements on shadow mounts: one shadow for each set of options, within one budget."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from fusetune.bench.latency import Bins
from fusetune.bench.place import Unwritable
from fusetune.bench.reading import Reading, bench_of
from fusetune.bench.runner import Bench, BudgetSpent, PartSpent
from fusetune.bench.spending import (
    LEAST_BYTES,
    LEAST_REQUESTS,
    LEAST_SECONDS,
    Budget,
    Left,
    affordable,
    scarcest,
)
from fusetune.bench.usage import Usage
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import Workload
from fusetune.changes.apply import enforce
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.intercept import way
from fusetune.intercept.options import REQUIRED
from fusetune.recipes.examined import Examined
from fusetune.recipes.second import not_safe_with, second_variables, second_words
from fusetune.shadow.shadows import Shadow, Shadows
from fusetune.text import printable, shell_word
from fusetune.tuner.candidates import Candidates, Options

_MOST_SHADOWS = 8  # at the same time; each has a server and scratch files
#: Share of the time after which no more changes are mounted alone.
_ALONE = 0.5
_RECENT = 8  # evaluations from which the cost of the next one is estimated
#: Share of the byte budget that one shadow may write or read.
_SHARE = 4

_Open = tuple[Shadow, Bench, ExitStack]


class Trials:
    """Measures options and live knobs on shadow mounts, which it mounts on demand."""

    def __init__(
        self,
        host: Host,
        seen: Examined,
        shadows: Shadows,
        workloads: Sequence[Workload],
        budget: Budget,
        interruption: Interruption,
        size: int | None,
        reading: Reading | None,
    ) -> None:
        self._host, self._seen, self._shadows = host, seen, shadows
        self._workloads, self.budget, self._size = workloads, budget, size
        self._interruption = interruption
        self._open: dict[Options, _Open] = {}
        self._reading = reading
        self._ended: list[Bench] = []
        self._cost: list[float] = []
        self._start = time.monotonic()
        self.evaluations = 0
        #: Latencies of each workload at the last measurement, by name.
        self.bins: dict[str, Bins] = {}
        #: Host resources that each workload used then.
        self.usage: dict[str, Usage] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as every:
            for _, _, contexts in self._open.values():
                every.push(contexts)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def bytes_written(self) -> int:
        """Bytes written to all shadow mounts."""
        return sum(bench.bytes_written for bench in self._benches)

    @property
    def bytes_read(self) -> int:
        """Bytes of existing files read on all shadow mounts."""
        return sum(bench.bytes_read for bench in self._benches)

    @property
    def requests(self) -> int:
        """Calls of read(2) for these bytes."""
        return sum(bench.requests for bench in self._benches)

    @property
    def _benches(self) -> list[Bench]:
        return [*self._ended, *(bench for _, bench, _ in self._open.values())]

    def affordable(self, share: float) -> int:
        """Return how many evaluations fit into a share of the budget, at the latest cost."""
        return affordable(self._left(share))

    def scarcest(self, share: float) -> str:
        """Return the part of that share of the budget that limits the evaluations most."""
        return scarcest(self._left(share))

    def _left(self, share: float) -> Left:
        cost = sum(self._cost[-_RECENT:]) / len(self._cost[-_RECENT:])
        left = {"seconds": (share * self.budget.seconds - self.seconds) / cost - 1}
        for part in ("bytes_written", "bytes_read", "requests"):
            allowed, spent = getattr(self.budget, part), getattr(self, part)
            if self.evaluations and spent:
                left[part] = (share * allowed - spent) / (spent / self.evaluations)
        return left

    def try_alone(self, candidates: Candidates) -> dict[str, str]:
        """Mount each change with those that it requires; return the failures with their reasons.

        A server that does not come up takes long, so changes without time for it fail, too.
        """
        failed = {}
        for name in candidates.changes:
            if self.seconds > _ALONE * self.budget.seconds:
                failed[name] = f"too little is left of --budget {self.budget.seconds:.0f}s"
                continue
            try:
                self._shadows.end(self._mounted(candidates, candidates.with_required(name)))
            except FusetuneError as error:
                failed[name] = str(error)
            self._interruption.check()
        return failed

    def measure(
        self,
        candidates: Candidates,
        options: Options,
        knobs: Mapping[str, int],
    ) -> dict[str, float]:
        """Measure every workload once with ``options`` and live ``knobs``.

        Returns the figure of each workload, in its unit. Raises FusetuneError like `Bench`.
        """
        shadow, bench = self._bench(candidates, options)
        began = self.seconds
        enforce(self._host, shadow.mount, knobs)
        figures = bench.measure()
        self.bins, self.usage = bench.bins, bench.usage
        self._cost.append(self.seconds - began)
        self.evaluations += 1
        return figures

    def measure_reader(
        self, candidates: Candidates, options: Options, knobs: Mapping[str, int], job: Workload
    ) -> float:
        """Measure another workload like `Bench.measure_reader`, with ``options`` and ``knobs``."""
        shadow, bench = self._bench(candidates, options)
        enforce(self._host, shadow.mount, knobs)
        PartSpent.check(self.budget, self, bench.most_read(job))  # all shadows share it
        return bench.measure_reader(job)

    def _bench(self, candidates: Candidates, options: Options) -> tuple[Shadow, Bench]:
        self._interruption.check()
        found = self._open.pop(options, None) or self._opened(candidates, options)
        self._open[options] = found  # now the most recently used
        return found[:2]

    def _opened(self, candidates: Candidates, options: Options) -> _Open:
        seconds = self.budget.seconds - self.seconds
        if seconds < LEAST_SECONDS:
            if self.evaluations:
                raise BudgetSpent(seconds)
            raise FusetuneError(
                f"mounting its server with each option took {self.seconds:.0f} s, so less than "
                f"{LEAST_SECONDS:.0f} s are left to measure; give a larger --budget"
            )
        if len(self._open) == _MOST_SHADOWS:
            self._end(next(filter(None, self._open)))  # the one without options stays
        share = Budget(
            seconds,
            max(LEAST_BYTES, self._share("bytes_written")),
            max(LEAST_BYTES, self._share("bytes_read")),
            max(LEAST_REQUESTS, self._share("requests")),
        )
        with ExitStack() as contexts:
            shadow = self._mounted(candidates, options)
            contexts.callback(self._shadows.end, shadow)
            bench = bench_of(
                self._host,
                shadow.mount,
                self._workloads,
                share,
                self._interruption,
                size=self._size,
                reading=self._reading,
                sample_seconds=min(1.0, max(0.2, self.budget.seconds / 300)),
                inherited=[self._shadows.inherited],
            )
            bench.continues = self.evaluations > 0
            contexts.enter_context(bench)
            # Its share has determined what it reads at a time; from now on, it shares the whole.
            whole = self.budget
            bench.budget = replace(share, bytes_read=whole.bytes_read, requests=whole.requests)
            return shadow, bench, contexts.pop_all()

    def _share(self, part: str) -> int:
        """Return how much of a part of the budget one more shadow may use."""
        allowed: int = getattr(self.budget, part)
        spent: int = getattr(self, part)
        return min(allowed // _SHARE, allowed - spent)

    def _mounted(self, candidates: Candidates, options: Options) -> Shadow:
        plan = candidates.plan(options)
        words, environment = self._seen.command(plan)
        try:
            server = self._seen.recipe.server
            before = prefix(self._host, self._seen.module_options(plan))
            variables = second_variables(server, environment)
            shadow = self._shadows.mount(second_words(server, words), variables, before)
            if server.second == "read-only" and not shadow.mount.read_only:
                self._shadows.end(shadow)
                raise FusetuneError("its recipe's second_with does not make it read-only")
            return shadow
        except FusetuneError as error:
            changes = describe(candidates.values(options))
            what = f"with {changes}" if options else "with the current options"
            raise FusetuneError(f"no second instance can be mounted {what}: {error}") from error

    def _end(self, options: Options) -> None:
        _, bench, contexts = self._open.pop(options)
        self._ended.append(bench)
        contexts.close()


def prefix(host: Host, options: Sequence[str]) -> list[str]:
    """Return the command prefix that gives a server's mounts options of the module, if any."""
    return way.prefix(host, ",".join([REQUIRED, *options])) if options else []


def describe(values: Mapping[str, str | None]) -> str:
    """Return options with their values as text; those to leave out have a minus sign."""
    return " ".join(f"-{name}" if to is None else f"{name}={to}" for name, to in values.items())


def refuse_second(seen: Examined, reading: Reading | None) -> None:
    """Raise FusetuneError if a second instance is unsafe, `Unwritable` if it must be read-only."""
    server = seen.recipe.server
    said = f"{printable(seen.mount.path)}: running a second instance of {seen.recipe.name}"
    if server.second == "no":
        raise FusetuneError(
            f"{said} is not safe: {server.second_because}; 'fusetune advise "
            f"{shell_word(seen.mount.path)}' shows its options without measuring them"
        )
    if server.second == "read-only" and not server.second_with:
        raise FusetuneError(
            f"{said} is only safe read-only, but its recipe has no second_with for that: "
            f"{server.second_because}"
        )
    if unsafe := not_safe_with(server, seen.process.words):
        raise FusetuneError(f"{said} is not safe with {unsafe[0]}: {server.second_because}")
    if server.second == "read-only" and reading is None:
        raise Unwritable(f"{said} is only safe read-only: {server.second_because}")
