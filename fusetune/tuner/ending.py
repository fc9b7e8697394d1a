# SPDX-License-Identifier: GPL-2.0-or-later
"""How a search ended: by itself or by a part of its budget, and what a larger one would show."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusetune.bench.spending import NOTHING, OPTIONS, RANGES, Budget
from fusetune.tuner.search import Search

_GIB = 1 << 30


@dataclass(frozen=True)
class Ending:
    """What ended a search: `NOTHING`, `RANGES` or a part of ``budget``, after ``evaluations``."""

    by: str
    budget: Budget
    evaluations: int

    def reasons(self, search: Search, words: Callable[[Mapping[str, int]], str]) -> list[str]:
        """Return a sentence on it; ``words``: says what a setting changes."""
        if self.by == NOTHING:
            return []
        if self.by == RANGES:
            said = "the search ended because it has read all that the files have"
            more = "name more files with --files"
        else:
            said = f"the search ended because {OPTIONS[self.by]} {self._text(1.0)} is spent"
            more = "a larger one may find more"
        if found := search.unproven():
            setting, needed = found
            said += f", before {words(setting)} was proven: about {needed} evaluations more"
            if self.by != RANGES:
                more = f"try {OPTIONS[self.by]} {self._text(1 + 1.2 * needed / self.evaluations)}"
        return [f"{said}; {more}"]

    def _text(self, times: float) -> str:
        """Return so many times the part of the budget that was spent, as its option takes it."""
        if self.by == "seconds":
            return f"{math.ceil(self.budget.seconds * times):.0f}s"
        number = getattr(self.budget, self.by) * times
        if self.by == "requests":
            return f"{math.ceil(number)}"
        return f"{math.ceil(number / _GIB)}G" if number >= _GIB else f"{math.ceil(number / 2**20)}M"
