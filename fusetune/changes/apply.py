# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan changes, journal them, write, read back, and undo."""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fusetune.changes.journal import KEEPING, Journal, Record
from fusetune.changes.lock import Lock
from fusetune.changes.overrides import note_present
from fusetune.changes.policy import refusal
from fusetune.errors import FusetuneError, for_each
from fusetune.host import Host
from fusetune.knobs import Absent, Knob, knobs_of, out_of_range
from fusetune.mounts.mount import Mount
from fusetune.text import printable


@dataclass(frozen=True)
class Change:
    """A knob's old and new value; ``file`` is its full path."""

    knob: Knob
    mount: Mount | None
    file: str
    old: int
    new: int


def plan(host: Host, mount: Mount | None, values: Mapping[Knob, int]) -> list[Change]:
    """Return what setting ``values`` would change: no entry for knobs that already have the value.

    Raises FusetuneError if one is absent or unreadable.
    """
    changes = []
    for knob, new in values.items():
        try:
            old = knob.read(host, mount)
            if old != new:
                file = host.path(knob.location(mount))
                changes.append(Change(knob, mount, file, old, new))
        except Absent as why:
            raise FusetuneError(f"{knob.name} is absent: {why}") from why
    return changes


def make(host: Host, journal: Journal, changes: Sequence[Change], why: str) -> None:
    """Make all ``changes`` or none: journal them, write each and read it back.

    On a failure, restores what was written before it and raises FusetuneError.
    """
    if not changes:
        return
    now = time.time()
    journal.append([Record(c.knob.name, c.old, c.new, why, now) for c in changes])
    done: list[Change] = []
    try:
        for change in changes:
            done.append(change)
            change.knob.write(host, change.mount, change.new)
    except (FusetuneError, Absent) as error:
        # The user sees the first failure; the journal still has the old values.
        with suppress(FusetuneError):
            enforce(host, changes[0].mount, {c.knob.name: c.old for c in done})
        drop_if_undone(host, journal, changes[0].mount)
        if isinstance(error, Absent):
            target = printable(changes[0].mount.path) if changes[0].mount else "this host"
            raise FusetuneError(f"{target} disappeared meanwhile: {error}") from error
        raise


def enforce(host: Host, mount: Mount | None, values: Mapping[str, int]) -> list[Change]:
    """Write ``values`` (by knob name) that differ now, without journalling; return the changes.

    For values that are already in the journal, and for our own mounts. Absent knobs are skipped.
    Tries every knob before it raises FusetuneError for the first that failed.
    """

    def one(knob: Knob) -> list[Change]:
        with suppress(Absent):
            old, new = knob.read(host, mount), values[knob.name]
            if old != new:
                knob.write(host, mount, new)
                return [Change(knob, mount, host.path(knob.location(mount)), old, new)]
        return []

    return for_each([knob for knob in knobs_of(host, mount) if knob.name in values], one)


def to_undo(host: Host, journal: Journal, mount: Mount | None) -> dict[Knob, int]:
    """Return the knobs to restore, and their values before the first change.

    Absent knobs have nothing to undo. Raises FusetuneError if a value cannot be read.
    """
    found = {}
    for knob in knobs_of(host, mount):
        try:
            if journal.to_undo(knob.name, knob.read(host, mount)):
                found[knob] = journal.originals[knob.name]
        except Absent:
            continue
    return found


def drop_if_undone(host: Host, journal: Journal, mount: Mount | None) -> None:
    """Remove the journal if nothing remains to undo."""
    with suppress(FusetuneError):  # unreadable, or not to be removed: keep it
        if not to_undo(host, journal, mount):
            journal.remove()


def set_knobs(
    host: Host,
    mount: Mount | None,
    values: Mapping[Knob, int],
    allowed_owners: Collection[int] = (),
    room: int | None = None,
    *,
    dry_run: bool = False,
) -> list[Change]:
    """Set ``values`` for the administrator, all or none; return the changes.

    ``room``: how much the mount may keep dirty, in percent of the host's limit; None: any. Raises
    FusetuneError if policy, kernel or permission forbids one.
    """
    for knob, value in values.items():
        if mount and (why := refusal(mount, knob, value, allowed_owners, room)):
            raise FusetuneError(why)
        if why := out_of_range(host, mount, knob, value):
            raise FusetuneError(why)
    if dry_run:
        return plan(host, mount, values)
    with Lock(host, mount):
        journal = Journal.to_change(host, mount)
        changes = plan(host, mount, values)
        kept, changed = was_kept(journal), journal.changed
        make(host, journal, changes, "set")
        drop_if_undone(host, journal, mount)
        if mount and kept and not journal.records:
            # All values are the original ones, so the journal with this request is gone. Those that
            # were set back by hand before are the administrator's as well.
            note_present(host, mount, changed | {knob.name for knob in values})
    return changes


def was_kept(journal: Journal) -> bool:
    """Whether `apply` or the service set values, and may set them again."""
    return any(record.why == KEEPING for record in journal.records)
