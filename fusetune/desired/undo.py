# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything that ``reset`` restores and removes."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fusetune.bench.note import scratch_note
from fusetune.bench.scratch import remove_left_behind
from fusetune.changes.apply import Change
from fusetune.changes.journal import journal_path
from fusetune.changes.lock import Busy, Lock
from fusetune.desired import history
from fusetune.desired.host_limits import release
from fusetune.desired.kept import Remembered, all_kept, kept_for
from fusetune.desired.reset import reset, reset_all
from fusetune.desired.sysctl import Line, forget_persisted
from fusetune.errors import FusetuneError, for_each
from fusetune.host import Host
from fusetune.mounts.discover import discover, find
from fusetune.mounts.mount import Mount
from fusetune.remount.record import read_file, read_record, record_files
from fusetune.remount.undo import Undone, undo

# A hung server must not keep `reset` from restoring values.
_REMOVING_SECONDS = 0.5


@dataclass(frozen=True)
class Reset:
    """Restored values, reverted edits of files, and removed results."""

    changes: Sequence[Change | Line] = ()
    undone: Sequence[Undone] = ()
    forgotten: Sequence[Remembered] = ()


def reset_named(host: Host, name: str, *, dry_run: bool, keep_saved: bool = False) -> Reset:
    """Restore values and files of the mount ``name``, or only the files if it is gone.

    ``keep_saved``: restore only the values, and do not forget what is saved. Raises FusetuneError
    if nothing is known about ``name``.
    """
    if keep_saved:
        return Reset(reset_mount(host, find(host, name), dry_run=dry_run, keep_saved=True))
    try:
        mount = find(host, name)
    except FusetuneError:
        record = read_record(host, os.path.abspath(name))
        if record is None:
            raise
        return Reset(undone=[undo(host, record, dry_run=dry_run)])
    records = [read_record(host, path) for path in (mount.path, *mount.also_at)]
    undone = [undo(host, record, dry_run=dry_run) for record in records if record]
    if files := [edit.file for one in undone for edit in one.edits if not dry_run]:
        history.record(host, mount, "reset", reasons=[f"{file} was restored" for file in files])
    forgotten = kept_for(host, mount)
    return Reset(reset_mount(host, mount, dry_run=dry_run), undone, forgotten)


def reset_mount(
    host: Host, mount: Mount, *, dry_run: bool, keep_saved: bool = False
) -> list[Change]:
    """Restore a mount's values, and the host's limits that were raised for it alone."""
    changes = reset(host, mount, dry_run=dry_run, keep_saved=keep_saved)
    if not dry_run:
        _clear(host, mount)
    return changes + release(host, mount, dry_run=dry_run)


def _clear(host: Host, mount: Mount) -> None:
    """Remove the scratch directory of a run that was killed, but not of one that is running."""
    if scratch_note(host, mount).exists():
        with suppress(Busy), Lock(host, mount, in_passing=True):
            remove_left_behind(host, mount, _REMOVING_SECONDS)


def reset_host(host: Host, *, dry_run: bool) -> Reset:
    """Restore the host's values, including those for later boots."""
    changes = reset(host, None, dry_run=dry_run)
    return Reset([*changes, *forget_persisted(host, dry_run=dry_run)])


def reset_every_mount(host: Host, *, dry_run: bool) -> Reset:
    """Put back the values of every mount; what is saved, files and the host's values stay."""

    def one(mount: Mount) -> list[Change]:
        return reset_mount(host, mount, dry_run=dry_run, keep_saved=True)

    changed = [mount for mount in discover(host) if journal_path(host, mount).exists()]
    return Reset(for_each(changed, one))


def reset_everything(host: Host, *, dry_run: bool, keep_saved: bool = False) -> Reset:
    """Restore values and files of every mount, and the host's values, also for later boots.

    ``keep_saved``: do not forget what is saved for any mount.
    """

    undone: list[Undone] = []

    def one(file: Path) -> list[Change]:
        undone.append(undo(host, read_file(file), dry_run=dry_run))
        return []

    def clear(mount: Mount) -> list[Change]:
        _clear(host, mount)
        return []

    steps: list[Callable[[], Sequence[Change | Line]]] = [
        *(partial(one, file) for file in record_files(host)),
        partial(reset_all, host, dry_run=dry_run, keep_saved=keep_saved),
        *(partial(clear, mount) for mount in (() if dry_run else discover(host))),
        partial(forget_persisted, host, dry_run=dry_run),
    ]
    forgotten = [] if keep_saved else all_kept(host)
    return Reset(for_each(steps, lambda step: step()), undone, forgotten)
