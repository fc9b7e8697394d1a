# SPDX-License-Identifier: GPL-2.0-or-later
"""Confirmation: start, incumbent and stock in fresh blocks, until a gain is proven or hopeless."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from fusetune.bench.intervals import Interval, ratio_interval
from fusetune.tuner import constants
from fusetune.tuner.model import Point, dot
from fusetune.tuner.state import State, Steps, error_of_analysis

Blocks = list[dict[Point, dict[str, float]]]


@dataclass(frozen=True)
class Proof:
    """A point beside the start: its gain, and before, after and their ratio of each workload."""

    point: Point
    gain: Interval
    per_workload: dict[str, tuple[float, float, Interval]]

    def worse_somewhere(self) -> bool:
        """Tell whether a workload is proven to be worse."""
        return any(ratio.high < 1 for _, _, ratio in self.per_workload.values())

    def holds(self) -> bool:
        """Tell whether the gain is proven and worth a change, and no workload is proven worse."""
        worth = self.gain.ratio >= math.exp(constants.LEAST_GAIN)
        return self.gain.low > 1 and worth and not self.worse_somewhere()


class Confirmation:
    """Proves points on samples of its own; `proof` is the best so far, None without any."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._start, self._stock = state.grid.start, state.grid.stock
        self.proof: Proof | None = None

    def run(self, point: Point) -> Steps:
        """Measure start, point and stock in fresh blocks until the gain is proven or hopeless."""
        state = self._state
        contestants = list(dict.fromkeys([self._start, *self._rivals(point)]))
        state.random.shuffle(contestants)
        blocks: Blocks = []
        pairs_wanted = max(constants.FEWEST_PAIRS, state.pairs_needed())
        while state.remaining >= len(contestants):
            blocks.append((yield from state.measure_in_order(contestants)))
            contestants.reverse()  # so that a steady drift cancels over two blocks
            if len(blocks) < constants.FEWEST_PAIRS:
                continue
            last = state.remaining < len(contestants)
            if len(blocks) >= pairs_wanted or last:
                if self.analyse(blocks, point):
                    return
                pairs_wanted = math.ceil(constants.ANALYSIS_GROWTH * len(blocks))
            if self.is_futile(blocks, point):
                return
        state.short = True

    def _rivals(self, point: Point) -> list[Point]:
        """Return what may be proven better than the start: the point, and stock last."""
        stock = [] if self._state.refused(self._stock) else [self._stock]
        return list(dict.fromkeys([point, *stock]))

    def analyse(self, blocks: Blocks, point: Point) -> bool:
        """Make an interim analysis; tell whether a setting is proven or the point is hopeless."""
        self._state.analyses += 1
        rivals = [p for p in self._rivals(point) if p != self._start]
        error = error_of_analysis(self._state.analyses) / len(rivals)
        proofs = {p: self._compare(blocks, p, error) for p in rivals}
        proven = [p for p in rivals if proofs[p].holds() and self._worth_its_cost(proofs[p])]
        leading = max(p.gain.ratio for p in proofs.values())
        as_good = leading * math.exp(-constants.INDIFFERENCE)
        if proven:
            good = [p for p in proven if proofs[p].gain.ratio >= as_good]
            # Stock comes last in proven: it wins where it is as good, unless the point is cheaper.
            self.proof = proofs[self._state.costs.cheapest(good[::-1] or proven[-1:])]
            if good:
                return True
        return self._state.excluded(point) or proofs[point].worse_somewhere()

    def _worth_its_cost(self, proof: Proof) -> bool:
        """Tell whether a proven gain keeps the limits and is worth its cost."""
        state, point = self._state, proof.point
        worth = state.keeps_limits(point, proven=True)
        worth = worth and not state.too_dear(point, self._start, proof.gain)
        if not worth and self.proof and self.proof.point == point:
            self.proof = None
        return worth

    def is_futile(self, blocks: Blocks, point: Point) -> bool:
        """Tell whether even an optimistic reading of the blocks leaves no way to a proof."""
        state = self._state
        differences = [
            dot(state.weights, [math.log(b[point][w] / b[self._start][w]) for w in state.workloads])
            for b in blocks
        ]
        noise = math.sqrt(2) * state.model.noise
        hope = math.log(ratio_interval(differences, 0.3, noise).high)
        affordable = len(blocks) + state.remaining // len(blocks[0])
        if hope < constants.LEAST_GAIN:
            return True
        state.short = state.pairs_for(hope, 0.0) > affordable
        return state.short

    def _compare(self, blocks: Blocks, point: Point, error: float) -> Proof:
        """Return the point's ratios to the start over the blocks, with intervals of that error."""
        model = self._state.model
        differences: list[list[float]] = []
        per_workload = {}
        for k, workload in enumerate(self._state.workloads):
            before = [math.log(b[self._start][workload]) for b in blocks]
            after = [math.log(b[point][workload]) for b in blocks]
            differences.append([a - b for a, b in zip(after, before, strict=True)])
            noise = math.sqrt(2) * model.output_noise(k)
            interval = ratio_interval(differences[-1], error, noise)
            per_workload[workload] = (math.exp(fmean(before)), math.exp(fmean(after)), interval)
        means = [dot(self._state.weights, d) for d in zip(*differences, strict=True)]
        gain = ratio_interval(means, error, math.sqrt(2) * model.noise)
        return Proof(point, gain, per_workload)
