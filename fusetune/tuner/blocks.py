# SPDX-License-Identifier: GPL-2.0-or-later
"""Blocks of real traffic: what each shows about a setting, and when to abort a bad one.

Pure: no I/O and no clock; all times come from the marks.
"""

import math
from collections import Counter, deque
from collections.abc import Collection
from statistics import fmean, stdev

from fusetune.bench.intervals import t_quantile
from fusetune.profile.waits import Mark, Waited
from fusetune.profile.waits_program import Kind

# Seconds between a change of values and the beginning of its block. Calls and requests under the
# previous values complete meanwhile: 100 of 2 ms each.
LEAD = 0.2
# Number of calls of a kind from which a block has a figure. If the times of calls are distributed
# exponentially, the standard error of the mean of 32 is 18 %.
LEAST_CALLS = 32
# Number of read calls from which a block is full. The first reads of a file wait longest, so fewer
# tell little: a file of 16 MiB has 128 of the usual 128 KiB.
_FULL = 128
# Seconds after which a waiting call may be a stall, and how many times as long as the incumbent's
# longest call it must wait.
_STALL, _STALLED = 5.0, 4.0
#: The share of the incumbent's speed below which a block is aborted.
MUCH_WORSE = 0.8
# Blocks of the incumbent before others are compared with them, and how many of the latest are
# kept: the activity of programs changes.
_FEWEST, _REMEMBERED = 4, 12
# Probability that a block with the incumbent's own values seems that much worse, or has that many
# failed calls. As many blocks are judged as a search has evaluations; a second look follows.
_ERROR, _ERROR_OF_FAILURES = 0.002, 0.001
_FEWEST_FAILURES = 3


class Block:
    """The traffic observed under one setting, which was written at second ``since``.

    Only reads of files opened since then count: readahead is fixed when a file is opened.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._begun: float | None = None
        self._early: dict[Kind, float] = {}
        self._late: dict[Kind, float] = {}
        self._seen: dict[Kind, Waited] = {}
        self._longest: dict[Kind, float] = {}
        self.seconds = 0.0

    def take(self, mark: Mark) -> None:
        """Add the next mark."""
        waiting: dict[Kind, float] = {}
        self._longest = {}
        for (kind, opened), begun in mark.waiting:
            if self._counts(kind, opened):
                took = max(0.0, mark.at - begun)
                waiting[kind] = waiting.get(kind, 0.0) + took
                self._longest[kind] = max(self._longest.get(kind, 0.0), took)
        if self._begun is None:
            if mark.at >= self._since + LEAD:
                self._begun, self._early = mark.at, waiting
            return
        self.seconds, self._late = mark.at - self._begun, waiting
        for (kind, opened), waited in mark.ended.items():
            if self._counts(kind, opened):
                self._seen.setdefault(kind, Waited()).add(waited)

    def _counts(self, kind: Kind, opened: float) -> bool:
        return kind is not Kind.READ or opened >= self._since

    def has_enough(self, kind: Kind) -> bool:
        """Whether there is enough traffic of a kind for a figure."""
        return self.calls(kind) >= LEAST_CALLS and self.nbytes(kind) > 0

    def is_full(self, wanted: Collection[str]) -> bool:
        """Return whether there are enough reads, or none are wanted."""
        return name_of(Kind.READ) not in wanted or self.calls(Kind.READ) >= _FULL

    def calls(self, kind: Kind) -> int:
        """Return how many calls of a kind completed."""
        return self._seen[kind].calls if kind in self._seen else 0

    def nbytes(self, kind: Kind) -> int:
        """Return how many bytes the completed calls of a kind transferred."""
        return self._seen[kind].nbytes if kind in self._seen else 0

    def waited(self, kind: Kind) -> float:
        """Return the total seconds that programs waited for a kind within the block."""
        ended = self._seen[kind].seconds if kind in self._seen else 0.0
        # At least a microsecond: hits in the page cache take no measurable time.
        return max(1e-6, ended + self._late.get(kind, 0.0) - self._early.get(kind, 0.0))

    def figures(self) -> dict[str, float]:
        """Return bytes per second of waiting for each kind with enough traffic, by name."""
        return {
            name_of(kind): self._seen[kind].nbytes / self.waited(kind)
            for kind in Kind
            if self.has_enough(kind)
        }

    def bins(self) -> dict[str, Counter[float]]:
        """Return the number of calls by nanoseconds, by the kind's name."""
        return {name_of(kind): one.latency for kind, one in self._seen.items()}

    def failures(self) -> tuple[int, int]:
        """Return how many calls failed, of how many."""
        every = self._seen.values()
        return sum(one.failed for one in every), sum(one.calls for one in every)

    def longest_waiting(self) -> dict[str, float]:
        """Return how many seconds the longest call of each kind has waited so far, by name."""
        return {name_of(kind): took for kind, took in self._longest.items()}

    def longest(self) -> float:
        """Return the duration of the longest call in seconds."""
        ended = (max(one.latency) for one in self._seen.values() if one.latency)
        return max([*self._longest.values(), *(1e-9 * took for took in ended)], default=0.0)


