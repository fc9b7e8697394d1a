# SPDX-License-Identifier: GPL-2.0-or-later
"""The journal of edits: what `remount` writes for a mount point, synced to disk before the edit.

It has options and checksums, but no file contents, which may contain secrets.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fusetune.errors import FusetuneError, reason
from fusetune.files import files_in, remove, write_whole
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.recipes.config_text import FORMATS, Setting
from fusetune.recipes.edit import Edit
from fusetune.recipes.fstab import fstab_line, split_items
from fusetune.remount.replacing import as_bytes

_SCHEMA = 1


@dataclass(frozen=True)
class Item:
    """A changed item of the options in a line of fstab: ``was``, ``now``, None for none.

    ``at``: its position among the items before.
    """

    at: int
    was: str | None
    now: str | None


@dataclass(frozen=True)
class Written:
    """What was written into a file: ``items`` of its line in fstab, a drop-in, or ``settings``.

    ``digest``: of the drop-in as written. ``made``: whether it was created. ``form``: the format of
    a server's configuration file, for ``settings``.
    """

    file: str
    items: Sequence[Item] = ()
    digest: str = ""
    made: bool = True
    form: str = ""
    settings: Sequence[Setting] = ()


@dataclass(frozen=True)
class Record:
    """What was written for the mount at ``path``.

    ``boot_id``, ``instance``: identify the mount at that time. ``secrets``: names of options whose
    values must not be printed.
    """

    path: str
    boot_id: str
    instance: int | None
    secrets: Sequence[str] = ()
    written: Sequence[Written] = ()

    def pending(self, host: Host, mount: Mount) -> bool:
        """Whether ``mount`` was made before the files were changed."""
        return (self.boot_id, self.instance) == (host.boot_id, mount.instance)

    def of(self, file: Path) -> Written | None:
        """Return what was written into a file."""
        return next((one for one in self.written if one.file == str(file)), None)


def _directory(host: Host) -> Path:
    return host.state_dir / "remount"


def _file(host: Host, path: str) -> Path:
    return _directory(host) / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:20]}.json"


def read_record(host: Host, path: str) -> Record | None:
    """Return what was written for the mount at ``path``; None if nothing was.

    Raises FusetuneError if the journal is damaged.
    """
    file = _file(host, path)
    return read_file(file) if file.exists() else None


def record_files(host: Host) -> list[Path]:
    """Return the file of each record."""
    return files_in(_directory(host), "*.json")


def every_record(host: Host) -> Iterator[Record]:
    """Yield each record that can be read."""
    for file in record_files(host):
        with suppress(FusetuneError):
            yield read_file(file)


def read_file(file: Path) -> Record:
    """Return the record in a file. Raises FusetuneError if it is damaged."""
    try:
        found = json.loads(file.read_text(encoding="ascii"))
        if found.pop("schema") != _SCHEMA:
            raise ValueError("another version of fusetune wrote it")
        written = [Written(**{**one, **_changes(one)}) for one in found.pop("written")]
        return Record(**found, written=written)
    except OSError as error:
        raise FusetuneError(f"cannot read {file}: {reason(error)}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise FusetuneError(
            f"the journal of edits {file} cannot be used: {error}; restore the mount's files by "
            "hand and remove the journal"
        ) from error


def _changes(written: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of one file. Raises TypeError, KeyError."""
    settings = [Setting(**one) for one in written.get("settings", ())]
    if settings:
        FORMATS[written["form"]]  # raises if unknown
    return {"items": [Item(**item) for item in written["items"]], "settings": settings}


def write_record(host: Host, record: Record) -> None:
    """Write the journal, synced to disk. Raises FusetuneError."""
    host.make_dir(_directory(host))
    write_whole(_file(host, record.path), json.dumps({"schema": _SCHEMA} | asdict(record)) + "\n")


def remove_record(host: Host, record: Record) -> None:
    """Remove the journal: nothing remains to undo."""
    remove(_file(host, record.path))


def with_edit(record: Record, edit: Edit, points: Sequence[str]) -> Record:
    """Return the record with one more edit, which may change the same file again."""
    before = record.of(edit.file)
    made = before.made if before else edit.before is None
    if edit.form:
        settings = [*(before.settings if before else ()), *edit.settings]
        new = Written(str(edit.file), made=made, form=edit.form, settings=settings)
    elif edit.is_fstab:
        items = [*(before.items if before else ()), *_items(edit, points)]
        new = Written(str(edit.file), items, made=False)
    else:
        new = Written(str(edit.file), (), digest(edit.after), made)
    others = [one for one in record.written if one is not before]
    return replace(record, written=[*others, new])


def digest(text: str | None) -> str:
    """Return the checksum of a file's text."""
    return hashlib.sha256(as_bytes(text or "")).hexdigest()


def _items(edit: Edit, points: Sequence[str]) -> Iterator[Item]:
    lists = []
    for text in (edit.before, edit.after):
        line = fstab_line(text or "", points)
        lists.append(split_items(line.options) if line else [])
    was, now = lists
    for kind, begin, end, start, stop in SequenceMatcher(None, was, now, False).get_opcodes():
        if kind != "equal":
            pairs = zip_longest(was[begin:end], now[start:stop])
            for number, (old, new) in enumerate(pairs):
                yield Item(begin + number, old, new)
