# SPDX-License-Identifier: GPL-2.0-or-later
"""Restores the original values, and forgets saved ones."""

from collections.abc import Callable
from functools import partial

from fusetune.changes.apply import Change, enforce, plan, to_undo, was_kept
from fusetune.changes.journal import Journal, journal_path
from fusetune.changes.lock import Lock
from fusetune.changes.overrides import note_present
from fusetune.changes.stale import remove_stale
from fusetune.desired.history import record, values_of
from fusetune.desired.results import forget, forget_all
from fusetune.errors import for_each
from fusetune.host import Host
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount


def reset(
    host: Host, mount: Mount | None, *, dry_run: bool = False, keep_saved: bool = False
) -> list[Change]:
    """Restore the values from before the first change and forget what is saved for the mount.

    ``keep_saved``: do not forget it. Until the next mount, the service leaves these values alone,
    regardless of the configuration.
    """
    if dry_run:
        return plan(host, mount, to_undo(host, Journal(host, mount), mount))
    with Lock(host, mount):
        journal = Journal.to_change(host, mount)
        originals = {knob.name: v for knob, v in to_undo(host, journal, mount).items()}
        changes = enforce(host, mount, originals)
        kept = was_kept(journal)
        changed = journal.changed
        journal.remove()
        if changes:
            record(host, mount, "reset", values_of(changes))
        if mount and not keep_saved:
            forget(host, mount)
        if mount and kept:
            # With those that were set back by hand before, and without counts: what differs now was
            # set here, not by another program.
            note_present(host, mount, changed, {})
    return changes


def reset_all(host: Host, *, dry_run: bool = False, keep_saved: bool = False) -> list[Change]:
    """Reset the host and every mount, then raise FusetuneError for the first failure.

    ``keep_saved``: do not forget what is saved for any mount.
    """

    def one(mount: Mount | None) -> list[Change]:
        changed = journal_path(host, mount).exists()
        if not changed:
            return []
        return reset(host, mount, dry_run=dry_run, keep_saved=keep_saved)

    def clear(remove: Callable[[Host], None]) -> list[Change]:
        remove(host)
        return []

    steps = [partial(one, mount) for mount in (None, *discover(host))]
    if not dry_run:
        steps += [partial(clear, forget_all)] if not keep_saved else []
        steps += [partial(clear, remove_stale)]
    return for_each(steps, lambda step: step())
