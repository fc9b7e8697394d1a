# SPDX-License-Identifier: GPL-2.0-or-later
"""Traffic from what the bpftrace program counted."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fusetune.errors import FusetuneError
from fusetune.profile.program import (
    APPEND,
    DIRECT,
    ELSEWHERE,
    MARK,
    REST,
    SEQUENTIAL,
    Abilities,
    bucket_middle,
)
from fusetune.profile.totals import Counts, Reading, Totals, operations_between, unrecorded_between
from fusetune.profile.traffic import OPCODES, OTHER, Calls, Operation, Pattern
from fusetune.untrusted import parse

#: One map of the program: value by key, both numbers. A map without keys has the key "".
Map = Mapping[str, int]


class Counted:
    """What bpftrace printed, line by line (``bpftrace -f json``)."""

    def __init__(self) -> None:
        self.ready = False
        self.streams = 0
        self._streamed = 0, 0  # nanoseconds: of streams, and of the time that was examined
        self._maps: dict[str, dict[str, int]] = {}

    def take(self, line: bytes) -> None:
        """Take one line. Raises FusetuneError if it is not what bpftrace prints."""
        if not line.strip():
            return
        try:
            one = parse(line)
            kind, content = one["type"], one["data"]
            if kind == "printf":
                self._told(content)
            elif kind == "map":
                ((name, value),) = content.items()
                entries = value if isinstance(value, dict) else {"": value}
                self._put(name, {key: int(number) for key, number in entries.items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FusetuneError(f"bpftrace printed unexpected output: {line[:80]!r}") from error

    def _told(self, words: str) -> None:
        """Take what the program printed besides maps."""
        self.ready = True

    def _put(self, name: str, entries: dict[str, int]) -> None:
        self._maps[name] = entries
        if name == "@window":  # printed each second, after the streams
            now = self._single("@streaming"), self._single("@window")
            streaming, window = (new - old for new, old in zip(now, self._streamed, strict=True))
            self._streamed = now
            if streaming > 0 and window > 0:
                self.streams = max(self.streams, 1, round(streaming / window))

    def _map(self, name: str) -> Map:
        return self._maps.get(name, {})

    def _single(self, name: str) -> int:
        return self._map(name).get("", 0)

    def counts(self) -> Counts:
        """Return what was counted of each operation."""
        return {
            OPCODES.get(number, OTHER if number == str(REST) else number): self._totals(number)
            for number in self._numbers()
        }

    def operations(self) -> list[Operation]:
        """Return the operations, most requests first."""
        return operations_between({}, self.counts())

    def _numbers(self) -> list[str]:
        return [number for number in self._map("@requests") if number]

    def _totals(self, number: str) -> Totals:
        return Totals(
            self._map("@requests")[number],
            max(0, self._map("@bytes").get(number, 0)),
            self._latency(number),
            None if (largest := self._map("@largest").get(number)) is None else max(0, largest),
            self._map("@most").get(number),
            self._unrecorded(number),
        )

    def _latency(self, number: str) -> dict[float, int]:
        split = ((key.partition(","), count) for key, count in self._map("@latency").items())
        return {
            bucket_middle(int(bucket)): count
            for (operation, _, bucket), count in split
            if operation == number and bucket
        }

    def _unrecorded(self, number: str) -> int:
        ended = sum(self._latency(number).values())
        return max(0, self._map("@requests")[number] - ended - self._flying(int(number)))

    def _flying(self, number: int) -> int:
        """Return how many recorded requests of an operation have not completed."""
        return sum(1 for key, word in self._map("@sent").items() if key and word & REST == number)

    def unrecorded(self) -> int:
        """Return how many requests neither completed on record nor were in flight at the end."""
        return unrecorded_between({}, self.counts())

    def pattern(self, abilities: Abilities) -> Pattern:
        """Return the pattern, as far as the kernel could report it."""
        return Pattern(
            self._calls("@reads") if abilities.calls else None,
            self._calls("@writes") if abilities.calls else None,
            self.streams if abilities.calls else None,
            self._single("@faults") if abilities.faults else None,
            self._single("@paused_ms") / 1000 if abilities.pauses else None,
            self._single("@asked") if abilities.calls else None,
            self._single("@unseen"),
        )

    def _calls(self, name: str) -> Calls:
        classes = [(int(key), count) for key, count in self._map(name).items() if key]

        def having(bits: int) -> int:
            return sum(_with_bits(classes, bits))

        total = having(0)
        return Calls(total, having(SEQUENTIAL), having(ELSEWHERE), having(DIRECT), having(APPEND))


class LiveCounts(Counted):
    """The repeated output of bpftrace, up to the last mark."""

    def __init__(self, able: Abilities) -> None:
        super().__init__()
        self._able = able
        self._marked: Reading | None = None
        self._peaks: dict[str, dict[str, int]] = {}
        self._missing: dict[str, int] = {}

    def reading(self) -> Reading | None:
        """Return the reading at the last mark; None before the first.

        Its peaks are those since the mark that was returned last.
        """
        self._peaks = {}
        return self._marked

    def pattern(self, abilities: Abilities) -> Pattern:
        """Return the pattern without writes, which are not reported live."""
        return replace(super().pattern(abilities), writes=None)

    def _told(self, words: str) -> None:
        word, number = words.split()
        if word != MARK:
            raise ValueError(word)
        super()._told(words)
        for name in ("@largest", "@most"):
            peaks = self._peaks.setdefault(name, {})
            for key, value in self._map(name).items():
                peaks[key] = max(value, peaks.get(key, 0))
            self._maps[name] = dict(peaks)
        self._marked = Reading(int(number) / 1e9, self.counts(), self.pattern(self._able))

    def _unrecorded(self, number: str) -> int:
        # The maps are printed one after another, so a request that completes meanwhile hides one.
        self._missing[number] = max(super()._unrecorded(number), self._missing.get(number, 0))
        return self._missing[number]

    def _flying(self, number: int) -> int:
        own = (
            count for key, count in self._map("@net").items() if key and int(key) & REST == number
        )
        flying = sum(own) % (1 << 64)
        return flying if flying < 1 << 63 else 0


def _with_bits(classes: list[tuple[int, int]], bits: int) -> Iterator[int]:
    return (count for found, count in classes if found & bits == bits)
