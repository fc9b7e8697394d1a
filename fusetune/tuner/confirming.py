# SPDX-License-Identifier: GPL-2.0-or-later
"""Confirmation: measure start, incumbent and stock until a gain is proven or hopeless."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from fusetune.bench.intervals import Interval, ratio_interval, without_hiccups
from fusetune.tuner import constants
from fusetune.tuner.model import Point, dot
from fusetune.tuner.state import State, Steps

Blocks = list[dict[Point, dict[str, float]]]


@dataclass(frozen=True)
class Proof:
    """A point compared with the start: its gain, and each workload's before, after and ratio."""

    point: Point
    gain: Interval
    per_workload: dict[str, tuple[float, float, Interval]]

    def worse_somewhere(self) -> bool:
        """Return whether a workload is proven to be worse."""
        return any(ratio.high < 1 for _, _, ratio in self.per_workload.values())

    def holds(self) -> bool:
        """Return whether the gain is proven and worth a change, and no workload proven worse."""
        worth = self.gain.ratio >= math.exp(constants.LEAST_GAIN)
        return self.gain.low > 1 and worth and not self.worse_somewhere()


class Confirmation:
    """Proves points on separate samples; `proof` is the best so far, None if there is none.

    `first_block`: where the blocks of the last proof begin among those of the search. `undecided`:
    the points whose proof ended for lack of budget.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._start = state.grid.start
        self.proof: Proof | None = None
        self.first_block = 0
        self.undecided: list[Point] = []
        self._unfinished: tuple[Blocks, Point] | None = None

    def run(self, point: Point) -> Steps:
        """Measure the contestants in fresh blocks until the gain is proven or hopeless."""
        state = self._state
        self.first_block = len(state.blocks())
        contestants = state.contestants(point)
        state.random.shuffle(contestants)
        blocks: Blocks = []
        self._unfinished = (blocks, point)
        yield from self._measure(blocks, point, contestants)
        self._unfinished = None

    def _measure(self, blocks: Blocks, point: Point, contestants: list[Point]) -> Steps:
        state = self._state
        pairs_wanted = max(constants.FEWEST_PAIRS, state.pairs_needed(point))
        while state.remaining >= len(contestants):
            blocks.append((yield from state.measure_in_order(contestants)))
            contestants.reverse()  # so that a steady drift cancels over two blocks
            if len(blocks) < constants.FEWEST_PAIRS:
                continue
            last = state.remaining < len(contestants)
            if len(blocks) >= pairs_wanted or last:
                if self.analyse(blocks, point, last=last):
                    return
                pairs_wanted = math.ceil(constants.ANALYSIS_GROWTH * len(blocks))
            if self.is_futile(blocks, point):
                break
        else:
            state.short = True
        if state.short:
            self.undecided.append(point)

    def end(self) -> None:
        """Analyse the complete blocks of an unfinished proof, if there are enough."""
        if self.proof or not self._unfinished:
            return
        blocks, point = self._unfinished
        if len(blocks) >= constants.FEWEST_PAIRS:
            self.analyse(blocks, point, last=True)

    def drop(self) -> None:
        """Forget the proof, finished or not."""
        self.proof = self._unfinished = None

    def analyse(self, blocks: Blocks, point: Point, *, last: bool = False) -> bool:
        """Make an interim analysis; return whether a setting is proven or the point is hopeless.

        `last`: whether no more blocks are affordable.
        """
        state = self._state
        error = state.next_error(last=last)
        state.analyses += 1
        if last:
            state.last_error = 0.0
        stock = [p for p in blocks[0] if p not in (self._start, point)]
        rivals = [point, *(p for p in stock if not state.refused(p))]
        proofs = {p: self._compare(blocks, p, error / len(rivals)) for p in rivals}
        proven = [p for p in rivals if proofs[p].holds() and self._worth_its_cost(proofs[p])]
        leading = max(p.gain.ratio for p in proofs.values())
        as_good = leading * math.exp(-constants.INDIFFERENCE)
        if proven:
            good = [p for p in proven if proofs[p].gain.ratio >= as_good]
            # Stock comes last in proven: it wins if it is equally good, unless the point is
            # cheaper.
            self.proof = proofs[state.costs.cheapest(good[::-1] or proven[-1:])]
            if good:
                return True
        return state.excluded(point) or proofs[point].worse_somewhere()

    def _worth_its_cost(self, proof: Proof) -> bool:
        """Return whether a proven gain keeps the limits and is worth its cost."""
        state, point = self._state, proof.point
        worth = state.keeps_limits(point, proven=True)
        worth = worth and not state.too_dear(point, self._start, proof.gain)
        if not worth and self.proof and self.proof.point == point:
            self.proof = None
        return worth

    def is_futile(self, blocks: Blocks, point: Point) -> bool:
        """Return whether a proof is out of reach even by an optimistic reading of the blocks."""
        state = self._state
        differences = [state.log_ratio(block[point], block[self._start]) for block in blocks]
        noise = math.sqrt(2) * state.model.noise
        hope = math.log(ratio_interval(differences, constants.FUTILE, noise).high)
        affordable = len(blocks) + state.remaining // len(blocks[0])
        if hope < constants.LEAST_GAIN:
            return True
        state.short = state.pairs_for(hope, 0.0, state.next_error(last=True)) > affordable
        return state.short

    def _compare(self, blocks: Blocks, point: Point, error: float) -> Proof:
        """Return the point's ratios to the start over the blocks, with intervals for that error."""
        model = self._state.model
        differences: list[list[float]] = []
        per_workload = {}
        for k, workload in enumerate(self._state.workloads):
            before = [math.log(b[self._start][workload]) for b in blocks]
            after = [math.log(b[point][workload]) for b in blocks]
            differences.append([a - b for a, b in zip(after, before, strict=True)])
            noise = math.sqrt(2) * model.output_noise(k)
            interval = ratio_interval(differences[-1], error, noise)
            kept = without_hiccups(differences[-1], noise)
            old, new = (math.exp(fmean(logs[i] for i in kept)) for logs in (before, after))
            per_workload[workload] = (old, new, interval)
        together = [dot(self._state.weights, d) for d in zip(*differences, strict=True)]
        gain = ratio_interval(together, error, math.sqrt(2) * model.noise)
        return Proof(point, gain, per_workload)
