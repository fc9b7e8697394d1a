# SPDX-License-Identifier: GPL-2.0-or-later
"""Which ranges of existing files are read: drawn at random, without repetition.

A server may keep a range in its cache after reading it, so a second sample of the same range would
measure that cache. A run is therefore of one kind throughout, and compares only within it:

- cold: the files have enough ranges for each sample to get one that the run has not read yet, not
  even ahead of another sample. The run ends when none is left.
- warm: they have too few. Each range is read once before the first sample, so that the server may
  cache all of them. Then the samples go through all ranges in random order, again and again, and no
  range repeats before all others were read.

A range is as long as the fastest reader needs for a sample, or a quarter of that if it
makes the run cold.

Pure: no I/O, and a seed repeats the order.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1 << 20
#: Bytes of the shortest range, and of the longest.
SHORTEST, _LONGEST = 1 * MIB, 256 * MIB
_SAMPLES = 60  # for which a cold run needs ranges
#: The same if what is read ahead of the samples counts as well.
_SAMPLES_WITH_AHEAD = 24
_FEWEST_WARM = 4
_MOST = 1 << 14  # ranges in use: a server may report any file size


@dataclass(frozen=True)
class Range:
    """``length`` bytes of a file, identified by its position in the list of files."""

    file: int
    offset: int
    length: int


class Ranges:
    """The ranges of one run, shared by all mounts that it compares.

    ``cold`` as above; ``length``: bytes of each range; ``count``: how many there are.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        each: int,
        wanted: int,
        least: int = SHORTEST,
        ahead: int = 0,
        seed: int = 0,
    ) -> None:
        """Cut files of these ``sizes`` (bytes) into ranges of at most ``wanted`` bytes.

        A range has a power of two of bytes, and at least ``least``. ``each``: how many are
        read in an evaluation. ``ahead``: how many bytes more a sample makes useless on average,
        because they are read ahead. ValueError if no file is long enough.
        """
        self._random = random.Random(seed)  # noqa: S311 - an order of measurement, not a secret
        self._sizes = sizes
        longest = max(least, min(_LONGEST, 1 << max(0, wanted.bit_length() - 1)))
        lengths = [one for power in range(9) if least <= (one := SHORTEST << power) <= longest]
        samples = _SAMPLES * each
        with_ahead = _SAMPLES_WITH_AHEAD * each
        cold = [
            one
            for one in lengths[-3:]
            if self._number(one) >= samples and sum(sizes) >= with_ahead * (one + ahead)
        ]
        warm = [one for one in lengths if self._number(one) >= _FEWEST_WARM]
        self.cold = bool(cold)
        self.length = (cold or warm or lengths[:1])[-1]
        number = self._number(self.length)
        if not number:
            raise ValueError("no range")
        most = _MOST if self.cold else samples
        drawn = self._random.sample(range(number), min(number, most))
        self.every = [self._range(index) for index in drawn]
        self._left = self.every.copy()
        self._taken = self._lost = 0

    def _number(self, length: int) -> int:
        return sum(size // length for size in self._sizes)

    def _range(self, index: int) -> Range:
        for file, size in enumerate(self._sizes):
            here = size // self.length
            if index < here:
                return Range(file, index * self.length, self.length)
            index -= here
        raise IndexError(index)

    @property
    def count(self) -> int:
        """How many ranges there are."""
        return len(self.every)

    @property
    def files(self) -> int:
        """How many files they are of."""
        return len({one.file for one in self.every})

    def keep(self, those: Sequence[Range]) -> None:
        """Use only ``those`` from now on."""
        self.every, self._left = list(those), list(those)

    def affordable(self) -> float:
        """Return for how many more samples the ranges suffice, at the latest rate of use."""
        if not self.cold:
            return float("inf")
        return len(self._left) / (1 + self._lost / max(1, self._taken))

    def take(self, count: int = 1) -> list[Range]:
        """Return the next ``count`` ranges, of different files if possible.

        Returns none if a cold run has too few left. ``count`` is at most `files`.
        """
        if len(self._left) < count and not self.cold:
            others = [one for one in self.every if one not in self._left]
            self._left = [*self._random.sample(others, len(others)), *self._left]
        if len(self._left) < count:
            return []
        seen: Counter[int] = Counter()
        order = []  # the first of each file, then the second of each, and so on
        for one in reversed(self._left):
            order.append((seen[one.file], one))
            seen[one.file] += 1
        taken = [one for _, one in sorted(order, key=lambda pair: pair[0])[:count]]
        gone = set(taken)
        self._left = [one for one in self._left if one not in gone]
        self._taken += count
        return taken

    def give_up(self, file: int, start: int, end: int) -> None:
        """Leave out ranges of a cold run that overlap the bytes ``start`` to ``end`` of a file."""
        if not self.cold:
            return
        before = len(self._left)
        self._left = [
            one
            for one in self._left
            if one.file != file or one.offset >= end or one.offset + one.length <= start
        ]
        self._lost += before - len(self._left)
