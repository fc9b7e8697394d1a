# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers with mount options that override them, compared with stock; for tests/bench."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kernel.guest.interception import PROGRAM
from tests.kernel.guest.rig import SOURCE, fresh_source, load, run
from tests.native.mirror import BINARY, Mirror, unmount

ROUNDS = 6
_POINT = Path("/mnt/overruled")
_MIB = 1 << 20
#: Directories above the files that are opened, and how many files.
_DEPTH, _FILES = 4, 20


def _prefix(options: str) -> list[str | Path]:
    """Return the words before a server's command; ``options`` of the module, none: stock."""
    return [PROGRAM, "--required", "--options", options, "--"] if options else []


@contextmanager
def _bindfs(options: str) -> Iterator[Path]:
    """The source by bindfs, which Debian links with libfuse 2."""
    _POINT.mkdir(parents=True, exist_ok=True)
    run(*_prefix(options), "bindfs", SOURCE, _POINT)
    try:
        yield _POINT
    finally:
        unmount(_POINT)


def _mirrorfs(*own: str) -> Callable[[str], Any]:
    @contextmanager
    def mounted(options: str) -> Iterator[Path]:
        """The source by mirrorfs with the distribution's libfuse3, with its ``own`` options."""
        script = Path("/srv/overruled")
        before = " ".join(map(str, _prefix(options)))
        script.write_text(f'#!/bin/sh\nexec {before} {BINARY} "$@"\n')
        script.chmod(0o755)
        with Mirror(SOURCE, _POINT, *own, binary=script) as mirror:
            yield mirror.mountpoint

    return mounted


def _writes(block: int, size: int) -> Callable[[Path], None]:
    """Write a file of ``size`` bytes, ``block`` bytes per call, until it is all written back."""

    def act(point: Path) -> None:
        data = os.urandom(block)
        fd = os.open(point / "written", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for _ in range(size // block):
            os.write(fd, data)
        os.fsync(fd)
        os.close(fd)

    return act


def _opens(point: Path) -> None:
    """Open each file twice; only the first open may need names that are not cached."""
    deep = point.joinpath(*"d" * _DEPTH)
    for _ in range(2):
        for number in range(_FILES):
            os.close(os.open(deep / str(number), os.O_RDONLY))


def _reads(point: Path) -> None:
    """Read 16 MiB, 1 MiB per call."""
    fd = os.open(point / "read", os.O_RDONLY)
    for _ in range(16):
        assert len(os.read(fd, _MIB)) == _MIB
    os.close(fd)


@dataclass(frozen=True)
class Case:
    """A server, what to do with it, and the module's options for it."""

    server: str
    action: str
    options: str
    mounted: Callable[[str], Any]
    act: Callable[[Path], None]


CASES = (
    Case("bindfs", "128 KiB writes", "big_writes", _bindfs, _writes(128 << 10, 16 * _MIB)),
    Case("bindfs", "4 KiB writes", "big_writes,writeback_cache", _bindfs, _writes(4096, 4 * _MIB)),
    Case(
        "bindfs",
        "4 KiB writes",
        "big_writes,writeback_cache,no_xattr",
        _bindfs,
        _writes(4096, 4 * _MIB),
    ),
    Case("mirrorfs", "4 KiB writes", "writeback_cache", _mirrorfs(), _writes(4096, 4 * _MIB)),
    Case(
        "mirrorfs, 1 ms a request",
        "opens, 4 directories deep",
        "entry_timeout=60,attr_timeout=60",
        _mirrorfs("delay=1ms", "timeout=0", "no_xattr"),
        _opens,
    ),
    Case(
        "mirrorfs, 2 ms a READ",
        "1 MiB read(2)",
        "max_readahead=1048576",
        _mirrorfs("read_delay=2ms"),
        _reads,
    ),
)


def _lay_out() -> None:
    fresh_source()
    deep = SOURCE.joinpath(*"d" * _DEPTH)
    deep.mkdir(parents=True)
    for number in range(_FILES):
        (deep / str(number)).touch()
    (SOURCE / "read").write_bytes(os.urandom(16 * _MIB))


def _seconds(case: Case, options: str) -> float:
    with case.mounted(options) as point:
        began = time.monotonic()
        case.act(point)
        return time.monotonic() - began


def measure_overruled() -> list[dict[str, Any]]:
    """Return for each case the seconds of all rounds, on stock and with its options."""
    load()
    _lay_out()
    found = []
    for case in CASES:
        seconds: dict[str, list[float]] = {"": [], case.options: []}
        for number in range(ROUNDS):
            for options in (case.options, "") if number % 2 else ("", case.options):
                seconds[options].append(_seconds(case, options))
        found.append({"stock": seconds[""], "overruled": seconds[case.options]})
    return found
