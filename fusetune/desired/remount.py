# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes options that the recipe proposes and the administrator accepts into a mount's files."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from fusetune.bench.worker import Interruption
from fusetune.changes.lock import Lock
from fusetune.desired import history
from fusetune.desired.config import load
from fusetune.desired.resolve import Resolver
from fusetune.errors import FusetuneError, UsageError
from fusetune.host import Host
from fusetune.masking import mask_text
from fusetune.mounts.control import still_mounted
from fusetune.mounts.mount import Mount
from fusetune.recipes.advice import Advice, examine, masked
from fusetune.recipes.edit import Edit
from fusetune.recipes.edits import Making, Way
from fusetune.recipes.examined import Examined, values_of
from fusetune.recipes.load import load_recipes
from fusetune.recipes.plan import Change, Plan, plan
from fusetune.recipes.units import mount_unit
from fusetune.remount.checks import check, needs_reload, reload_systemd, replies, runs_systemd
from fusetune.remount.in_use import users
from fusetune.remount.record import (
    Record,
    digest,
    read_record,
    remove_record,
    with_edit,
    write_record,
)
from fusetune.remount.replacing import protected
from fusetune.remount.replacing import replace as replace_file
from fusetune.remount.switch import Switch, also_served, identities
from fusetune.remount.undo import undo
from fusetune.text import printable

_RELOAD = "systemctl daemon-reload"
_SECONDS = 2.0


@dataclass(frozen=True)
class Request:
    """The administrator's request.

    ``accept``: conditional options whose condition holds; ``only``: the options to apply, all if
    none is named.
    """

    workloads: Collection[str] = ()
    accept: Collection[str] = ()
    now: bool = False
    only: Collection[str] = ()


@dataclass(frozen=True)
class Remount:
    """What is written for the next mount; only texts of ``edits`` may contain secrets.

    ``withheld``: proposed changes that are not made, because they or options that they need were
    not accepted, not among those to apply, or have no place in the files. ``pending``: whether the
    mount was made before its files were changed. ``commands``: what makes the new options take
    effect. ``in_use``: who uses the mount, as far as that was checked. ``way``: empty if no file
    defines the mount, and only the server's configuration file is edited.
    """

    mount: Mount
    source: str
    recipe: str
    secrets: Collection[str]
    changes: Sequence[Change]
    withheld: Sequence[Change]
    edits: Sequence[Edit]
    pending: bool
    commands: Sequence[str]
    notes: Sequence[str]
    way: Way
    in_use: Sequence[str] = field(default_factory=tuple)
    remounted: bool = False


def remount(
    host: Host, mount: Mount, request: Request, *, dry_run: bool, tell: Callable[[str], None]
) -> Remount:
    """Write what the recipe of ``mount`` proposes into its files; with ``now``, remount it.

    ``tell``: as for `Switch`.

    Raises FusetuneError if nothing can be written, the mount is in use, or the new mount fails;
    then the files and the mount are as before.
    """
    resolver = Resolver(host, load(host))
    resolver.check_not_left_alone(mount)
    accept = {*request.accept, *resolver.accepted(mount)}
    found = _planned(host, mount, request, accept)
    wanted = bool(found.edits) or found.pending
    if request.now and wanted:
        found = replace(found, in_use=_in_use(host, found))
    if dry_run:
        return found
    with Lock(host, mount):
        if not still_mounted(host, mount):
            raise FusetuneError(f"{printable(mount.path)} is no longer mounted")
        if request.now and found.in_use:
            raise FusetuneError(
                f"{printable(mount.path)} is in use by {', '.join(found.in_use)}; nothing was "
                "written: end that use, or leave out --now"
            )
        if needs_reload(host, found.edits) and not replies(mount.path, _SECONDS):
            raise FusetuneError(
                f"{printable(mount.path)} does not reply, and systemd would wait for it when it "
                "reloads its files; unmount it first"
            )
        before = _write(host, found)
        if found.edits:
            history.record(host, mount, "remount", reasons=_done(found))
        if not request.now or not wanted:
            return found
        with Interruption():  # complete all steps
            _switch(host, found, before, tell)
    return replace(found, pending=False, remounted=True)


