# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the next setting to measure, and in the end the setting that is proven better.

Pure: no I/O, no clock, no global random numbers; the same seed and figures give the same run.

The host drifts, so settings are measured in short blocks in random order, and only differences of
log figures within a block count. A run has two stages:

1. Exploration (`exploring`, `safer`). A few far points of each dimension, alone and together with
   the dimensions they interact with, then blocks of the incumbent and the candidates that promise
   most by the mixed model of `model.BlockModel`. A setting that is clearly worse or makes no
   difference promises nothing and is not measured again. The stage ends when nothing promises more,
   or when the rest of the budget is needed for the proof.
2. Confirmation (`confirming`). Start, incumbent and stock in fresh blocks. Only these samples
   decide, by Student intervals whose error is divided among all interim analyses: 1/2, 1/6, 1/12,
   ... of it, which sums to the whole however many analyses there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusetune.bench.intervals import Interval
from fusetune.tuner.confirming import Confirmation
from fusetune.tuner.explaining import reasons
from fusetune.tuner.exploring import Exploration
from fusetune.tuner.grid import Grid, Setting
from fusetune.tuner.model import Point
from fusetune.tuner.safer import SaferValues
from fusetune.tuner.space import Dimension
from fusetune.tuner.state import State, Steps

Figures = Mapping[str, float]  # workload name -> figure; higher is better; > 0


@dataclass(frozen=True)
class Trial:
    """One setting and all its samples so far, in order."""

    setting: dict[str, int]
    samples: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Choice:
    """The best proven setting.

    `gain` is chosen/start, the geometric mean over the workloads, and `per_workload` holds before,
    after (geometric means) and their ratio, all from the confirming blocks only; 1 (1 to 1) and
    nothing where unchanged. `reasons` has one sentence for each dimension, from the exploration.
    """

    setting: dict[str, int]
    changed: bool
    gain: Interval
    per_workload: dict[str, tuple[float, float, Interval]]
    reasons: tuple[str, ...]


class Search:
    """Ask for a setting, measure every workload under it once, tell the figures, repeat.

    ValueError where a dimension, start value, workload or figure is missing or impossible.
    """

    def __init__(
        self,
        dimensions: Sequence[Dimension],
        start: Setting,
        workloads: Sequence[str],
        seed: int = 0,
    ) -> None:
        if not workloads or len(set(workloads)) != len(workloads):
            raise ValueError("workloads must be one or more different names")
        self._grid = Grid(dimensions, start)
        self._state = State(self._grid, workloads, seed)
        self._confirmation = Confirmation(self._state)
        self._samples: dict[Point, list[dict[str, float]]] = {}
        self._steps = self._run()
        self._pending: Point | None = None
        self._asked = False
        self._begun = False

    def _run(self) -> Steps:
        state = self._state
        safer = SaferValues(state)
        exploration = Exploration(state, safer)
        while state.affordable(2):
            yield from exploration.run()
            yield from safer.walk_back()
            if not state.promising(state.incumbent):
                return
            yield from self._confirmation.run(state.incumbent)
            if self._confirmation.proof:
                return
            state.rejected.add(state.incumbent)

    def ask(self, remaining: int) -> dict[str, int] | None:
        """Return the next setting to evaluate, or None where the search has finished.

        `remaining` is how many evaluations are still affordable, this one included; it may shrink
        or grow between calls. At 0 or less None is returned, and a later call with more goes on.
        """
        if remaining <= 0:
            return None
        self._state.remaining = remaining
        if not self._begun:
            self._begun = True
            self._pending = next(self._steps, None)
        if self._pending is None:
            return None
        self._asked = True
        return self._grid.setting(self._pending)

    def tell(self, figures: Figures) -> None:
        """Take the figures of the setting asked for last.

        ValueError without such a setting, or unless each workload has a finite figure above 0.
        """
        if not self._asked or self._pending is None:
            raise ValueError("tell() needs an ask() before it")
        workloads = self._state.workloads
        if set(figures) != set(workloads):
            raise ValueError(f"figures wanted for {sorted(workloads)}, not {sorted(figures)}")
        for name, figure in figures.items():
            if not (math.isfinite(figure) and figure > 0):
                raise ValueError(f"figure of {name} must be a number above 0, not {figure}")
        self._asked = False
        self._state.evaluations += 1
        self._state.remaining -= 1
        kept = {name: float(figures[name]) for name in workloads}
        self._samples.setdefault(self._pending, []).append(kept)
        try:
            self._pending = self._steps.send(kept)
        except StopIteration:
            self._pending = None

    @property
    def trials(self) -> list[Trial]:
        """Every setting measured so far, in order of its first measurement."""
        return [Trial(self._grid.setting(p), tuple(s)) for p, s in self._samples.items()]

    @property
    def evaluations(self) -> int:
        """How many evaluations have been told."""
        return self._state.evaluations

    def choice(self) -> Choice:
        """Return the best setting proven by now: at any time, the start where none is."""
        proof = self._confirmation.proof
        point = proof.point if proof else self._grid.start
        return Choice(
            setting=self._grid.setting(point),
            changed=proof is not None,
            gain=proof.gain if proof else Interval(1.0, 1.0, 1.0),
            per_workload=dict(proof.per_workload) if proof else {},
            reasons=reasons(self._state, point),
        )
