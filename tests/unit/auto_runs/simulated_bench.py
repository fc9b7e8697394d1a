# SPDX-License-Identifier: GPL-2.0-or-later
"""A bench with simulated figures, and runs of auto with it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from fusetune.bench.spending import Budget
from fusetune.bench.usage import Cpu, Usage
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import WORKLOADS, Workload
from fusetune.changes.state import values_now
from fusetune.desired.config import load
from fusetune.desired.resolve import Resolver
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.tuner.auto import Outcome, auto
from fusetune.tuner.costs import UNLIMITED, Limits
from tests.unit.conftest import Tree

Worth = Callable[[Mapping[str, int]], float]


class SimulatedBench:
    """Replaces `Bench`: figures are a function of the current values, with 1 % noise."""

    worth: Worth = staticmethod(lambda values: 100.0)
    guarded: Worth = staticmethod(lambda values: 100.0)
    cpu: Worth = staticmethod(lambda values: 1.0)
    memory: Worth = staticmethod(lambda values: 1 << 20)
    known = True
    evaluations_affordable = 60
    at_evaluation: Callable[[int], None] = staticmethod(lambda number: None)

    def __init__(
        self,
        host: Host,
        mount: Mount,
        workloads: Sequence[Workload],
        budget: Budget,
        interruption: Interruption,
        *,
        size: int | None = None,
        reading: None = None,
    ) -> None:
        self.host, self.mount, self.workloads, self.budget = host, mount, workloads, budget
        self.seconds, self.bytes_written, self.evaluations = 1.0, 0, 0
        self.bytes_read = self.requests = 0
        self.bins = {w.name: Counter({5e5: 1.0}) for w in workloads}
        self.usage: dict[str, Usage] = {}
        self._draw, self._cost_draw = random.Random(1), random.Random(2)
        self._take(values_now(host, mount))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def _take(self, values: Mapping[str, int]) -> None:
        spent = Cpu(type(self).cpu(values) * math.exp(self._cost_draw.gauss(0, 0.01)))
        usage = Usage(False, 1.0, Cpu(), spent, int(type(self).memory(values)))
        if not self.known:
            usage = replace(usage, server=None, memory_bytes=None)
        self.usage = {w.name: usage for w in self.workloads}

    @property
    def seconds_left(self) -> float:
        return self.budget.seconds - self.seconds

    def affordable(self, kept: float = 0.0) -> int:
        return self.evaluations_affordable - self.evaluations

    def scarcest(self, kept: float = 0.0) -> str:
        return "bytes_written"

    def measure_reader(self, workload: Workload) -> float:
        figure = type(self).guarded(values_now(self.host, self.mount))
        return figure * math.exp(self._draw.gauss(0, 0.01))

    def measure(self) -> dict[str, float]:
        self.at_evaluation(self.evaluations)
        self.evaluations += 1
        values = values_now(self.host, self.mount)
        self._take(values)
        figure = type(self).worth(values)
        return {w.name: figure * math.exp(self._draw.gauss(0, 0.01)) for w in self.workloads}


def run(
    tree: Tree,
    mount: Mount,
    workload: str = "small-write",
    seed: int = 0,
    limits: Limits = UNLIMITED,
    *,
    cold: bool = False,
) -> Outcome:
    resolver = Resolver(tree.host, load(tree.host))
    measured = [WORKLOADS[workload]]
    return auto(resolver, mount, measured, Budget(), seed=seed, limits=limits, cold=cold)


def dirtied(tree: Tree, kib: int) -> None:
    tree.write("sys/kernel/debug/bdi/0:40/stats", f"BdiDirtied: {kib:>10} kB\n")


def hints(outcome: Outcome) -> list[str]:
    return [reason for reason in outcome.reasons if "writeback cache" in reason]


def by_ratio(values: Mapping[str, int]) -> float:
    return 300.0 if values["max_ratio"] >= 10 else 100.0