def name_of(kind: Kind) -> str:
    """Return a kind's name in documents: read, write or fault."""
    return kind.name.lower()


class Reference:
    """The latest blocks with the incumbent's values, with which others are compared."""

    def __init__(self) -> None:
        self._logs: dict[str, deque[float]] = {}
        self._failures: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._longest: deque[float] = deque(maxlen=_REMEMBERED)

    def add(self, block: Block) -> None:
        """Add a block with the incumbent's values."""
        for name, figure in block.figures().items():
            self._logs.setdefault(name, deque(maxlen=_REMEMBERED)).append(math.log(figure))
        self._failures.append(block.failures())
        self._longest.append(block.longest())

    def why_worse(self, block: Block, least: float = 0.0) -> str | None:
        """Return why a block is too bad to continue, None if it is not.

        It is stuck, or after ``least`` seconds it is slower.
        """
        return self.why_stuck(block) or (self.why_slower(block) if block.seconds >= least else None)

    def why_stuck(self, block: Block) -> str | None:
        """Return what stalls or fails, None if nothing does.

        A call stalls if it waits for 5 s and four times as long as any of the incumbent's. Calls
        fail if their number has a probability below 1 in 1000 at the incumbent's failure rate.
        """
        bearable = max(_STALL, _STALLED * max(self._longest, default=0.0))
        for name, seconds in block.longest_waiting().items():
            if seconds > bearable:
                return f"a {name} waited for {seconds:.1f} s"
        failed, calls = block.failures()
        before, of = (sum(one[i] for one in self._failures) for i in (0, 1))
        if failed >= _FEWEST_FAILURES and _tail(failed, calls, (before + 1) / (of + 2)):
            return f"{failed} of {calls} calls failed, compared with {before} of {of} before"
        return None

    def why_slower(self, block: Block) -> str | None:
        """Return which kind is more than 20 % slower, None if none is.

        The slowdown must also be as rare as in 1 of 500 blocks of the incumbent, by Student's
        prediction interval from at least four blocks.
        """
        for name, figure in block.figures().items():
            logs = self._logs.get(name, ())
            if len(logs) < _FEWEST:
                continue
            spread = stdev(logs) * math.sqrt(1 + 1 / len(logs))
            expected = t_quantile(2 * _ERROR, len(logs) - 1) * spread
            ratio = math.log(figure) - fmean(logs)
            if ratio < min(math.log(MUCH_WORSE), -expected):
                return f"{name} fell to {math.exp(ratio):.2f} of its speed"
        return None


def _tail(failed: int, calls: int, share: float) -> bool:
    """Whether so many failures are unlikely if each call fails with probability ``share``.

    Uses the Chernoff bound of the binomial distribution, which is never below the tail.
    """
    found = failed / calls
    if found <= share:
        return False
    exponent = found * math.log(found / share)
    if found < 1:
        exponent += (1 - found) * math.log((1 - found) / (1 - share))
    return math.exp(-calls * exponent) < _ERROR_OF_FAILURES
