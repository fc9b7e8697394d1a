# SPDX-License-Identifier: GPL-2.0-or-later
"""The search of ``auto --live``: settings are compared in blocks of the mount's own traffic.

It has three parts, and starts over if the traffic changes its kind:

1. Look: what do programs wait for with the current values?
2. Rounds of `Search` around the best values so far, the incumbent, with each knob within 4 times
   its value there. The values that a round proves become the next incumbent. After the rounds,
   values that turn out to be of no use are put back.
3. Proof: the initial values and the last incumbent in turn, for the rest of the time. Only these
   blocks decide. If the last of them contradict the gain, nothing is kept.

All times come from the marks: nothing here reads a clock.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fusetune.bench.intervals import Interval
from fusetune.bench.latency import Latencies
from fusetune.bench.workloads import Access, Workload
from fusetune.profile.waits import Mark
from fusetune.profile.waits_program import Kind
from fusetune.tuner.auto import unchanged, words_of
from fusetune.tuner.blocks import LEAST_CALLS, Block, Reference, name_of
from fusetune.tuner.pairs import Pairs
from fusetune.tuner.search import Choice, Search, Trial
from fusetune.tuner.space import SEARCHED, Dimension, near

# These numbers are decisions; tests/unit/test_live.py shows their effect on simulated traffic.
#
# Length of a block in seconds: 1200 blocks fit into 30 minutes; limited to these bounds.
_BLOCKS, _SHORTEST, _LONGER = 1200, 0.4, 2.0
# Seconds after which a block without enough traffic is abandoned.
_LONGEST = 15.0
# A block that is not full may be this many times as long as others.
_FULLER = 3
# Blocks of the look, and the share of the waiting time below which a kind is ignored.
_LOOK, _LEAST_SHARE = 8, 0.05
# Minimum share of the time for the look, so that it sees programs that come and go.
_LOOK_SHARE = 0.03
# Pairs with which a step is checked again, unless the lower end of the interval of its log gain is
# above this share of the gain. With 4 pairs, chance alone is then 3 times less likely.
_STEP_PAIRS, _BEYOND_DOUBT = 6, 1 / 3
# Consecutive blocks that lack a kind of traffic and have another, after which the search restarts.
_MISSING = 3
# Share of the time for the search.
_SEARCH = 0.7
# Share of the time after which values of no use are no longer put back.
_PUT_BACK = 0.75
# In the proof, a block ends after this many minimum lengths even if a kind lacks traffic.
_PATIENCE = 4
# Consecutive rounds that prove nothing, after which the search ends. One round is not enough,
# because uneven traffic may hide a gain.
_TRIES = 2
# Consecutive aborted blocks, caused by the values, after which the proof fails.
_SLOW = 2

#: What programs wait for. The figure is the bytes transferred per second of waiting.
WAITS = {
    name_of(kind): Workload(name_of(kind), measures, frozenset({access}))
    for kind, measures, access in (
        (Kind.READ, "read(2) and its variants, on files opened meanwhile", Access.BUFFERED_READ),
        (Kind.WRITE, "write(2) and its variants, fsync(2), and close(2)", Access.BUFFERED_WRITE),
        (Kind.FAULT, "page faults in mapped files", Access.BUFFERED_READ),
    )
}


class Source(Protocol):
    """An observer of the mount, such as `profile.waits.Waits`."""

    def now(self) -> float:
        """Return the current time in seconds."""

    def next(self) -> Mark:
        """Return the next mark."""


#: A setting's values by name.
Key = tuple[tuple[str, int], ...]


@dataclass
class Found:
    """The results so far.

    ``choice``: the result of the proof. ``incumbent``: the values to compare others with;
    ``proven``: the incumbent, once a round has proven one, until a proof fails. ``shares``: of the
    waiting time. ``idle``: blocks without enough traffic. ``of_round``: the last round's reasons.
    ``short``: whether the time limit ended the search.
    """

    choice: Choice
    incumbent: dict[str, int]
    proven: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    samples: dict[Key, list[dict[str, float]]] = field(default_factory=dict)
    latencies: Latencies = field(default_factory=Latencies)
    evaluations: int = 0
    idle: int = 0
    reasons: list[str] = field(default_factory=list)
    of_round: list[str] = field(default_factory=list)
    short: bool = True

    def take(self, setting: Mapping[str, int], block: Block) -> None:
        """Add a block with ``setting``."""
        self.evaluations += 1
        figures = block.figures()
        if figures:
            self.samples.setdefault(tuple(setting.items()), []).append(figures)
            self.latencies.add(setting, block.bins())
        else:
            self.idle += 1

    @property
    def trials(self) -> list[Trial]:
        """Every setting, in order of its first block."""
        return [Trial(dict(key), tuple(samples)) for key, samples in self.samples.items()]


class Live:
    """One search on live traffic.

    ``start``: the initial values. ``set_values``: writes a setting of all dimensions. ``check``:
    raises if the run was interrupted. ``seconds``: the time limit of the whole run. Passes on the
    exceptions of these and of the source.
    """

    def __init__(
        self,
        dimensions: Sequence[Dimension],
        start: Mapping[str, int],
        source: Source,
        set_values: Callable[[Mapping[str, int]], None],
        seconds: float,
        *,
        seed: int = 0,
        check: Callable[[], None] = lambda: None,
        progress: Callable[[float, str], None] = lambda share, words: None,
    ) -> None:
        self._dimensions, self.start, self._source = dimensions, dict(start), source
        self._set, self._check, self._progress = set_values, check, progress
        self._seed, self._all = seed, seconds
        self._begun = source.now()
        self._least = min(_LONGER, max(_SHORTEST, seconds / _BLOCKS))
        self._reference = Reference()
        self._cost, self._rounds = 0.0, 0
        self._passed_over: list[Mapping[str, int]] = []
        self._earlier: Mapping[str, int] = dict(start)
        self.found = Found(unchanged(), dict(start))

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._source.now() - self._begun

    def run(self) -> None:
        """Search until nothing promising is left to try, or the time is up."""
        found = self.found
        while self._left(_SEARCH) > 0 and self._look():
            fruitless, proven = 0, None
            while fruitless < _TRIES and (proven := self._round()) is not None:
                fruitless = 0 if proven else fruitless + 1
            if found.incumbent != self.start:
                while self._put_one_back():
                    pass
                self._prove()
                if found.choice.changed:
                    return
                found.incumbent, found.proven = dict(self.start), {}
                self._earlier = self.start
            elif proven is False:
                return

    def _left(self, share: float = 1.0) -> float:
        """Return the remaining seconds of a share of the time."""
        return share * self._all - self.seconds

    def _block(
        self,
        setting: Mapping[str, int],
        wanted: Collection[str] = (),
        patience: float = _LONGEST,
        judge: Reference | None = None,
    ) -> tuple[Block, str | None]:
        """Observe the traffic with ``setting``; return the block, and why it was aborted.

        It ends when each of the ``wanted`` kinds has enough traffic. After ``patience`` seconds, or
        if none is wanted, any kind suffices. ``judge``: decides whether to abort.
        """
        self._set(setting)
        self._progress(min(1.0, self.seconds / self._all), words_of(setting))
        block, begun, why = Block(self._source.now()), self.seconds, None
        while not why and self._left() > 0:
            self._check()
            block.take(self._source.next())
            length = self._least * (1 if block.is_full(wanted) else _FULLER)
            why = judge.why_worse(block, length) if judge else None
            seen = block.figures().keys()
            enough = seen >= set(wanted) if wanted and block.seconds < patience else bool(seen)
            if block.seconds >= (length if enough else _LONGEST):
                break
        self.found.take(setting, block)
        self._cost += self.seconds - begun
        return block, why

    def _look(self) -> bool:
        """Observe what programs wait for with the incumbent; return whether they wait at all."""
        self._reference, self._passed_over = Reference(), []
        blocks: list[Block] = []
        began = self.seconds
        while len(blocks) < _LOOK or self.seconds - began < _LOOK_SHARE * self._all:
            if self._left(_SEARCH) <= 0:
                return False
            block, _ = self._block(self.found.incumbent)
            if block.figures():
                blocks.append(block)
                self._reference.add(block)
        least = LEAST_CALLS * len(blocks) / len(Kind)  # at least one kind has as many
        # Programs may wait in close(2) without writing: a kind without bytes has no figure.
        useful = {kind: [block for block in blocks if block.nbytes(kind)] for kind in Kind}
        waited = {
            name_of(kind): sum(block.waited(kind) for block in those)
            for kind, those in useful.items()
            if sum(block.calls(kind) for block in those) >= least
        }
        whole = sum(waited.values())
        kept = {name: one for name, one in waited.items() if one >= _LEAST_SHARE * whole}
        self.found.shares = {name: one / sum(kept.values()) for name, one in kept.items()}
        return bool(kept)

    def _round(self) -> bool | None:
        """Search around the incumbent; proven values become the incumbent.

        Return whether any were proven, None if the traffic changed its kind.
        """
        found, shares = self.found, self.found.shares
        dimensions = [
            limited
            for each in self._dimensions
            if self._matters(each) and (limited := self._near(each))
        ]
        start = {each.name: found.incumbent[each.name] for each in dimensions}
        if not start:
            return False
        self._rounds += 1
        search = Search(
            dimensions,
            start,
            list(shares),
            self._seed + self._rounds,
            list(shares.values()),
            stepwise=True,
            passed_over=self._passed_over,
        )
        measured = self._measured(search, start)
        if measured is None:
            found.reasons.append("the kind of traffic changed, so the search started over")
            return None
        choice = search.choice()
        found.short = search.short or self._left(_SEARCH) <= 0
        better = found.incumbent | choice.setting
        holds = choice.changed and self._step_holds(better, choice.gain)
        if choice.changed and not holds:
            search.refuse()
            step = words_of(choice.setting)
            found.reasons.append(f"{step}: not kept; its gain was not confirmed")
        if search.evaluations:
            found.of_round = list(search.choice().reasons)
        if not holds:
            return False
        self._passed_over = []
        self._reference = Reference()
        for block in measured.get(tuple(choice.setting.items()), ()):
            self._reference.add(block)
        self._earlier, found.incumbent, found.proven = found.incumbent, better, better
        return True

    def _measured(self, search: Search, start: Mapping[str, int]) -> dict[Key, list[Block]] | None:
        """Measure what a search asks for; return the blocks of each setting.

        None if the traffic changed its kind.
        """
        found, shares = self.found, self.found.shares
        missing, measured = 0, dict[Key, list[Block]]()
        while (setting := search.ask(self._affordable())) is not None:
            judge = None if setting == start else self._reference
            block, why = self._block(found.incumbent | setting, shares, judge=judge)
            figures = block.figures()
            if why:
                if self._is_to_blame(shares):
                    found.reasons.append(f"{words_of(setting)}: skipped, because {why}")
                    search.pass_over()
                    self._passed_over.append(setting)
            elif figures.keys() >= shares.keys():
                missing = 0
                search.tell({name: figures[name] for name in shares})
                measured.setdefault(tuple(setting.items()), []).append(block)
                if setting == start:
                    self._reference.add(block)
            else:
                missing += bool(figures)
                found.idle += bool(figures)
                if missing == _MISSING:
                    return None
        return measured

    def _near(self, dimension: Dimension) -> Dimension | None:
        name = dimension.name
        return near(dimension, self.found.incumbent[name], self._earlier[name])

    def _matters(self, dimension: Dimension) -> bool:
        accesses = frozenset[Access]().union(*(WAITS[n].accesses for n in self.found.shares))
        return bool(SEARCHED[dimension.name].affects & accesses)

    def _step_holds(self, better: Mapping[str, int], gain: Interval) -> bool:
        """Compare the incumbent with proven values once more, unless their gain is beyond doubt.

        There are as many rounds as steps, so without this check one of them may well be wrong. The
        first step is from the start, with which the proof compares anyway.
        """
        beyond_doubt = math.log(gain.low) > _BEYOND_DOUBT * math.log(gain.ratio)
        if beyond_doubt or self.found.incumbent == self.start:
            return True
        shares = self.found.shares
        pairs, order = Pairs(shares), [self.found.incumbent, better]
        for _ in range(_STEP_PAIRS):
            if self._left(_SEARCH) <= 0:
                break
            figures = {
                setting is better: self._block(setting, shares)[0].figures() for setting in order
            }
            pairs.add(figures[False], figures[True])
            order.reverse()
        return pairs.holds()

    def _put_one_back(self) -> bool:
        """Put a value that is one step from its initial one back, unless all of them are of use.

        Rounds only compare with the incumbent, so useless values of earlier ones would remain. The
        only change is left to the proof. What makes programs wait is not tried again.
        """
        found, shares = self.found, self.found.shares
        back = {
            each.name: {**found.incumbent, each.name: self.start[each.name]}
            for each in self._dimensions
            if self._is_one_step_back(each)
        }
        back = {name: setting for name, setting in back.items() if setting != self.start}
        settings: dict[str, Mapping[str, int]] = {"": found.incumbent, **back}
        pairs = {name: Pairs(shares) for name in back}
        for turn in range(_STEP_PAIRS):
            if not back or self._left(_PUT_BACK) <= 0:
                return False
            order, figures = ["", *back], {}
            for name in reversed(order) if turn % 2 else order:
                judge = self._reference if name else None
                block, why = self._block(settings[name], shares, judge=judge)
                figures[name] = block.figures()
                if why:
                    del back[name]
            for name in back:
                pairs[name].add(figures[""], figures[name])
        useless = [name for name in back if not pairs[name].seem_slower()]
        if useless:
            found.incumbent = found.proven = back[useless[0]]
        return bool(useless)

    def _is_one_step_back(self, dimension: Dimension) -> bool:
        before, now = self.start[dimension.name], self.found.incumbent[dimension.name]
        limited = near(dimension, now, now)
        return before != now and limited is not None and before in limited.values

    def _affordable(self) -> int:
        """Return how many evaluations fit into the rest of the search's time."""
        return max(0, int(self._left(_SEARCH) * self.found.evaluations / self._cost))

    def _is_to_blame(self, wanted: Collection[str]) -> bool:
        """Restore the incumbent at once; return whether the previous values were to blame.

        If its own block is as bad, the traffic has changed, and its reference is discarded.
        """
        block, _ = self._block(self.found.incumbent, wanted)
        changed = self._reference.why_worse(block) is not None
        if changed:
            self._reference = Reference()
        self._reference.add(block)
        return not changed

    def _prove(self) -> None:
        """Measure the start and the incumbent in turn for the rest of the time."""
        found, last = self.found, dict(self.found.incumbent)
        pairs, order = Pairs(found.shares), [self.start, last]
        found.incumbent, self._reference = self.start, Reference()
        slow = 0
        while self._left() > 0:
            measured = []
            for setting in order:
                judge = self._reference if setting is last else None
                block, why = self._block(setting, found.shares, _PATIENCE * self._least, judge)
                if why and self._is_to_blame(()):
                    slow += 1
                    if slow == _SLOW or self._reference.why_stuck(block):
                        found.reasons.append(f"{words_of(last)}: not kept, because {why}")
                        return
                elif setting is last:
                    slow = 0
                measured.append(block.figures())
                if setting is self.start:
                    self._reference.add(block)
            pairs.add(*(measured if order[0] is self.start else reversed(measured)))
            order.reverse()  # so that a steady drift cancels out over two pairs
            if why_lost := pairs.why_lost():
                found.reasons.append(f"{words_of(last)}: not kept; {why_lost}")
                return
        gain, why_not = pairs.gain(), pairs.why_not()
        if gain and not why_not:
            found.choice = Choice(last, True, gain, pairs.per_workload(), ())
        else:
            found.reasons.append(f"{words_of(last)}: not kept; {why_not}")
