# SPDX-License-Identifier: GPL-2.0-or-later
"""Recorded traffic as a source for auto --live, in no time: values have no effect on it."""

from collections.abc import Mapping, Sequence

from fusetune.profile.waits import Mark
from fusetune.tuner.live import Live, Source
from fusetune.tuner.space import Dimension


def recorded(source: Source, seconds: float) -> list[Mark]:
    """Return the marks of so many seconds."""
    marks = [source.next()]
    while marks[-1].at < marks[0].at + seconds:
        marks.append(source.next())
    return marks


class Replay:
    """A source that begins in the middle of a recording, and repeats it.

    ``first``: the first mark that is returned. All times of a mark move with it.
    """

    def __init__(self, marks: Sequence[Mark], first: int = 0) -> None:
        self._marks, self._next, self._moved = marks, first, 0.0
        # As long as the recording and the time to one more mark.
        self._length = (marks[-1].at - marks[0].at) * len(marks) / (len(marks) - 1)
        self._now = marks[first].at - self._length / len(marks)

    def now(self) -> float:
        """Return the time of the last mark."""
        return self._now

    def next(self) -> Mark:
        """Return the next mark."""
        if self._next == len(self._marks):
            self._next, self._moved = 0, self._moved + self._length
        mark, moved = self._marks[self._next], self._moved
        self._next, self._now = self._next + 1, mark.at + moved
        ended = {(kind, since and since + moved): one for (kind, since), one in mark.ended.items()}
        waiting = [
            ((kind, since and since + moved), begun + moved)
            for (kind, since), begun in mark.waiting
        ]
        return Mark(self._now, ended, waiting)


def replayed(
    marks: Sequence[Mark],
    dimensions: Sequence[Dimension],
    start: Mapping[str, int],
    seconds: float,
    count: int,
) -> list[Live]:
    """Return runs of so many seconds on a recording, each from another place and with its seed."""
    runs = []
    for number in range(count):
        source = Replay(marks, number * len(marks) // count)
        live = Live(dimensions, start, source, lambda setting: None, seconds, seed=number)
        live.run()
        runs.append(live)
    return runs
