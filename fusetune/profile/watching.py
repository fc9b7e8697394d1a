# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a mount is observed, independent of the source."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fusetune.host import Host
from fusetune.mounts.control import still_mounted, waiting
from fusetune.mounts.mount import Mount

#: Seconds between checks of waiting requests and of the mount.
_POLL = 0.1

#: Called with the elapsed share of the time, 0 to 1, and the current activity.
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Watched:
    """``seconds``: how long; ``ended``: time, signal or unmounted.

    ``waiting``: how many requests the kernel had on average, None if unknown.
    """

    seconds: float
    ended: str
    waiting: float | None


def until_ended(
    host: Host,
    mount: Mount,
    seconds: float,
    wait: Callable[[float], bool],
    progress: Progress,
) -> Watched:
    """Observe until the time is up, a signal arrives or the mount is gone.

    ``wait``: waits for up to the given seconds; returns whether a signal arrived.
    """
    samples: list[int] = []
    begun = look = time.monotonic()
    ended = "time"
    while (now := time.monotonic()) < begun + seconds:
        if now >= look:
            if not still_mounted(host, mount):
                ended = "unmounted"
                break
            if mount.connection:
                samples.append(waiting(host, mount))
            progress((now - begun) / seconds, "watching")
            look = now + _POLL
        if wait(min(look, begun + seconds) - now):
            ended = "signal"
            break
    mean = sum(samples) / len(samples) if samples else None
    return Watched(time.monotonic() - begun, ended, mean)
