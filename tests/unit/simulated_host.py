# SPDX-License-Identifier: GPL-2.0-or-later
"""A host whose figures are computed from its settings, for the search to measure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

from fusetune.tuner.costs import UNKNOWN, Cost
from fusetune.tuner.grid import Setting
from fusetune.tuner.search import Choice, Search
from fusetune.tuner.space import Dimension

Worth = Callable[[Setting], float]


RATIO = Dimension("max_ratio", (1, 2, 5, 10, 20, 40, 70, 100), 1)
AHEAD = Dimension("read_ahead_kb", (0, *(32 << i for i in range(11))), 128)
BACKGROUND = Dimension("max_background", (12, 16, 24, 32, 48, 64, 96, 128, 256), 12)
STRICT = Dimension("strict_limit", (1, 0), 1, ordered=False)


def stock(*dimensions: Dimension) -> dict[str, int]:
    return {d.name: d.stock for d in dimensions}


def drive(
    search: Search,
    worth: Mapping[str, Worth],
    budget: int = 120,
    noise: float = 0.02,
    seed: int = 0,
    speed: Callable[[int], float] = lambda evaluation: 1.0,
    cost: Callable[[Setting], Cost] = lambda setting: UNKNOWN,
) -> Choice:
    """Answer the search's questions from a simulated host until it has finished."""
    draw = random.Random(seed)
    while (setting := search.ask(budget - search.evaluations)) is not None:
        factor = speed(search.evaluations)
        search.tell(
            {n: f(setting) * factor * math.exp(draw.gauss(0, noise)) for n, f in worth.items()},
            cost(setting),
        )
    assert search.evaluations <= budget
    return search.choice()


def hump(setting: Setting) -> float:
    """Best at 2048 KiB, with 3 times the figure of distant values."""
    octaves = math.log2((setting["read_ahead_kb"] + 8) / (2048 + 8))
    return 1 + 2 * math.exp(-(octaves**2) / 8)
