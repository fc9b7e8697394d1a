# SPDX-License-Identifier: GPL-2.0-or-later
"""Traffic from what the bpftrace program counted."""

from collections.abc import Iterator, Mapping

from fusetune.errors import FusetuneError
from fusetune.profile.program import (
    APPEND,
    DIRECT,
    ELSEWHERE,
    REST,
    SEQUENTIAL,
    Abilities,
    bucket_middle,
)
from fusetune.profile.traffic import OPCODES, OTHER, Calls, Operation, Pattern
from fusetune.untrusted import parse

#: One map of the program: value by key, both numbers. A map without keys has the key "".
Map = Mapping[str, int]


class Counted:
    """What bpftrace printed, line by line (``bpftrace -f json``)."""

    def __init__(self) -> None:
        self.ready = False
        self.streams = 0
        self._maps: dict[str, dict[str, int]] = {}

    def take(self, line: bytes) -> None:
        """Take one line. Raises FusetuneError if it is not what bpftrace prints."""
        if not line.strip():
            return
        try:
            one = parse(line)
            kind, content = one["type"], one["data"]
            if kind == "printf":
                self.ready = True
            elif kind == "map":
                ((name, value),) = content.items()
                entries = value if isinstance(value, dict) else {"": value}
                self._put(name, {key: int(number) for key, number in entries.items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FusetuneError(
                f"bpftrace printed what this fusetune cannot read: {line[:80]!r}"
            ) from error

    def _put(self, name: str, entries: dict[str, int]) -> None:
        if name == "@streams":  # printed each second, then begun anew
            self.streams = max(self.streams, *entries.values(), 0)
        self._maps[name] = entries

    def _map(self, name: str) -> Map:
        return self._maps.get(name, {})

    def _single(self, name: str) -> int:
        return self._map(name).get("", 0)

    def operations(self) -> list[Operation]:
        """Return the operations, most requests first."""
        return sorted(
            map(self._operation, self._numbers()), key=lambda one: (-one.requests, one.name)
        )

    def _numbers(self) -> list[str]:
        return [number for number in self._map("@requests") if number]

    def _operation(self, number: str) -> Operation:
        latency = self._latency(number)
        ended = sum(latency.values())
        nbytes, requests = self._map("@bytes").get(number, 0), self._map("@requests")[number]
        if self._lost(number):  # their bytes, too: as many each as of the others
            nbytes = round(nbytes * requests / ended) if ended else 0
        return Operation(
            OPCODES.get(number, OTHER if number == str(REST) else number),
            requests,
            nbytes,
            sorted(latency.items()),
            self._map("@largest").get(number),
            self._map("@most").get(number),
        )

    def _latency(self, number: str) -> dict[float, int]:
        split = ((key.partition(","), count) for key, count in self._map("@latency").items())
        return {
            bucket_middle(int(bucket)): count
            for (operation, _, bucket), count in split
            if operation == number and bucket
        }

    def _lost(self, number: str) -> int:
        flying = sum(
            1 for key, word in self._map("@sent").items() if key and word & REST == int(number)
        )
        ended = sum(self._latency(number).values())
        return max(0, self._map("@requests")[number] - ended - flying)

    def lost(self) -> int:
        """Return how many requests neither ended by the record nor were in flight at its end."""
        return sum(map(self._lost, self._numbers()))

    def pattern(self, abilities: Abilities) -> Pattern:
        """Return the pattern, as far as the kernel could tell it."""
        return Pattern(
            self._calls("@reads") if abilities.calls else None,
            self._calls("@writes") if abilities.calls else None,
            self.streams if abilities.calls else None,
            self._single("@faults") if abilities.faults else None,
            self._single("@paused_ms") / 1000 if abilities.pauses else None,
        )

    def _calls(self, name: str) -> Calls:
        classes = [(int(key), count) for key, count in self._map(name).items() if key]

        def having(bits: int) -> int:
            return sum(_with_bits(classes, bits))

        total = having(0)
        return Calls(total, having(SEQUENTIAL), having(ELSEWHERE), having(DIRECT), having(APPEND))


def _with_bits(classes: list[tuple[int, int]], bits: int) -> Iterator[int]:
    return (count for found, count in classes if found & bits == bits)
