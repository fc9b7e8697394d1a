# SPDX-License-Identifier: GPL-2.0-or-later
"""Reverts what `remount` wrote, as far as it is unchanged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusetune.changes.lock import Lock
from fusetune.host import Host
from fusetune.recipes.config_text import ConfigText
from fusetune.recipes.edit import Edit, text_of
from fusetune.recipes.fstab import fstab_line, split_items
from fusetune.remount.checks import needs_reload, reload_systemd, replies
from fusetune.remount.record import (
    Record,
    Written,
    digest,
    every_record,
    remove_record,
)
from fusetune.remount.replacing import backup_of, replace

_SECONDS = 2.0


@dataclass(frozen=True)
class Undone:
    """The reverting edits, and a sentence for each change that stays.

    ``secrets``: names of options whose values must not be printed.
    """

    edits: Sequence[Edit] = ()
    stays: Sequence[str] = ()
    secrets: Sequence[str] = ()


def undo(host: Host, record: Record, *, dry_run: bool = False) -> Undone:
    """Revert a record's changes, except those that others changed since. Raises FusetuneError."""
    if dry_run:
        return _undone(record)
    with Lock(host, None):
        found = _undone(record)
        for edit in found.edits:
            replace(edit)
        remove_record(host, record)
        others = {one.file for other in every_record(host) for one in other.written}
        for one in record.written:
            if one.file not in others:
                backup_of(Path(one.file)).unlink(missing_ok=True)
    if needs_reload(host, found.edits):
        stays = [*found.stays, *_reload(host, record.path, found.edits)]
        return Undone(found.edits, stays, found.secrets)
    return found


def _reload(host: Host, path: str, edits: Sequence[Edit]) -> Iterator[str]:
    """Make systemd reload its files, or yield why that was left out."""
    # Its generators follow the paths in fstab, and process 1 waits for them.
    if replies(path, _SECONDS):
        reload_systemd(host, edits)
    else:
        yield f"{path} does not reply, so systemd was not reloaded: run 'systemctl daemon-reload'"


def _undone(record: Record) -> Undone:
    edits: list[Edit] = []
    stays: list[str] = []
    for one in record.written:
        text = text_of(Path(one.file))
        if one.items:
            _take_back_items(record, one, text, edits, stays)
        elif one.form:
            _take_back_settings(one, text, edits, stays)
        elif text is not None:
            before = None if one.made else text_of(backup_of(Path(one.file)))
            if digest(text) == one.digest and (one.made or before is not None):
                edits.append(Edit(Path(one.file), text, before))
            elif text != before:  # they are equal if it was killed before the edit
                stays.append(
                    f"{one.file} was changed since fusetune wrote it, so it was not restored"
                )
    return Undone(edits, stays, record.secrets)


def _take_back_settings(
    one: Written, text: str | None, edits: list[Edit], stays: list[str]
) -> None:
    now = ConfigText(text or "", one.form)
    for setting in reversed(one.settings):
        before = now.without(setting)
        if before is None:
            stays.append(
                f"{setting.key} in {one.file} was changed since fusetune wrote it, so it was not "
                "restored"
            )
        now = before or now
    if text is not None and (str(now) != text or (one.made and not text)):
        after = None if one.made and not str(now) else str(now)
        edits.append(Edit(Path(one.file), text, after, one.form))


def _take_back_items(
    record: Record, one: Written, text: str | None, edits: list[Edit], stays: list[str]
) -> None:
    line = fstab_line(text or "", [record.path])
    if text is None or line is None:
        stays.append(f"{one.file} no longer mounts {record.path}, so nothing was restored there")
        return
    items = split_items(line.options)
    ours = {item.now for item in one.items}
    theirs = [item for item in items if item not in ours]
    for item in reversed(one.items):
        if item.now is None:
            continue
        if item.now in items:
            place = len(items) - 1 - items[::-1].index(item.now)
            items[place : place + 1] = [] if item.was is None else [item.was]
        elif _given(items, item.now) and item.was not in items:
            stays.append(
                f"{_name(item.now)} in {one.file} was changed since fusetune wrote it, so it was "
                "not restored"
            )
    for item in one.items:
        if item.now is None and item.was is not None and not _given(theirs, item.was):
            items.insert(item.at, item.was)
    if (options := ",".join(items)) != line.options:
        edits.append(Edit(Path(one.file), text, line.put_into(text, options)))


def _given(items: Sequence[str], item: str) -> bool:
    """Whether the items contain the option of ``item`` with any value."""
    return _name(item) in map(_name, items)


def _name(item: str) -> str:
    return item.partition("=")[0]
