# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that use a mount, for `Live` to watch: their waits depend on its settings."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fusetune.profile.waits import Mark, Of, Waited
from fusetune.profile.waits_program import Kind
from fusetune.tuner.blocks import LEAD
from fusetune.tuner.live import Live
from fusetune.tuner.space import SEARCHED, Dimension

Setting = Mapping[str, int]
#: Bytes per second of waiting of each kind that has traffic at that second.
Speeds = Callable[[Setting, float], Mapping[Kind, float]]

TICK = 0.1
_CALL = 4096


def dimension(name: str, stock: int) -> Dimension:
    """Return the dimension as ``auto`` searches it."""
    entry = SEARCHED[name]
    return Dimension(name, entry.candidates, stock, entry.ordered, entry.interacts)


AHEAD, BACKGROUND = dimension("read_ahead_kb", 128), dimension("max_background", 12)


class SimulatedTraffic:
    """A source of marks. ``written``: each setting with the second at which it was written."""

    def __init__(self, speeds: Speeds, seed: int = 0, noise: float = 0.1) -> None:
        self._speeds, self._noise = speeds, noise
        self._draw = random.Random(seed)
        self._now = 1000.0
        self.setting: dict[str, int] = {}
        self.written: list[tuple[float, dict[str, int]]] = []
        self.failing: Callable[[Setting], float] = lambda setting: 0.0
        self.waiting: Callable[[Setting], Sequence[tuple[Of, float]]] = lambda setting: ()
        #: Seconds in each tick during which programs wait in close(2) without having written.
        self.closing = 0.0

    def set(self, setting: Setting) -> None:
        """Apply a setting, as the mount would."""
        if setting != self.setting:
            self.setting = dict(setting)
            self.written.append((self._now, self.setting))

    def now(self) -> float:
        return self._now

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._now - 1000.0

    def next(self) -> Mark:
        self._now += TICK
        ended: dict[Of, Waited] = {}
        for kind, speed in self._speeds(self.setting, self.elapsed).items():
            nbytes = int(speed * TICK * math.exp(self._draw.gauss(0, self._noise)))
            calls = max(1, nbytes // _CALL)
            failed = round(calls * self.failing(self.setting))
            latency = Counter({TICK / calls * 1e9: calls})
            ended[kind, self._now - TICK] = Waited(TICK, calls, nbytes, failed, latency)
        if self.closing:
            closed = Waited(self.closing, 20, latency=Counter({self.closing / 20 * 1e9: 20}))
            ended.setdefault((Kind.WRITE, self._now - TICK), Waited()).add(closed)
        return Mark(self._now, ended, self.waiting(self.setting))


def searched(
    traffic: SimulatedTraffic,
    seconds: float = 120.0,
    seed: int = 0,
    dimensions: Sequence[Dimension] = (AHEAD, BACKGROUND),
) -> Live:
    """Run a search on the traffic from stock values to its end."""
    start = {each.name: each.stock for each in dimensions}
    live = Live(dimensions, start, traffic, traffic.set, seconds, seed=seed)
    live.run()
    return live


MIB = float(1 << 20)


def by_readahead(setting: Setting, best: int = 2048) -> float:
    """Return the speed of a sequential reader: readahead helps up to ``best`` KiB."""
    return MIB * min(setting["read_ahead_kb"], best) / 2


START = {"read_ahead_kb": 128, "max_background": 12}
#: Seconds of a block in runs of 120 s, including its lead.
BLOCK = 0.4 + LEAD + 2 * TICK


def reader(setting: Setting, second: float) -> Mapping[Kind, float]:
    return {Kind.READ: by_readahead(setting)}


def come_and_go(setting: Setting, second: float) -> Mapping[Kind, float]:
    """A reader, then nothing, then a writer, then nothing, every five seconds."""
    phase = second % 5
    if phase < 2:
        return {Kind.READ: by_readahead(setting)}
    return {Kind.WRITE: 5 * MIB} if 2.5 < phase < 4.5 else {}
