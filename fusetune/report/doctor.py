# SPDX-License-Identifier: GPL-2.0-or-later
"""What limits FUSE on this host, and how to remedy it."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fusetune.changes.policy import dirty_share, excluded_reason
from fusetune.changes.state import values_now
from fusetune.desired.config import load
from fusetune.desired.resolve import Resolver
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.kmod import kinds, state
from fusetune.knobs import SYSTEM, Absent, Knob, knobs_of
from fusetune.libfuse import installed
from fusetune.mounts.control import waiting
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import CONTROLS, Mount
from fusetune.mounts.stack import Layer, Stacks
from fusetune.mounts.tree import MountTree, places
from fusetune.report.findings import Finding, Seen, found
from fusetune.source_age import Age
from fusetune.toml.file import ConfigError

_UNANSWERED_SECONDS = 0.2


@dataclass(frozen=True)
class Feature:
    """A knob: its current value, or why this kernel does not have it."""

    knob: Knob
    value: int | None
    absent: str | None


@dataclass(frozen=True)
class Diagnosis:
    """What ``doctor`` found.

    ``dirty_percent``: the dirty memory allowed to all tuned mounts together, in percent of the
    host's limit; ``max_dirty_percent``: the configured bound, None if the file is invalid.
    ``elsewhere``: how many FUSE mounts are in other mount namespaces and therefore left alone.
    ``ages``: how old our copies of other projects' code are. ``below``: the mounts that each
    mount lies on, by device.
    """

    features: list[Feature]
    findings: list[Finding]
    dirty_percent: int
    max_dirty_percent: int | None
    elsewhere: int
    ages: Sequence[Age] = ()
    below: Mapping[str, Sequence[Layer]] = field(default_factory=dict)


def diagnose(
    host: Host,
    known: Sequence[tuple[Mount, Mapping[str, int]]] | None = None,
    backing: Path | None = None,
    resolver: Resolver | None = None,
) -> Diagnosis:
    """Examine the host and every FUSE mount, without touching a path in a mount.

    ``known``: all mounts with their values by knob, if the caller has read them. ``backing``: a
    server's backing directory, to be examined too. ``resolver``: that of the caller, None to read
    the configuration. Raises UsageError if ``backing`` is in a FUSE mount, FusetuneError if it
    cannot be read.
    """
    if known is None:
        known = [(mount, values_now(host, mount)) for mount in discover(host)]
    mounts = [mount for mount, _ in known]
    values = {mount.device: one for mount, one in known}
    features = [_feature(host, knob, None) for knob in SYSTEM]
    if mounts:
        features += [_feature(host, knob, mounts[0]) for knob in knobs_of(host, mounts[0])]
    problem = ""
    try:
        resolver = resolver or Resolver(host, load(host))
    except ConfigError as error:
        problem = str(error)
    settings = resolver.config.settings if resolver else None
    why_left_alone = resolver.left_alone_reason if resolver else excluded_reason
    stacks = Stacks(host, mounts)
    seen = Seen(
        host,
        mounts,
        values,
        {mount.device: stacks.below(mount) for mount in mounts},
        values_now(host, None),
        _unanswered(host, mounts),
        ages(host),
        settings,
        problem,
        sum(dirty_share(one) for one in values.values()),
        {mount.device for mount in mounts if why_left_alone(mount)},
        _covered(host, mounts),
        backing,
    )
    return Diagnosis(
        features,
        list(found(seen)),
        seen.dirty_percent,
        settings.max_dirty_percent if settings else None,
        _elsewhere(host, mounts),
        seen.ages,
        seen.below,
    )


def _covered(host: Host, mounts: Sequence[Mount]) -> set[str]:
    """Return the devices of mounts to which no path leads."""
    tree = MountTree(places(host))

    def leads_to(path: str) -> str | None:
        place = tree.leads_to(path)
        return place.device if place else None

    return {
        mount.device
        for mount in mounts
        if all(leads_to(path) != mount.device for path in (mount.path, *mount.also_at))
    }


def ages(host: Host) -> list[Age]:
    """Return how old our loaded modules and each tuned libfuse3 are."""
    loaded = (state.age(host, kind) for kind in kinds.KINDS)
    return [*(one for one in loaded if one), *installed.ages(host)]


def _feature(host: Host, knob: Knob, mount: Mount | None) -> Feature:
    try:
        return Feature(knob, knob.read(host, mount), None)
    except (Absent, FusetuneError) as why:
        return Feature(knob, None, str(why))


def _unanswered(host: Host, mounts: Sequence[Mount]) -> dict[str, int]:
    """Return, by device, how many requests have waited for a mount's server for a while."""
    counts = {mount.device: waiting(host, mount) for mount in mounts}
    if any(counts.values()):
        time.sleep(_UNANSWERED_SECONDS)
    return {mount.device: min(counts[mount.device], waiting(host, mount)) for mount in mounts}


def _elsewhere(host: Host, mounts: list[Mount]) -> int:
    """Return how many connections belong to other mount namespaces, such as containers.

    fusectl lists every connection (fs/fuse/control.c), mountinfo only those of our namespace.
    """
    connections: set[tuple[str, str | None]] = set()
    for control in CONTROLS:
        with suppress(OSError):
            connections.update((control, name) for name in os.listdir(host.path(control)))
    return len(connections - {(mount.control, mount.connection) for mount in mounts})
