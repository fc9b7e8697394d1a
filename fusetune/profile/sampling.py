# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount observed interval by interval, with the best available source."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import IO

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.bdi import dirty_pages
from fusetune.mounts.control import waiting_if_known
from fusetune.mounts.mount import Mount
from fusetune.profile.bpftrace import Tracing
from fusetune.profile.module import read_statistics
from fusetune.profile.totals import (
    Reading,
    operations_between,
    pattern_between,
    unrecorded_between,
)
from fusetune.profile.traffic import Traffic

_ATTACHING = "bpftrace is attaching its probes"
_SILENT = "bpftrace printed nothing in this interval"


@dataclass(frozen=True)
class Sample:
    """The observations of a mount in an interval.

    ``traffic``: its ``seconds`` are those between two readings of its source. ``why``: why no
    better source is used, None if this is the best. ``in_flight``: how many requests wait now, None
    if unknown. ``written``: bytes a second written back from the page cache, None if unknown.
    ``unanswered``: seconds for which requests have waited without a sign that any completed.
    """

    mount: Mount
    values: Mapping[str, int]
    traffic: Traffic
    why: str | None
    in_flight: int | None
    written: float | None
    unanswered: float


class Sampled:
    """One mount, sampled periodically. ``why``: see `Sample`.

    Its requests are counted by the module's statistics, otherwise by bpftrace after `trace`.
    Without both, fusectl reports how many wait, and the bdi which pages are dirty.
    """

    def __init__(self, host: Host, mount: Mount, values: Mapping[str, int], untraced: str) -> None:
        """``values``: its live knobs; ``untraced``: why bpftrace does not observe it."""
        self.mount = mount
        self.tracing: Tracing | None = None
        self._host = host
        self.why: str | None = None if mount.is_tuned_type else untraced
        self._last = 0
        self._since: float | None = None
        self.begin(values)
        self.look()

    def begin(self, values: Mapping[str, int]) -> None:
        """Start an interval."""
        self._places = values.get("max_background")
        self._begun = time.monotonic()
        self._before = self._read()
        self._pages = dirty_pages(self._host, self.mount)
        self._looks: list[int] = []

    def trace(self, every: float) -> None:
        """Start to observe it with bpftrace, if possible, reading every ``every`` seconds."""
        try:
            self.tracing = Tracing(self._host, self.mount, every)
            self.why = _ATTACHING
        except FusetuneError as error:
            self.why = str(error)

    @property
    def attaching(self) -> bool:
        """Whether bpftrace has not yet attached its probes."""
        return self.tracing is not None and not self.tracing.ready

    def read(self, stream: IO[bytes]) -> None:
        """Read output of bpftrace from one of its streams; continue without it if it has exited."""
        try:
            if self.tracing:
                self.tracing.read(stream)
        except FusetuneError as error:
            self._give_up(error)

    def _give_up(self, error: FusetuneError) -> None:
        self.close()
        self.why = str(error)

    def close(self) -> None:
        """End bpftrace, if it runs."""
        if self.tracing:
            self.tracing.close()
        self.tracing = None

    def look(self) -> None:
        """Check how many requests wait, and whether bpftrace takes too long to start."""
        if self.attaching:
            self._read()
        waiting, now = waiting_if_known(self._host, self.mount), time.monotonic()
        if waiting is None:
            return
        if not waiting:
            self._since = None
        elif self._since is None or waiting < self._last:
            self._since = now
        self._last = waiting
        self._looks.append(waiting)

    def take(self, values: Mapping[str, int]) -> Sample:
        """Return the observations since the interval started, and start the next one.

        ``values``: the live knobs now.
        """
        self.look()
        begun, before, looks, pages = self._begun, self._before, self._looks, self._pages
        at_limit = [one for one in looks if self._places and one >= self._places]
        self.begin(values)
        traffic = Traffic(
            *(self._begun - begun, "fusectl" if looks else "bdi", "time", 0, ()),
            waiting=sum(looks) / len(looks) if looks else None,
            at_background=len(at_limit) / len(looks) if looks and self._places else None,
            dirty=self._pages,
        )
        if before and self._before and self._before.at > before.at:
            traffic = self._counted(traffic, before, self._before)
        elif before and self._before:
            self.why = _SILENT
        written = self._pages.written - pages.written if pages and self._pages else None
        # The module also counts requests without reply, as soon as the server has read them.
        ended = any(one.ended or traffic.source == "module" for one in traffic.operations)
        if self._since is not None and (ended or written):
            self._since = self._begun
        return Sample(
            self.mount,
            values,
            traffic,
            self.why,
            looks[-1] if looks else None,
            None if written is None else written / (self._begun - begun),
            self._begun - self._since if self._since is not None else 0.0,
        )

    def _read(self) -> Reading | None:
        """Return the source's counts so far; None if there is no source."""
        try:
            if self.mount.is_tuned_type:
                found: Reading | None = read_statistics(self._host, self.mount)
            else:
                found = self.tracing.reading() if self.tracing else None
        except FusetuneError as error:
            self._give_up(error)
            return None
        if found:
            self.why = None
        return found

    def _counted(self, traffic: Traffic, before: Reading, after: Reading) -> Traffic:
        return replace(
            traffic,
            seconds=after.at - before.at,
            source="bpftrace" if self.tracing else "module",
            lost=max(0, after.lost - before.lost),
            unrecorded=unrecorded_between(before.counts, after.counts),
            operations=operations_between(before.counts, after.counts),
            pattern=pattern_between(before.pattern, after.pattern),
            queued=self.tracing.queued if self.tracing else True,
        )
