# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers with mount options that override them, compared with stock; for tests/bench."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusetune.bench.usage import processes
from fusetune.host import Host
from tests.kernel.guest.interception import PROGRAM
from tests.kernel.guest.rig import SOURCE, fresh_source, load, run
from tests.kernel.guest.servers import POINT, SERVERS, served, statistics_of
from tests.kernel.guest.statistics_file import parse
from tests.native.mirror import BINARY, Mirror, unmount

ROUNDS = 6
_POINT = Path("/mnt/overruled")
_MIB = 1 << 20
#: Directories above the files that are opened, and how many files.
_DEPTH, _FILES = 4, 20
#: Given to the interceptor: the module, with options or none.
Prefix = list[str | Path]


def _by_module(options: str) -> Prefix:
    """Return the words before a server's command, so that the module mounts with ``options``."""
    return [PROGRAM, "--required", *(["--options", options] if options else []), "--"]


@contextmanager
def _bindfs(before: Prefix) -> Iterator[Path]:
    """The source by bindfs, which Debian links with libfuse 2."""
    fresh_source()
    _POINT.mkdir(parents=True, exist_ok=True)
    run(*before, "bindfs", SOURCE, _POINT)
    try:
        yield _POINT
    finally:
        unmount(_POINT)


def _people(name: str) -> Callable[[Prefix], AbstractContextManager[Path]]:
    @contextmanager
    def mounted(before: Prefix) -> Iterator[Path]:
        """The source by a server of servers.py."""
        fresh_source()
        SERVERS[name].prepare()
        with served(SERVERS[name], *before):
            yield POINT

    return mounted


def _mirrorfs(*own: str) -> Callable[[Prefix], AbstractContextManager[Path]]:
    @contextmanager
    def mounted(before: Prefix) -> Iterator[Path]:
        """The source by mirrorfs with the distribution's libfuse3, with its ``own`` options."""
        _lay_out()
        script = Path("/srv/overruled")
        script.write_text(f'#!/bin/sh\nexec {" ".join(map(str, before))} {BINARY} "$@"\n')
        script.chmod(0o755)
        with Mirror(SOURCE, _POINT, *own, binary=script) as mirror:
            yield mirror.mountpoint

    return mounted


def _lay_out() -> None:
    fresh_source()
    deep = SOURCE.joinpath(*"d" * _DEPTH)
    deep.mkdir(parents=True)
    for number in range(_FILES):
        (deep / str(number)).touch()
    (SOURCE / "read").write_bytes(bytes(16 * _MIB))


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
    """A server, what to do with it, and the module's options for it.

    ``goal``: the wanted ratio to the speed on stock.
    """

    server: str
    action: str
    options: str
    mounted: Callable[[Prefix], AbstractContextManager[Path]]
    act: Callable[[Path], None]
    goal: int | None = None


_SMALL, _LARGE = _writes(4096, 4 * _MIB), _writes(128 << 10, 16 * _MIB)
_GATHERED = "writeback_cache,no_file_caps"
_READ_AHEAD = "max_readahead=1048576"
#: The first of these has no delay.
READS = "1 MiB read(2)"
CASES = (
    Case("bindfs", "128 KiB writes", "big_writes", _bindfs, _LARGE, 6),
    Case("bindfs", "128 KiB writes", "big_writes,writeback_cache,no_file_caps", _bindfs, _LARGE),
    Case("bindfs", "4 KiB writes", "big_writes,writeback_cache", _bindfs, _SMALL),
    Case("bindfs", "4 KiB writes", "big_writes,writeback_cache,no_xattr", _bindfs, _SMALL),
    Case("gocryptfs", "4 KiB writes", _GATHERED, _people("gocryptfs"), _SMALL, 4),
    Case("mergerfs", "4 KiB writes", _GATHERED, _people("mergerfs"), _SMALL, 6),
    Case("rclone", "4 KiB writes", _GATHERED, _people("rclone"), _SMALL, 4),
    Case("mirrorfs", "4 KiB writes", "writeback_cache", _mirrorfs(), _SMALL),
    Case(
        "mirrorfs, 1 ms a request",
        "opens, 4 directories deep",
        "entry_timeout=60,attr_timeout=60",
        _mirrorfs("delay=1ms", "timeout=0", "no_xattr"),
        _opens,
        5,
    ),
    Case("mirrorfs", READS, _READ_AHEAD, _mirrorfs(), _reads),
    Case(
        "mirrorfs, 2 ms a READ",
        READS,
        _READ_AHEAD,
        _mirrorfs("read_delay=2ms"),
        _reads,
        4,
    ),
    Case("mirrorfs, 20 ms a READ", READS, _READ_AHEAD, _mirrorfs("read_delay=20ms"), _reads),
)


def _servers_cpu() -> float:
    """Return the seconds of CPU time that all processes but this one have had."""
    own = str(os.getpid())
    return sum(one.cpu.seconds for pid, one in processes(Host()).items() if pid != own)


def _sample(case: Case, before: Prefix) -> tuple[float, float]:
    """Return the seconds that a case takes on a new mount, and the server's CPU time in them."""
    with case.mounted(before) as point:
        cpu, began = _servers_cpu(), time.monotonic()
        case.act(point)
        seconds = time.monotonic() - began
        return seconds, _servers_cpu() - cpu


def _requests(case: Case, options: str) -> dict[str, int]:
    """Return how many requests of each kind a case makes by the module."""
    with case.mounted(_by_module(options)) as point:
        statistics = statistics_of(point)
        statistics.read_text()
        case.act(point)
        return {name: line.count for name, line in parse(statistics.read_text()).items()}


def measure_overruled() -> list[dict[str, Any]]:
    """Return for each case the seconds and server's CPU time of all rounds, and its requests.

    Each as a pair: on the kernel's own FUSE, and by the module with the case's options; requests by
    the module without options in place of the former.
    """
    load()
    found = []
    for case in CASES:
        kinds: dict[str, Prefix] = {"stock": [], "overruled": _by_module(case.options)}
        samples: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for number in range(ROUNDS):
            for kind in reversed(kinds) if number % 2 else kinds:
                samples[kind].append(_sample(case, kinds[kind]))
        requests = [_requests(case, options) for options in ("", case.options)]
        found.append({**samples, "requests": requests})
    return found
