# SPDX-License-Identifier: GPL-2.0-or-later
"""The observed mounts: all of this mount namespace, or one and its layers."""

import time
from collections.abc import Callable, Sequence
from typing import IO

from fusetune.changes.state import ValuesWhenAsked
from fusetune.host import Host
from fusetune.mounts.control import mount_controls
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.mounts.stack import Stacks
from fusetune.profile.sampling import Sampled
from fusetune.report.documents.top import Top, top_frame

#: The most mounts that bpftrace observes at once: each needs a separate process.
MOST_TRACED = 8
#: Minimum seconds between checks of waiting requests, and additional seconds per mount.
_LOOK, _LOOK_EACH = 0.1, 0.01
#: Readings of bpftrace in an interval, so that a figure is no older than that part of it; and
#: seconds from one to the next.
_READINGS, _READING_LEAST, _READING_MOST = 4, 0.05, 1.0
_UNNAMED = "name the mount, or use --trace"
_TOO_MANY = f"bpftrace observes at most {MOST_TRACED} mounts"
#: Identity of a mount: numbers are reused.
_Key = tuple[str, int | None, str]


def _key(mount: Mount) -> _Key:
    return mount.device, mount.instance, mount.path


class Watching:
    """The mounts and what is known about each. Raises FusetuneError if /proc cannot be read."""

    def __init__(self, host: Host, named: Mount | None, interval: float, *, trace: bool) -> None:
        """``named``: the requested mount, if any; ``interval``: seconds between frames.

        ``trace``: whether bpftrace observes all, up to `MOST_TRACED`.
        """
        self._host, self._named, self._trace = host, named, trace
        self._every = min(_READING_MOST, max(_READING_LEAST, interval / _READINGS))
        self._sampled: dict[_Key, Sampled] = {}
        self._stacks: Stacks | None = None
        self._stacked: set[_Key] = set()
        self._begun = time.monotonic()
        self._follow(self._mounts())

    # What is mounted

    def _mounts(self) -> list[Mount]:
        """Return the mounts to observe now."""
        found = discover(self._host)
        keys = {_key(mount) for mount in found}
        if self._stacks is None or keys != self._stacked:
            mount_controls(self._host)
            found = discover(self._host)
            self._stacks, self._stacked = Stacks(self._host, found), keys
        if self._named is None:
            return found
        if not any(map(self._is_named, found)):
            return []
        below = {layer.device for layer in self._stacks.down(self._named)}
        others = [one for one in found if one.device in below and not self._is_named(one)]
        return [self._named, *others]

    def _is_named(self, mount: Mount) -> bool:
        named = self._named
        return named is not None and (mount.device, mount.instance) == (
            named.device,
            named.instance,
        )

    @property
    def gone(self) -> bool:
        """Whether the requested mount is gone."""
        return self._named is not None and not any(
            self._is_named(one.mount) for one in self._sampled.values()
        )

    def _follow(self, mounts: Sequence[Mount]) -> None:
        """Observe exactly these mounts."""
        wanted = {_key(mount): mount for mount in mounts}
        for key in self._sampled.keys() - wanted.keys():
            self._sampled.pop(key).close()
        for key, mount in wanted.items():
            if key not in self._sampled:
                self._sampled[key] = self._sample(mount)

    def _sample(self, mount: Mount) -> Sampled:
        values = ValuesWhenAsked(self._host, mount)
        found = Sampled(self._host, mount, values, _UNNAMED)
        if mount.is_tuned_type or not (self._trace or self._is_named(mount)):
            return found
        if sum(one.tracing is not None for one in self._sampled.values()) < MOST_TRACED:
            found.trace(self._every)
        else:
            found.why = _TOO_MANY
        return found

    # What comes from bpftrace

    @property
    def attaching(self) -> bool:
        """Whether bpftrace has not attached its probes to all mounts yet."""
        return any(one.attaching for one in self._sampled.values())

    def streams(self) -> dict[IO[bytes], Callable[[], None]]:
        """Return the streams to read, for select(2), with their readers."""
        return {
            stream: lambda one=one, stream=stream: one.read(stream)  # type: ignore[misc]
            for one in self._sampled.values()
            if one.tracing
            for stream in one.tracing.streams
        }

    def close(self) -> None:
        """End all running programs."""
        while self._sampled:
            self._sampled.popitem()[1].close()

    # Intervals

    @property
    def look_every(self) -> float:
        """Seconds from one `look` to the next, which grow with the number of mounts."""
        return max(_LOOK, _LOOK_EACH * len(self._sampled))

    def look(self) -> None:
        """Check how many requests wait at each mount."""
        for one in self._sampled.values():
            one.look()

    def begin(self) -> None:
        """Begin the first interval."""
        self._begun = time.monotonic()
        for one in self._sampled.values():
            one.begin(ValuesWhenAsked(self._host, one.mount))

    def frame(self) -> Top:
        """Return the activity of the mounts since the last call, and start the next interval.

        A new mount is shown from its first complete interval on.
        """
        mounts = self._mounts()
        there = {_key(mount) for mount in mounts}
        samples = [
            one.take(ValuesWhenAsked(self._host, one.mount))
            for key, one in self._sampled.items()
            if key in there
        ]
        self._follow(mounts)
        begun, self._begun = self._begun, time.monotonic()
        return top_frame(samples, self._stacks, time.time(), self._begun - begun)
