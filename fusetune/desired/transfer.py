# SPDX-License-Identifier: GPL-2.0-or-later
"""``import``: which results of an exported file are valid on this host, and why others are not.

A file of another host is trusted no more than a user: values are checked as by `set`.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

from fusetune.desired import exported, signatures
from fusetune.desired.config import load, sections_in
from fusetune.desired.exported import Exported, table_of
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import Saved, all_saved, saved_path, store
from fusetune.desired.sections import MATCHES, Layer, Section
from fusetune.desired.volume import kernel_series, versioned_volume
from fusetune.errors import FusetuneError
from fusetune.files import write_whole
from fusetune.host import Host
from fusetune.masking import mask_text
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.text import printable

#: The accepted signers of imports. If this file exists, other imports are refused.
SIGNERS = "allowed_signers"
_SECTIONS = "imported.toml"
_Selects = tuple[tuple[str, str], ...]
_HEADING = (
    "# Written by 'fusetune import --admin'. A later import replaces the sections that select the\n"
    "# same mounts.\n"
)


@dataclass(frozen=True)
class Read:
    """An exported file. ``signer``: who signed it, None if that was not checked; ``signed``."""

    exported: Exported
    signed: bool
    signer: str | None


@dataclass(frozen=True)
class Imported:
    """What was done with a result, or would be without a dry run.

    ``action``: "imported", "unchanged", "kept" (this host's own is newer) or "refused"; ``why``:
    the reason for the last two; ``differs``: the differences on this host, one sentence each.
    """

    saved: Saved
    file: Path
    action: str
    why: str | None = None
    differs: Sequence[str] = ()


@dataclass(frozen=True)
class ImportedSection:
    """What was done with a section, or would be without a dry run.

    ``selects``: its patterns, by key; ``action``: "imported", "unchanged" or "kept" (another
    section of this host selects the same mounts); ``why``: the reason for the last.
    """

    selects: Mapping[str, str]
    action: str
    why: str | None = None


def read(host: Host, path: Path, signers: Path | None) -> Read:
    """Return what is in an exported file, whose signature is in ``path``.sig.

    ``signers``: the file of accepted signers, None for the one in /etc/fusetune, if it exists.
    Raises FusetuneError if a required signature is missing or invalid, or the file is no export.
    """
    content = exported.read(path)
    known = signers or host.admin_dir / SIGNERS
    file = path.with_name(f"{path.name}.sig")
    signed = file.exists()
    signer = None
    if signers or known.exists():
        if not signed:
            raise FusetuneError(
                f"{path}: not signed: {known} requires a signature, but {file} is missing"
            )
        signature = exported.read(file).decode(errors="replace")
        try:
            signer = signatures.signer_of(content, signature, known)
        except FusetuneError as error:
            raise FusetuneError(f"{path}: nothing is imported: {error}") from error
    return Read(exported.parsed(content, str(path)), signed, signer)


class Importer:
    """Imports results into this host. ``dry_run``: writes nothing."""

    def __init__(self, host: Host, resolver: Resolver, *, dry_run: bool) -> None:
        self._host, self._resolver, self._dry_run = host, resolver, dry_run
        self._kernel = kernel_series(host)
        self._own = dict(all_saved(host))
        self._mounts = {saved_path(host, mount): mount for mount in discover(host)}
        self._daemons = Daemons(host)

    def results(self, found: Exported) -> Iterator[Imported]:
        """Import each result and yield what was done with it."""
        for saved in found.results:
            done = self._one(saved, found.kernel)
            if done.action == "imported" and not self._dry_run:
                store(self._host, done.saved)
            yield done

    def _one(self, saved: Saved, kernel: str) -> Imported:
        file = saved_path(self._host, saved)
        saved = replace(saved, time=min(saved.time, time.time()))
        if why := self._refusal(saved, saved.volume.kernel if saved.volume else kernel):
            return Imported(saved, file, "refused", why)
        differs = tuple(self._differences(saved, file))
        own = self._own.get(file)
        if own == saved:
            return Imported(saved, file, "unchanged", None, differs)
        if own and own.recency > saved.time:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(own.time))
            why = f"this host's own result is newer: {when}"
            return Imported(saved, file, "kept", why, differs)
        return Imported(saved, file, "imported", None, differs)

    def _refusal(self, saved: Saved, kernel: str) -> str | None:
        if kernel != self._kernel:
            return f"it was measured on Linux {kernel}, but this host has {self._kernel}"
        mount = self._mounts.get(saved_path(self._host, saved)) or _mount_of(saved)
        reasons = (self._resolver.refusal(mount, name, v) for name, v in saved.values.items())
        return next(filter(None, reasons), None)

    def _differences(self, saved: Saved, file: Path) -> Iterator[str]:
        """Yield the differences of its mount on this host, if it is mounted."""
        mount = self._mounts.get(file)
        there = saved.volume
        if not mount or not there:
            return
        here = versioned_volume(self._host, mount, self._resolver.config, self._daemons)
        if not here:
            yield "the program that serves it here is unknown"
            return
        for name, words in _COMPARED.items():
            ours, theirs = getattr(here, name), getattr(there, name)
            if ours != theirs:
                yield f"{words}: {_word(theirs)} there, {_word(ours)} here"


_COMPARED = {
    "server": "the server",
    "version": "the server's version",
    "options": "mount options",
    "owner_uid": "the mount's owner",
}


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return printable(",".join(value)) or "none"
    return "unknown" if value is None else printable(str(value))


def _mount_of(saved: Saved) -> Mount:
    """Return a mount as described by the result, to check policy."""
    owner = saved.volume.owner_uid if saved.volume else 0
    return Mount(saved.path, saved.fstype, saved.source, device="0:0", owner_uid=owner)


def import_sections(
    host: Host, sections: Sequence[Mapping[str, Any]], *, dry_run: bool
) -> tuple[Path, list[ImportedSection]]:
    """Write the sections of an export to /etc/fusetune/mounts.d/imported.toml.

    They replace earlier imported sections that select the same mounts. Return that file, and what
    was done with the sections; those that select the same mounts count as one. Raises
    `ConfigError` if the configuration is invalid.
    """
    file = host.admin_dir / "mounts.d" / _SECTIONS
    own = [one for one in load(host).sections if one.layer == Layer.ADMIN]
    here = _merged(_as_exported(one) for one in own)
    elsewhere = {_selects(_as_exported(one)): one.origin for one in own if one.origin.file != file}
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    merged = _merged(tomlkit.parse(text).unwrap().get("mount", []))
    found = []
    given = sections_in(tomlkit.dumps({"mount": list(sections)}), file)
    for selects, table in _merged(table_of(one) for one in given).items():
        action, why = "imported", None
        if table == here.get(selects):
            action = "unchanged"
        elif origin := elsewhere.get(selects):
            action, why = "kept", f"this host's own section selects the same mounts: {origin}"
        else:
            merged[selects] = table
        found.append(ImportedSection(dict(selects), action, why))
    if not dry_run and any(one.action == "imported" for one in found):
        new = _HEADING + tomlkit.dumps({"mount": list(merged.values())})
        sections_in(new, file)
        host.make_dir(file.parent)
        write_whole(file, new)
    return file, found


def _as_exported(section: Section) -> dict[str, Any]:
    table = table_of(section)
    return {key: mask_text(word) if key == "source" else word for key, word in table.items()}


def _merged(tables: Iterable[Mapping[str, Any]]) -> dict[_Selects, dict[str, Any]]:
    """Return sections by what they select; of several, the later one counts for each key."""
    found: dict[_Selects, dict[str, Any]] = {}
    for one in tables:
        found.setdefault(_selects(one), {}).update(one)
    return found


def _selects(section: Mapping[str, Any]) -> _Selects:
    return tuple((key, str(section[key])) for key in MATCHES if key in section)
