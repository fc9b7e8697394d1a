# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of bench's workloads represent the traffic of a mount, and the share of each."""

from collections.abc import Iterator

from fusetune.profile.traffic import Calls, Operation, Traffic

#: A workload with less than this share of the time is left out.
_LEAST = 0.05
#: Number of files read sequentially at the same time that counts as many.
_MANY = 8
#: Mean size of WRITE in bytes below which writes are small.
_SMALL = 32 << 10
#: FSYNC requests per WRITE above which programs are considered to wait for each write.
_SYNCED = 0.25
#: They end what other operations started, and nobody waits for them.
_ENDING = ("FORGET", "BATCH_FORGET", "RELEASE", "RELEASEDIR", "FLUSH", "INTERRUPT", "INIT")
_CHANGING = ("CREATE", "MKNOD", "MKDIR", "UNLINK", "RMDIR", "RENAME", "RENAME2", "SYMLINK", "LINK")
#: Operations that a write needs: with xattr, the kernel requests capabilities before each.
_OF_WRITES = ("WRITE", "FSYNC", "GETXATTR")


def shares_of(traffic: Traffic) -> dict[str, float]:
    """Return the share of each workload in the traffic, largest first; they sum to 1.

    A workload's share is its requests' share of the time at the server:

    - READ: mmap-read by the share of page faults among reads and faults. Of the rest, the
      sequential part is many-streams from 8 concurrent files, large-read if most is direct,
      otherwise seq-read; the other part is rand-read.
    - WRITE, FSYNC and GETXATTR: from one FSYNC per four WRITEs, log-append if most writes are at
      the end, otherwise database. With fewer FSYNCs, the non-sequential part is rand-write, and
      the rest is small-write below 32 KiB per request, otherwise seq-write.
    - All others that somebody waits for: metadata if names are created or removed, otherwise
      open-storm.

    Shares below 5 % are left out. Empty without completed requests.
    """
    found: dict[str, float] = {}
    for name, seconds in (*_reading(traffic), *_writing(traffic), *_others(traffic)):
        found[name] = found.get(name, 0.0) + seconds
    whole = sum(found.values())
    kept = {name: seconds for name, seconds in found.items() if seconds > _LEAST * whole}
    whole = sum(kept.values())
    ranked = sorted(kept.items(), key=lambda item: -item[1])
    return {name: seconds / whole for name, seconds in ranked}


def _sequential(calls: Calls | None, mean_bytes: float) -> float:
    """Return the sequential share; if it is unknown, 1 for requests of 32 KiB and more, else 0."""
    share = calls.sequential_share if calls else None
    return share if share is not None else float(mean_bytes >= _SMALL)


def _mean(one: Operation | None) -> float:
    return one.nbytes / one.requests if one and one.nbytes and one.requests else 0.0


def _reading(traffic: Traffic) -> Iterator[tuple[str, float]]:
    one, pattern = traffic.operation("READ"), traffic.pattern
    if not one:
        return
    reads, faults = pattern.reads or Calls(), pattern.page_faults or 0
    mapped = faults / (faults + reads.total) if faults else 0.0
    rest = one.seconds * (1 - mapped)
    in_sequence = _sequential(pattern.reads, _mean(one))
    name = "large-read" if reads.direct * 2 > reads.total else "seq-read"
    yield "mmap-read", one.seconds * mapped
    yield ("many-streams" if (pattern.streams or 0) >= _MANY else name), rest * in_sequence
    yield "rand-read", rest * (1 - in_sequence)


def _writing(traffic: Traffic) -> Iterator[tuple[str, float]]:
    one, fsync = traffic.operation("WRITE"), traffic.operation("FSYNC")
    if not one:
        return
    seconds = sum(each.seconds for each in traffic.operations if each.name in _OF_WRITES)
    writes = traffic.pattern.writes or Calls()
    if fsync and fsync.requests >= _SYNCED * one.requests:
        yield ("log-append" if writes.appends * 2 > writes.total else "database"), seconds
        return
    share = writes.sequential_share
    elsewhere = 0.0 if share is None else 1 - share
    yield "rand-write", seconds * elsewhere
    yield ("small-write" if _mean(one) < _SMALL else "seq-write"), seconds * (1 - elsewhere)


def _others(traffic: Traffic) -> Iterator[tuple[str, float]]:
    writes = traffic.operation("WRITE") is not None
    left = [
        one
        for one in traffic.operations
        if one.name not in (*_ENDING, "READ", *(_OF_WRITES if writes else ()))
    ]
    changes = any(one.name in _CHANGING for one in left)
    yield "metadata" if changes else "open-storm", sum(one.seconds for one in left)
