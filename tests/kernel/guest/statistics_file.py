# SPDX-License-Identifier: GPL-2.0-or-later
"""The file `statistics` of a connection, each line checked for its form."""

from dataclasses import dataclass
from pathlib import Path

from tests.kernel.guest.rig import (
    CONTROL,
)
from tests.native.mirror import Mirror

_BUCKETS = 24


#: Requests without a reply.
_ONE_WAY = {"FORGET", "BATCH_FORGET", "INTERRUPT"}


@dataclass(frozen=True)
class Line:
    """One line of the file: sizes in bytes, time in ns, and the counts of the buckets."""

    count: int
    errors: int
    sent: int
    received: int
    time: int
    latency: tuple[int, ...]


NONE = Line(0, 0, 0, 0, 0, (0,) * _BUCKETS)


def file_of(mirror: Mirror) -> Path:
    return CONTROL / mirror.bdi.partition(":")[2] / "statistics"


def read(mirror: Mirror) -> dict[str, Line]:
    """Return the lines of a mount's connection by their opcodes."""
    return parse(file_of(mirror).read_text())


def begin(mirror: Mirror) -> None:
    """Start the counters of kernel and server while no request is in flight."""
    assert read(mirror) == {}
    mirror.reset_counters()


def parse(statistics: str) -> dict[str, Line]:
    """Return the lines of the file by their opcodes, each checked for its form."""
    keys = ("count", "errors", "sent_bytes", "received_bytes", "time_ns")
    lines = {}
    for text in statistics.splitlines():
        opcode, *words = text.split()
        assert tuple(words[0:10:2]) == keys, text
        assert words[10] == "latency_us", text
        count, errors, sent, received, time = (int(word) for word in words[1:10:2])
        latency = tuple(int(word) for word in words[11:])
        line = Line(count, errors, sent, received, time, latency)
        assert len(line.latency) == _BUCKETS, text
        assert line.count > 0, text
        assert sum(line.latency) == (0 if opcode in _ONE_WAY else line.count), text
        lines[opcode] = line
    return lines
