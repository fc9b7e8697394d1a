# SPDX-License-Identifier: GPL-2.0-or-later
"""The module fusetuned counts its mounts' requests itself: connections/N/statistics.

dkms/fusetuned/tuned/statistics.c says what each word of the file means.
"""

import select
from collections.abc import Mapping
from dataclasses import dataclass

from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.mounts.control import still_mounted
from fusetune.mounts.mount import Mount
from fusetune.profile.traffic import Operation, Traffic
from fusetune.profile.watching import Progress, Signals, until_ended
from fusetune.text import printable

#: Length of fuse_write_in (uapi linux/fuse.h), which WRITE sends before the data.
_WRITE_IN = 40


@dataclass(frozen=True)
class Counters:
    """The counters of one operation since counting began, as the file has them."""

    count: int
    sent_bytes: int
    received_bytes: int
    latency: tuple[int, ...]


#: Counters by the name of their operation.
Statistics = Mapping[str, Counters]


def parse_statistics(text: str) -> Statistics:
    """Return the counters in the text of the file. Raises ValueError if it is not as it should."""
    found = {}
    for line in text.splitlines():
        name, *words = line.split()
        at = words.index("latency_us")
        numbers = dict(zip(words[:at:2], map(int, words[1:at:2]), strict=True))
        try:
            found[name] = Counters(
                numbers["count"],
                numbers["sent_bytes"],
                numbers["received_bytes"],
                tuple(map(int, words[at + 1 :])),
            )
        except KeyError as error:
            raise ValueError(f"no {error} of {name}") from error
    return found


def operations_between(before: Statistics, after: Statistics) -> list[Operation]:
    """Return what was counted from one reading to the next, most requests first."""
    none = Counters(0, 0, 0, ())
    found = [_difference(name, before.get(name, none), now) for name, now in after.items()]
    return sorted((one for one in found if one.requests), key=lambda one: (-one.requests, one.name))


def _difference(name: str, before: Counters, after: Counters) -> Operation:
    requests = after.count - before.count
    sent = after.sent_bytes - before.sent_bytes - _WRITE_IN * requests
    received = after.received_bytes - before.received_bytes
    earlier = before.latency or (0,) * len(after.latency)
    counts = [now - then for now, then in zip(after.latency, earlier, strict=True)]
    # Bucket 0 is below 1 us, bucket n from 2^(n-1) to 2^n us.
    latency = [(0.75 * (1 << bucket), count) for bucket, count in enumerate(counts) if count]
    return Operation(name, requests, max(0, sent) if name == "WRITE" else received, latency)


def watch_by_module(host: Host, mount: Mount, seconds: float, progress: Progress) -> Traffic:
    """Watch a mount of the module for ``seconds``, or until a signal comes or it is gone.

    Of a mount that goes, the last reading before that counts. Raises FusetuneError if the
    statistics cannot be read.
    """
    _read(host, mount)  # the first reading begins the counting
    before = after = _read(host, mount)
    with Signals() as signals:

        def wait(most: float) -> bool:
            nonlocal after
            told = bool(select.select([signals], [], [], max(0.0, most))[0])
            try:
                after = _read(host, mount) or after
            except FusetuneError:
                if still_mounted(host, mount):
                    raise
            return told

        watched = until_ended(host, mount, seconds, wait, progress)
    operations = operations_between(before, after)
    return Traffic(watched.seconds, "module", watched.ended, 0, operations, waiting=watched.waiting)


def _read(host: Host, mount: Mount) -> Statistics:
    file = f"{mount.control}/{mount.connection}/statistics"
    try:
        return parse_statistics(host.read(file))
    except OSError as error:
        raise FusetuneError(
            f"cannot read /{file}: {reason(error)}; run it as root, with the module as new as "
            "fusetune"
        ) from error
    except ValueError as error:
        raise FusetuneError(
            f"/{file} is not what this fusetune knows: {printable(str(error))}"
        ) from error
