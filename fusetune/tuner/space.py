# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``auto`` searches: which knobs matter to a workload, and the values to try."""

import math
from collections.abc import Callable, Mapping, Sequence

from fusetune.bench.workloads import Workload
from fusetune.knobs import LIVE, Access, Knob
from fusetune.tuner.search import Dimension


def searched(
    knobs: Sequence[Knob],
    now: Mapping[str, int],
    workloads: Sequence[Workload],
    refuse: Callable[[str, int], str | None],
) -> tuple[list[Dimension], list[str]]:
    """Return the knobs to search for these workloads, and why others are left out.

    ``knobs``: the mount's. ``refuse``: tells why the mount must not get a knob's value, None if it
    may.
    """
    accesses = frozenset[Access]().union(*(workload.accesses for workload in workloads))
    dimensions, reasons = [], []
    for knob in knobs:
        if not knob.candidates or not knob.affects & accesses:
            continue
        if knob.name not in now or knob.stock is None:
            reasons.append(f"{knob.name}: not there on this kernel or mount")
            continue
        refused = [refuse(knob.name, value) for value in knob.candidates]
        allowed = tuple(v for v, why in zip(knob.candidates, refused, strict=True) if not why)
        reasons.extend([why for why in refused if why][:1])
        if {knob.stock, now[knob.name], *allowed} == {now[knob.name]}:
            continue
        dimensions.append(Dimension(knob.name, allowed, knob.stock, knob.ordered, knob.interacts))
    return dimensions, reasons


def with_followers(setting: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return ``setting`` with the knobs that move with another one, where that one moves."""
    whole = dict(setting)
    for knob in LIVE:
        if knob.follows and knob.name in before:
            leader, numerator, denominator = knob.follows
            if leader in setting:
                moved = setting[leader] != before[leader]
                share = math.ceil(setting[leader] * numerator / denominator)
                whole[knob.name] = share if moved else before[knob.name]
    return whole