def _done(found: Remount) -> list[str]:
    """Return a sentence for each option of the next mount, and for each file written."""
    options = [
        f"without {one.option}" if one.after is None else f"{one.option}={one.after}"
        for one in found.changes
    ]
    return [*options, *(f"written to {edit.file}" for edit in found.edits)]


def _planned(host: Host, mount: Mount, request: Request, accept: Collection[str]) -> Remount:
    """Return what would be written. Raises FusetuneError if no file can be edited for it."""
    seen = examine(host, mount, load_recipes(host), request.workloads)
    if isinstance(seen, Advice):
        raise FusetuneError(
            f"no recipe describes the server of {printable(mount.path)}; docs/recipes.md explains "
            "how to write one"
        )
    _check_names(seen, "--accept", request.accept)
    _check_names(seen, "--only", request.only)
    # The next mount depends on the files, not on the options of the current mount.
    settings = {**seen.settings, **seen.written}
    full = plan(seen.recipe, settings, seen.here)
    without = _conditional(seen) - set(accept)
    if request.only:
        without |= _kinds(seen).keys() - set(request.only)
    chosen = plan(seen.recipe, settings, seen.here, without)
    making = seen.making(chosen)
    # Options without a place in the files are dropped with those that need them.
    while unsaid := _unsaid(seen, chosen, making):
        without |= unsaid
        chosen = plan(seen.recipe, settings, seen.here, without)
        making = seen.making(chosen)
    way = _way(host, seen, making, request)
    applied = values_of(chosen)
    secrets = seen.secrets
    record = read_record(host, mount.path)
    told = [note for note in making.notes if note not in seen.notes]
    reload = [_RELOAD] if needs_reload(host, making.edits) else []
    return Remount(
        mount,
        mask_text(mount.source, secrets),
        seen.recipe.name,
        secrets,
        [masked(one, secrets) for one in chosen.changes],
        [masked(one, secrets) for one in full.changes if applied.get(one.option) != one.after],
        making.edits,
        record is not None and record.pending(host, mount),
        [*reload, *(Switch(host, mount, way).words() if way != Way() else ())],
        [*chosen.named, *seen.notes, *told, *seen.elsewhere(full), *_lost(seen, applied)],
        way,
    )


def _lost(seen: Examined, applied: Collection[str]) -> list[str]:
    """Return a sentence for each option of the mount that its files do not set."""
    return [
        f"the mount has {name}={mask_text(value, seen.secrets)}, but its files do not set "
        f"{name}: the next mount will not have it"
        for name, value in seen.line.settings().items()
        if name not in seen.written and name not in applied
    ]


def _check_names(seen: Examined, given_by: str, names: Collection[str]) -> None:
    """Raise UsageError for an option that the recipe lacks, or that is never applied."""
    kinds = _kinds(seen)
    for name in names:
        if name not in kinds:
            raise UsageError(f"{given_by} {name}: the recipe {seen.recipe.name} has no such option")
        if kinds[name] == "unsafe":
            raise UsageError(f"{given_by} {name}: the option is unsafe and never applied")


def _kinds(seen: Examined) -> dict[str, str]:
    """Return the class of each option of the recipe."""
    bad = {one.option: one.class_ for one in seen.recipe.bad}
    return bad | {one.name: one.class_ for one in seen.recipe.option}


def _conditional(seen: Examined) -> set[str]:
    options = {one.name for one in seen.recipe.option if one.class_ == "conditional"}
    return options | {one.option for one in seen.recipe.bad if one.class_ == "conditional"}


def _unsaid(seen: Examined, chosen: Plan, making: Making) -> set[str]:
    """Return the options that only a file could set that is not edited."""
    by_hand = seen.only_in_file() if seen.own.why_not is not None else set()
    return {*seen.unsaid(making), *by_hand & values_of(chosen).keys()}


