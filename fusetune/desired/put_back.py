# SPDX-License-Identifier: GPL-2.0-or-later
"""Restores the values from before the service set its own, when the service ends for good."""

from collections.abc import Callable
from contextlib import suppress

from fusetune.changes.apply import Change, drop_if_undone, make, plan
from fusetune.changes.journal import KEEPING, Journal, journal_path
from fusetune.changes.lock import Lock
from fusetune.desired.history import record, values_of
from fusetune.desired.host_limits import release
from fusetune.errors import for_each
from fusetune.host import Host
from fusetune.knobs import Absent, Knob, knobs_of
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.text import printable


def put_back_all(host: Host, say: Callable[[str], None]) -> None:
    """Restore each mount's values and the host's limits; ``say`` a line for each that changed.

    Unlike `reset`, it leaves values that somebody else set, keeps what is saved, and lets a later
    start set the values again. Raises FusetuneError for the first failure, after all.
    """

    def one(mount: Mount | None) -> list[Change]:
        if not journal_path(host, mount).exists():
            return []
        changes = put_back(host, mount) if mount else release(host, None)
        name = printable(mount.path) if mount else "this host"
        if changes:
            say(f"{name}: {', '.join(f'{c.knob.name} {c.old} -> {c.new}' for c in changes)}")
        return changes

    for_each((*discover(host), None), one)


def put_back(host: Host, mount: Mount) -> list[Change]:
    """Restore the values of ``mount`` from before `apply` or the service set them last."""
    with Lock(host, mount):
        journal = Journal.to_change(host, mount)
        changes = plan(host, mount, _before(host, journal, mount))
        make(host, journal, changes, KEEPING)  # so that they are ours to set again
        drop_if_undone(host, journal, mount)
        if changes:
            record(host, mount, "watch", values_of(changes), reasons=["the service ended"])
    return changes


def _before(host: Host, journal: Journal, mount: Mount) -> dict[Knob, int]:
    """Return the values to restore, for knobs that still have the value that we set last."""
    found = {}
    for knob in knobs_of(host, mount):
        last, before = journal.last(knob.name), journal.before(knob.name, KEEPING)
        with suppress(Absent):
            if last and before is not None and knob.read(host, mount) == last.new:
                found[knob] = before
    return found
