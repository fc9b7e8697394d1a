# SPDX-License-Identifier: GPL-2.0-or-later
"""The search space of ``auto``: which knobs affect which accesses, and the values to try.

To make ``auto`` search another knob, add an entry to `SEARCHED`.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fusetune.bench.workloads import Access, Workload
from fusetune.desired.drivers import left_to_driver
from fusetune.desired.resolve import Resolver
from fusetune.knobs import Knob, knobs_of
from fusetune.mounts.mount import Mount

#: Maximum factor by which a knob may change in one step on live traffic.
STEP = 4


@dataclass(frozen=True)
class Dimension:
    """A knob to search over.

    `values` are the candidates, from the smallest and safest to the largest and riskiest; `stock`,
    the kernel's default, and the start value are added if missing. `ordered`: neighbouring values
    perform similarly (values on a log scale, figure roughly unimodal); otherwise they are
    categories. `interacts` names dimensions whose best value may depend on this one's; naming it
    in one of the two suffices, and names of dimensions that are not searched are ignored.
    """

    name: str
    values: tuple[int, ...]
    stock: int
    ordered: bool = True
    interacts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Searched:
    """How ``auto`` searches a knob.

    ``candidates``: values to try besides stock, the safest first; ``affects``: the accesses of a
    workload that the knob can affect; ``ordered`` and ``interacts``: see `Dimension`.
    """

    candidates: tuple[int, ...]
    affects: frozenset[Access]
    ordered: bool = True
    interacts: tuple[str, ...] = ()

    def within(self, knob: Knob) -> tuple[int, ...]:
        """Return the candidates within the range of ``knob`` on its mount."""
        high = math.inf if knob.high is None else knob.high
        return tuple(value for value in self.candidates if knob.low <= value <= high)


@dataclass(frozen=True)
class Follower:
    """A knob that is not searched but set to a fraction of another one, rounded up."""

    leader: str
    numerator: int
    denominator: int


_READ_OR_WRITE = frozenset({Access.BUFFERED_READ, Access.BUFFERED_WRITE})

#: The knobs that ``auto`` searches, by name.
SEARCHED = {
    "read_ahead_kb": Searched(
        candidates=(0, 32, 64, *(128 << power for power in range(9))),
        affects=frozenset({Access.BUFFERED_READ}),
        interacts=("max_background",),
    ),
    "max_background": Searched(
        candidates=(12, 16, 24, 32, 48, 64, 96, 128, 256),
        affects=_READ_OR_WRITE | {Access.DIRECT_READ},
        interacts=("read_ahead_kb", "max_ratio"),
    ),
    "max_ratio": Searched(
        candidates=(1, 2, 5, 10, 20, 40, 70, 100),
        affects=frozenset({Access.BUFFERED_WRITE}),
        interacts=("strict_limit", "max_background"),
    ),
    "strict_limit": Searched(
        candidates=(1, 0),
        affects=frozenset({Access.BUFFERED_WRITE}),
        ordered=False,
        interacts=("max_ratio",),
    ),
    "max_pages": Searched(
        candidates=(16, 32, 64, 128, 256, 512, 1024),
        affects=_READ_OR_WRITE | {Access.DIRECT_READ, Access.DIRECT_WRITE},
        interacts=("read_ahead_kb",),
    ),
}

#: The knobs that follow a searched one, by name. The kernel itself starts with this fraction
#: (FUSE_DEFAULT_CONGESTION_THRESHOLD).
FOLLOWERS = {"congestion_threshold": Follower("max_background", 3, 4)}


def searched_on(
    resolver: Resolver,
    mount: Mount,
    now: Mapping[str, int],
    workloads: Sequence[Workload],
    allowed_owners: Collection[int],
) -> tuple[list[Dimension], list[str]]:
    """Return `searched` of a mount, with the values that the configuration allows."""
    refuse = partial(resolver.refusal, mount, allowed_owners=allowed_owners)
    left = left_to_driver(resolver.host, mount)
    ours = [knob for knob in knobs_of(resolver.host, mount) if knob.name not in left]
    dimensions, reasons = searched(ours, now, workloads, refuse)
    return dimensions, [*reasons, *left.values()]


def searched(
    knobs: Sequence[Knob],
    now: Mapping[str, int],
    workloads: Sequence[Workload],
    refuse: Callable[[str, int], str | None],
) -> tuple[list[Dimension], list[str]]:
    """Return the knobs to search for these workloads, and why others are left out.

    ``knobs``: the mount's. ``refuse``: returns why the mount must not get a knob's value, None if
    it may.
    """
    accesses = frozenset[Access]().union(*(workload.accesses for workload in workloads))
    dimensions, reasons = [], []
    for knob in knobs:
        entry = SEARCHED.get(knob.name)
        if entry is None or not entry.affects & accesses:
            continue
        candidates = entry.within(knob)
        if not candidates:
            continue
        if knob.name not in now or knob.stock is None:
            reasons.append(f"{knob.name}: not available on this kernel or mount")
            continue
        refused = [refuse(knob.name, value) for value in candidates]
        allowed = tuple(v for v, why in zip(candidates, refused, strict=True) if not why)
        reasons.extend([why for why in refused if why][:1])
        if {knob.stock, now[knob.name], *allowed} == {now[knob.name]}:
            continue
        dimensions.append(Dimension(knob.name, allowed, knob.stock, entry.ordered, entry.interacts))
    return dimensions, reasons


def largest(dimensions: Sequence[Dimension], name: str) -> int:
    """Return the largest value of the dimension of that name; 0 if there is none."""
    return max((value for d in dimensions if d.name == name for value in d.values), default=0)


def near(dimension: Dimension, value: int, earlier: int) -> Dimension | None:
    """Return the dimension limited to one step from ``value``, None if there is no other value.

    One step is at most a factor of 4 in either direction; from and to 0 it is to the neighbouring
    value. It does not go back to or beyond ``earlier``, from which a proof led to ``value``. A
    category has no steps.
    """
    if not dimension.ordered:
        return dimension
    every = sorted({value, dimension.stock, *dimension.values})
    at = every.index(value)
    kept = tuple(
        v
        for i, v in enumerate(every)
        if ((v <= STEP * value and value <= STEP * v) or (0 in (v, value) and abs(i - at) <= 1))
        and (v - earlier) * (value - earlier) >= (value != earlier)
    )
    stock = dimension.stock if dimension.stock in kept else value
    return replace(dimension, values=kept, stock=stock) if len(kept) > 1 else None


def with_followers(setting: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return ``setting`` with the followers of its knobs, which change with their leaders."""
    whole = dict(setting)
    for name, follower in FOLLOWERS.items():
        leader = follower.leader
        if name in before and leader in setting:
            moved = setting[leader] != before[leader]
            share = math.ceil(setting[leader] * follower.numerator / follower.denominator)
            whole[name] = share if moved else before[name]
    return whole