def _way(host: Host, seen: Examined, making: Making, request: Request) -> Way:
    """Return how the mount is made; `Way()` if only the server's configuration file can change.

    Raises FusetuneError if no file can change, or with --now if no file defines the mount.
    """
    path = printable(seen.mount.path)
    if making.way is None:
        if making.edits and not request.now:
            return Way()
        why = "; ".join(making.notes) or "no file on this host defines the mount"
        raise FusetuneError(
            f"{path}: nothing can be written: {why}; 'fusetune advise' shows the new command line"
        )
    if making.way.point not in ("", seen.mount.path):
        point = printable(making.way.point)
        raise FusetuneError(f"{path} is also mounted at {point}: use that name, like fstab")
    way = making.way
    if "x-systemd.automount" in way.options.split(",") and runs_systemd(host):
        # mount(8) would walk the path, and so have systemd mount it first.
        return replace(way, unit=mount_unit(way.point))
    return way


def _in_use(host: Host, found: Remount) -> list[str]:
    """Return who uses the mount. Raises FusetuneError if root cannot make the same mount."""
    mount, way = found.mount, found.way
    by_user = {"user", "users", "owner", "group"} & set(way.options.split(","))
    if by_user and mount.owner_uid:
        raise FusetuneError(
            f"uid {mount.owner_uid} mounted {printable(mount.path)}, and would not own a mount "
            "made by root: write the files without --now, and let that user remount it"
        )
    if way.unit and not runs_systemd(host):
        raise FusetuneError(f"{way.unit} makes the mount, but systemd does not run here")
    others = also_served(host, mount) if way.unit else []
    return [*users(host, mount), *(f"the unit's mount at {printable(one)}" for one in others)]


def _write(host: Host, found: Remount) -> Record | None:
    """Check, journal and make the edits; return the journal as it was before.

    Raises FusetuneError, with nothing written.
    """
    mount = found.mount
    before = read_record(host, mount.path)
    if not found.edits:
        return before
    with Lock(host, None):  # other mounts have lines in the same file
        for edit in found.edits:
            protected(edit.file)
            check(host, edit)
            _check_ours(before, edit)
        record = before or Record(mount.path, "", None)
        record = replace(
            record, boot_id=host.boot_id, instance=mount.instance, secrets=list(found.secrets)
        )
        for edit in found.edits:
            record = with_edit(record, edit, [mount.path])
        write_record(host, record)
        done: list[Edit] = []
        try:
            for edit in found.edits:
                first = before is None or before.of(edit.file) is None
                replace_file(edit, keep=edit.before is not None and first)
                done.append(edit)
        except FusetuneError:
            for edit in reversed(done):
                replace_file(edit.reversed())
            remove_record(host, record)
            if before:
                write_record(host, before)
            raise
        reload_systemd(host, found.edits)
    return before


def _check_ours(before: Record | None, edit: Edit) -> None:
    """Raise FusetuneError if our drop-in was changed by others: `reset` must recognize it."""
    written = before.of(edit.file) if before else None
    if written and written.digest and digest(edit.before) not in (written.digest, digest(None)):
        raise FusetuneError(
            f"{edit.file} was changed since fusetune wrote it; move those lines into another "
            "drop-in and remove the file"
        )


def _switch(host: Host, found: Remount, before: Record | None, tell: Callable[[str], None]) -> None:
    """Remount; if that fails, restore files and mount, and raise FusetuneError."""
    switch = Switch(host, found.mount, found.way, found.secrets, tell, identities(host))
    path = printable(found.mount.path)
    try:
        switch.forward()
    except FusetuneError as error:
        try:
            switch.clear()
            _put_back(host, found, before)
            switch.back()
        except FusetuneError as second:
            raise FusetuneError(
                f"the new mount of {path} failed: {error}; restoring the old one failed as well: "
                f"{second}; mount it by hand; 'fusetune reset {path}' restores its files"
            ) from second
        restored = "the old mount and its files were restored"
        if found.pending:  # which may include edits that the old mount was made with
            restored = "its files are as before fusetune's first change, and it was mounted so"
        raise FusetuneError(f"the new mount of {path} failed: {error}; {restored}") from error


def _put_back(host: Host, found: Remount, before: Record | None) -> None:
    """Restore the files from which the current mount was made. Raises FusetuneError."""
    record = read_record(host, found.mount.path)
    if record and (before is None or found.pending):
        undo(host, record)
    elif record and before:
        for edit in found.edits:
            replace_file(edit.reversed())
        write_record(host, before)
        reload_systemd(host, found.edits)
