# SPDX-License-Identifier: GPL-2.0-or-later
"""How a search ended: by itself or by its budget, and what a larger budget could show."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusetune.bench.spending import ALL_READ, NOTHING, OPTIONS, RANGES, Budget
from fusetune.tuner.search import Search

_GIB = 1 << 30


@dataclass(frozen=True)
class Ending:
    """Why a search ended: `NOTHING`, `RANGES` or a part of ``budget``, after ``evaluations``."""

    by: str
    budget: Budget
    evaluations: int

    def reasons(self, search: Search, words: Callable[[Mapping[str, int]], str]) -> list[str]:
        """Return a sentence on it; ``words`` describes what a setting changes."""
        if self.by == NOTHING:
            return []
        said = f"the search ended because {self.cause}"
        ranges = self.by == RANGES
        more = "name more files with --files" if ranges else "a larger budget may find more"
        if found := search.unproven():
            setting, needed = found
            said += (
                f", before {words(setting)} was proven, which needs about {needed} more evaluations"
            )
            if not ranges and self.evaluations:  # a warm search may know it without any
                more = f"try {OPTIONS[self.by]} {self._text(1 + 1.2 * needed / self.evaluations)}"
        return [f"{said}; {more}"]

    @property
    def cause(self) -> str:
        """Return what is spent, as the end of a sentence."""
        if self.by == RANGES:
            return ALL_READ
        return f"too little is left of {OPTIONS[self.by]} {self._text(1.0)}"

    def _text(self, times: float) -> str:
        """Return a multiple of the exhausted budget in the syntax of its option."""
        if self.by == "seconds":
            return f"{math.ceil(self.budget.seconds * times):.0f}s"
        number = getattr(self.budget, self.by) * times
        if self.by == "requests":
            return f"{math.ceil(number)}"
        return f"{math.ceil(number / _GIB)}G" if number >= _GIB else f"{math.ceil(number / 2**20)}M"
