# SPDX-License-Identifier: GPL-2.0-or-later
"""The module fusetuned counts its mounts' requests itself: connections/N/statistics.

dkms/fusetuned/tuned/statistics.c says what each word of the file means.
"""

import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.mounts.control import still_mounted
from fusetune.mounts.mount import Mount
from fusetune.profile.totals import Counts, Reading, Totals, operations_between
from fusetune.profile.traffic import Traffic
from fusetune.profile.watching import Progress, until_ended
from fusetune.signals import Signals
from fusetune.text import printable

#: Length of fuse_write_in (uapi linux/fuse.h), which WRITE sends before the data.
_WRITE_IN = 40


@dataclass(frozen=True)
class Counters:
    """What the module has counted of one operation since its counting began.

    ``requests``: completed, ``errors``: failed. ``sent_bytes``, ``received_bytes``: bytes after the
    headers of requests and of replies. ``time_ns``: total time of all with a reply. ``latency``:
    how many of these took less than 1 us, less than 2, less than 4 and so on; the last entry counts
    the rest.
    """

    requests: int
    errors: int
    sent_bytes: int
    received_bytes: int
    time_ns: int
    latency: Sequence[int]


def parse_counters(text: str) -> dict[str, Counters]:
    """Return the counters in the text of the file, by operation.

    Raises ValueError if it is malformed.
    """
    found = {}
    for line in text.splitlines():
        name, *words = line.split()
        at = words.index("latency_us")
        numbers = dict(zip(words[:at:2], map(int, words[1:at:2]), strict=True))
        try:
            found[name] = Counters(
                numbers["count"],
                numbers["errors"],
                numbers["sent_bytes"],
                numbers["received_bytes"],
                numbers["time_ns"],
                [int(word) for word in words[at + 1 :]],
            )
        except KeyError as error:
            raise ValueError(f"no {error} of {name}") from error
    return found


def totals_of(counters: Mapping[str, Counters]) -> Counts:
    """Return the totals of operations."""
    return {name: _totals(name, one) for name, one in counters.items()}


def _totals(name: str, one: Counters) -> Totals:
    sent = one.sent_bytes - _WRITE_IN * one.requests
    # Bucket 0 is below 1 us, bucket n from 2^(n-1) to 2^n us.
    latency = {0.75 * (1 << n): count for n, count in enumerate(one.latency)}
    return Totals(one.requests, sent if name == "WRITE" else one.received_bytes, latency)


def read_counters(host: Host, mount: Mount) -> dict[str, Counters]:
    """Return what the module has counted of a mount. The first reading starts the counting.

    Raises FusetuneError if the file cannot be read or is malformed.
    """
    file = f"{mount.control}/{mount.connection}/statistics"
    try:
        return parse_counters(host.read(file))
    except OSError as error:
        raise FusetuneError(
            f"cannot read /{file}: {reason(error)}; run fusetune as root, with the module as new "
            "as fusetune"
        ) from error
    except ValueError as error:
        raise FusetuneError(f"/{file} has an unknown format: {printable(str(error))}") from error


def read_statistics(host: Host, mount: Mount) -> Reading:
    """Return the totals of `read_counters`, and when they were read. Raises FusetuneError."""
    return Reading(time.monotonic(), totals_of(read_counters(host, mount)))


def watch_by_module(host: Host, mount: Mount, seconds: float, progress: Progress) -> Traffic:
    """Observe a mount of the module for ``seconds``, or until a signal arrives or it is gone.

    If the mount disappears, the last reading counts. Raises FusetuneError if the
    statistics cannot be read.
    """
    read_statistics(host, mount)
    before = after = read_statistics(host, mount).counts
    with Signals() as signals:

        def wait(most: float) -> bool:
            nonlocal after
            told = bool(select.select([signals], [], [], max(0.0, most))[0])
            try:
                after = read_statistics(host, mount).counts or after
            except FusetuneError:
                if still_mounted(host, mount):
                    raise
            return told

        watched = until_ended(host, mount, seconds, wait, progress)
    operations = operations_between(before, after)
    return Traffic(
        *(watched.seconds, "module", watched.ended, 0, operations),
        waiting=watched.waiting,
        queued=True,  # latencies include the wait for a slot among max_background
    )
