# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets the desired values of each mount, except those that the administrator changed."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fusetune.changes.apply import Change, drop_if_undone, make, plan
from fusetune.changes.journal import INIT, KEEPING, Journal, Record
from fusetune.changes.lock import Lock, clear_after_crash
from fusetune.changes.overrides import note_overrides, overrides, set_again
from fusetune.desired.history import record, values_of
from fusetune.desired.resolve import Expected, Resolver
from fusetune.errors import FusetuneError, for_each
from fusetune.host import Host
from fusetune.knobs import LIVE_BY_NAME
from fusetune.mounts.mount import Mount

#: How often `apply --all` sets a value again that another program keeps changing.
LEFT_AFTER = 3


@dataclass(frozen=True)
class Reconciled:
    """The result of setting the expected values.

    ``changes``: as made; ``overridden``: newly found values set by others, by knob; ``refused``:
    why policy forbids some; ``expected``: the desired values, by knob; ``fought``: those that
    others changed every time they were set here.
    """

    changes: list[Change] = field(default_factory=list)
    overridden: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    expected: Mapping[str, Expected] = field(default_factory=dict, compare=False)
    fought: dict[str, int] = field(default_factory=dict)


def reconcile(
    resolver: Resolver,
    mount: Mount,
    *,
    respect: bool = True,
    since_init: bool = False,
    by: str = "apply",
    dry_run: bool = False,
    insist: bool = False,
) -> Reconciled:
    """Set the knobs of ``mount`` that differ from their desired values.

    ``respect``: keep values that others changed after us. Without it, they are kept once that has
    happened `LEFT_AFTER` times, unless ``insist``. ``since_init``: the values were set before the
    server replied to INIT, so differences come from the reply, except values known to be set by
    others. ``by``: the command for the history. Raises `Busy` while another fusetune works on the
    mount, FusetuneError if journal or kernel prevents it; nothing is half-changed then.
    """
    host, expected = resolver.host, resolver.expected(mount)
    refused = [one.refused for one in expected.values() if one.refused]
    wanted = {name: one.value for name, one in expected.items() if not one.refused}
    if dry_run:
        return Reconciled(_plan(host, mount, wanted), {}, refused, expected)
    if not _plan(host, mount, wanted):
        clear_after_crash(host, mount)
        return Reconciled([], {}, refused, expected)
    with Lock(host, mount) as lock:
        journal = Journal.to_change(host, mount)
        known, counted = overrides(host, mount), set_again(host, mount)
        times, theirs = counted, {}
        if not lock.left_behind:
            theirs = _overridden(host, mount, journal, wanted, known)
        if not respect:
            times = {} if insist else {**times, **{n: times.get(n, 0) + 1 for n in theirs}}
            theirs = {n: v for n, v in theirs.items() if times.get(n, 0) >= LEFT_AFTER}
        if since_init:
            theirs = {name: value for name, value in theirs.items() if name in known}
        changes = _plan(host, mount, {n: v for n, v in wanted.items() if n not in theirs})
        if since_init:
            journal.append(_of_init(journal, changes))
        make(host, journal, changes, KEEPING)
        drop_if_undone(host, journal, mount)
        if changes:
            _record(resolver, mount, by, changes, expected)
        if theirs != known or times != counted:
            note_overrides(host, mount, theirs, times)
    resolver.recount(mount)
    new = {name: v for name, v in theirs.items() if known.get(name) != v}
    return Reconciled(changes, new, refused, expected, {} if respect else theirs)


def _of_init(journal: Journal, changes: Sequence[Change]) -> list[Record]:
    """Return records of the values that replaced ours, so that `reset` restores them."""
    return [
        Record(change.knob.name, change.old, change.old, INIT, time.time())
        for change in changes
        if (last := journal.last(change.knob.name)) and last.new != change.old
    ]


def _record(
    resolver: Resolver,
    mount: Mount,
    by: str,
    changes: Sequence[Change],
    expected: Mapping[str, Expected],
) -> None:
    origins = dict.fromkeys(expected[change.knob.name].said_by for change in changes)
    why = [f"{origin} asks for it" for origin in origins]
    keep = resolver.config.settings.keep
    record(resolver.host, mount, by, values_of(changes), keep=keep, reasons=why)


def reconcile_all(
    resolver: Resolver,
    mounts: Sequence[Mount],
    *,
    dry_run: bool,
    insist: bool,
    tell: Callable[[Mount, Reconciled], None],
) -> list[Change]:
    """Set the desired values of all mounts, then raise FusetuneError for the first failure.

    Values set by others are not respected, see `reconcile`. ``tell``: called for each mount that
    did not fail.
    """

    def one(mount: Mount) -> list[Change]:
        done = reconcile(resolver, mount, respect=False, dry_run=dry_run, insist=insist)
        tell(mount, done)
        return done.changes

    return for_each(mounts, one)


def _plan(host: Host, mount: Mount, values: Mapping[str, int]) -> list[Change]:
    """Return the differences, without knobs that this kernel or mount lacks."""
    changes = []
    for name, value in values.items():
        with suppress(FusetuneError):
            changes += plan(host, mount, {LIVE_BY_NAME[name]: value})
    return changes


def _overridden(
    host: Host,
    mount: Mount,
    journal: Journal,
    wanted: Mapping[str, int],
    known: Mapping[str, int],
) -> dict[str, int]:
    """Return the values that were changed after us, by hand or with `set`.

    ``known``: those noted before.
    """
    theirs = {}
    for change in _plan(host, mount, wanted):
        name, value = change.knob.name, change.old
        last = journal.last(name, passing=False)
        if journal.before_trials(name, value) is not None:
            continue  # `auto` was killed
        if not (last.why == KEEPING and last.new == value if last else name not in known):
            theirs[name] = value
    return theirs
