# SPDX-License-Identifier: GPL-2.0-or-later
"""The search of ``auto --live``: settings in blocks of the traffic that is there.

It has three parts, and begins anew where the traffic changes its kind:

1. A look at what programs wait for with the values that are set.
2. Rounds of `Search` around the best values so far, the incumbent, each knob within 4 times its
   value there. What a round proves is the next one's incumbent.
3. The proof: the values at the start and the last incumbent in turn, for the rest of the time. Only
   these blocks decide. Where the last of them speak against it, nothing is kept.

All times are those of the marks: nothing here reads a clock.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fusetune.bench.latency import Latencies
from fusetune.bench.workloads import Access, Workload
from fusetune.profile.waits import Mark
from fusetune.profile.waits_program import Kind
from fusetune.tuner.auto import unchanged, words_of
from fusetune.tuner.blocks import LEAST_CALLS, Block, Reference, name_of
from fusetune.tuner.pairs import Pairs
from fusetune.tuner.search import Choice, Search, Trial
from fusetune.tuner.space import SEARCHED, Dimension, near

# These numbers are decisions; tests/unit/test_live.py shows what they bring on simulated traffic.
#
# Seconds of a block: as many as let 30 minutes have 1200 of them, within these bounds.
_BLOCKS, _SHORTEST, _LONGER = 1200, 0.4, 2.0
# Seconds after which a block without enough traffic is given up.
_LONGEST = 15.0
# Blocks of the look, and the share of the waiting below which a kind is left out.
_LOOK, _LEAST_SHARE = 8, 0.05
# Part of the time that the look takes at least, so that it sees programs that come and go.
_LOOK_SHARE = 0.03
# Pairs by which a step is looked at once more.
_STEP_PAIRS = 6
# Blocks in a row that lack a kind of traffic while there is another, until the search begins anew.
_MISSING = 3
# Part of the time that the search may take; the proof has the rest.
_SEARCH = 0.6
# Blocks as long as this many shortest ones end in the proof though a kind lacks traffic.
_PATIENCE = 4
# Rounds in a row that prove nothing, after which nothing better is looked for: traffic is so uneven
# that one may well miss it.
_TRIES = 2
# Blocks in a row that are broken off, and to blame, after which the proof is lost.
_SLOW = 2

#: What the programs of a mount wait for. The figure is the bytes that they got a second of waiting.
WAITS = {
    name_of(kind): Workload(name_of(kind), measures, frozenset({access}))
    for kind, measures, access in (
        (Kind.READ, "read(2) and its like, of files opened meanwhile", Access.BUFFERED_READ),
        (Kind.WRITE, "write(2) and its like, fsync(2), and close(2)", Access.BUFFERED_WRITE),
        (Kind.FAULT, "page faults in mapped files", Access.BUFFERED_READ),
    )
}


class Source(Protocol):
    """What watches the mount, such as `profile.waits.Waits`."""

    def now(self) -> float:
        """Return the second that it is."""

    def next(self) -> Mark:
        """Return the next mark."""


#: A setting's values by name.
Key = tuple[tuple[str, int], ...]


@dataclass
class Found:
    """What was found so far.

    ``choice``: what the proof showed. ``incumbent``: the values to compare others with;
    ``proven``: the last ones that a round proved better than those before them, until a proof is
    lost. ``shares``: of the waiting. ``idle``: blocks without enough traffic. ``of_round``: the
    last round's reasons. ``short``: whether the time ended the search.
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
        """Take in a block with ``setting``."""
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

    ``start``: the values found. ``set_values``: writes a setting of all dimensions. ``check``:
    raises where the run was interrupted. ``seconds``: the time that all may take. Raises what these
    and the source raise.
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
        self._earlier: Mapping[str, int] = dict(start)
        self.found = Found(unchanged(), dict(start))

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._source.now() - self._begun

    def run(self) -> None:
        """Search until nothing better is left to try, or the time is over."""
        found = self.found
        while self._left(_SEARCH) > 0 and self._look():
            fruitless, proven = 0, None
            while fruitless < _TRIES and (proven := self._round()) is not None:
                fruitless = 0 if proven else fruitless + 1
            if found.incumbent != self.start:
                self._prove()
                if found.choice.changed:
                    return
                found.incumbent, found.proven = dict(self.start), {}
                self._earlier = self.start
            elif proven is False:
                return

    def _left(self, share: float = 1.0) -> float:
        """Return the seconds left of a share of the time."""
        return share * self._all - self.seconds

    def _block(
        self,
        setting: Mapping[str, int],
        wanted: Collection[str] = (),
        patience: float = _LONGEST,
        judge: Reference | None = None,
    ) -> tuple[Block, str | None]:
        """Watch the traffic with ``setting``; return what was seen, and why it was broken off.

        It ends when each of the ``wanted`` kinds has enough traffic; after ``patience`` seconds,
        and where none is named, any kind suffices. ``judge``: what breaks it off.
        """
        self._set(setting)
        self._progress(min(1.0, self.seconds / self._all), words_of(setting))
        block, begun, why = Block(self._source.now()), self.seconds, None
        while not why and self._left() > 0:
            self._check()
            block.take(self._source.next())
            why = judge.why_worse(block, self._least) if judge else None
            seen = block.figures().keys()
            enough = seen >= set(wanted) if wanted and block.seconds < patience else bool(seen)
            if block.seconds >= (self._least if enough else _LONGEST):
                break
        self.found.take(setting, block)
        self._cost += self.seconds - begun
        return block, why

    def _look(self) -> bool:
        """Watch what programs wait for with the incumbent; return whether it is anything."""
        self._reference = Reference()
        blocks: list[Block] = []
        began = self.seconds
        while len(blocks) < _LOOK or self.seconds - began < _LOOK_SHARE * self._all:
            if self._left(_SEARCH) <= 0:
                return False
            block, _ = self._block(self.found.incumbent)
            if block.figures():
                blocks.append(block)
                self._reference.add(block)
        least = LEAST_CALLS * len(blocks) / len(Kind)  # which one of them has at least
        waited = {
            name_of(kind): sum(block.waited(kind) for block in blocks)
            for kind in Kind
            if sum(block.calls(kind) for block in blocks) >= least
        }
        whole = sum(waited.values())
        kept = {name: one for name, one in waited.items() if one >= _LEAST_SHARE * whole}
        self.found.shares = {name: one / sum(kept.values()) for name, one in kept.items()}
        return bool(kept)

    def _round(self) -> bool | None:
        """Search around the incumbent, and make what is proven the incumbent.

        Return whether anything is, None where the traffic has changed its kind.
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
        seed = self._seed + self._rounds
        search = Search(dimensions, start, list(shares), seed, list(shares.values()))
        missing = 0
        while (setting := search.ask(self._affordable())) is not None:
            judge = None if setting == start else self._reference
            block, why = self._block(found.incumbent | setting, shares, judge=judge)
            figures = block.figures()
            if why:
                if self._is_to_blame(shares):
                    found.reasons.append(f"{words_of(setting)}: passed over, because {why}")
                    search.pass_over()
            elif figures.keys() >= shares.keys():
                missing = 0
                search.tell({name: figures[name] for name in shares})
                if setting == start:
                    self._reference.add(block)
            else:
                missing += bool(figures)
                found.idle += bool(figures)
                if missing == _MISSING:
                    found.reasons.append("the traffic changed its kind, so the search began anew")
                    return None
        choice = search.choice()
        found.short = search.short or self._left(_SEARCH) <= 0
        if search.evaluations:
            found.of_round = list(choice.reasons)
        better = found.incumbent | choice.setting
        if not choice.changed or not self._step_holds(better):
            return False
        self._earlier, found.incumbent, found.proven = found.incumbent, better, better
        return True

    def _near(self, dimension: Dimension) -> Dimension | None:
        name = dimension.name
        return near(dimension, self.found.incumbent[name], self._earlier[name])

    def _matters(self, dimension: Dimension) -> bool:
        accesses = frozenset[Access]().union(*(WAITS[n].accesses for n in self.found.shares))
        return bool(SEARCHED[dimension.name].affects & accesses)

    def _step_holds(self, better: Mapping[str, int]) -> bool:
        """Compare the incumbent with values proven better once more; refer to these if they are.

        There are as many rounds as steps: without this, one of them may well err. The first step is
        from the start, with which the proof compares anyway.
        """
        shares, reference = self.found.shares, Reference()
        first = self.found.incumbent == self.start
        pairs, order = Pairs(shares), [better] if first else [self.found.incumbent, better]
        for _ in range(_STEP_PAIRS):
            if self._left(_SEARCH) <= 0:
                break
            blocks = {setting is better: self._block(setting, shares)[0] for setting in order}
            reference.add(blocks[True])
            if not first:
                pairs.add(blocks[False].figures(), blocks[True].figures())
            order.reverse()
        holds = first or pairs.holds()
        if holds:
            self._reference = reference
        return holds

    def _affordable(self) -> int:
        """Return how many evaluations the rest of the search's time may have."""
        return max(0, int(self._left(_SEARCH) * self.found.evaluations / self._cost))

    def _is_to_blame(self, wanted: Collection[str]) -> bool:
        """Put the incumbent back at once; tell whether the values before it were to blame.

        If its own block is as bad, the traffic has changed, and what was known of it is forgotten.
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
            order.reverse()  # so that a steady drift cancels over two pairs
            if why_lost := pairs.why_lost():
                found.reasons.append(f"{words_of(last)}: not kept; {why_lost}")
                return
        gain, why_not = pairs.gain(), pairs.why_not()
        if gain and not why_not:
            found.choice = Choice(last, True, gain, pairs.per_workload(), ())
        else:
            found.reasons.append(f"{words_of(last)}: not kept; {why_not}")
