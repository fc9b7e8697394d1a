# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``save`` writes and ``forget`` removes: under /var/lib, or in the administrator's files."""

import glob
import hashlib
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import AoT, Table

from fusetune.changes.journal import Journal
from fusetune.changes.lock import Lock
from fusetune.changes.state import values_now, worth_keeping
from fusetune.desired.config import load
from fusetune.desired.history import record
from fusetune.desired.kept import Remembered, kept_for, saved_values
from fusetune.desired.results import save, saved_at, saved_path
from fusetune.desired.sections import MATCHES, Layer, Section
from fusetune.errors import FusetuneError
from fusetune.files import remove, write_whole
from fusetune.host import Host
from fusetune.knobs import LIVE_BY_NAME, knobs_of, out_of_range
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from fusetune.text import printable
from fusetune.toml.file import Origin, toml_files
from fusetune.toml.lines import statements

_LONGEST_NAME = 200  # of a file, before .toml; the kernel allows 255 bytes
#: Keys by which a section may be about another file system than the one at its path.
_OTHERS = set(MATCHES) - {"path", "fstype", "source"}


@dataclass(frozen=True)
class _Edit:
    """A configuration file's new text, and its values about the mount before and after.

    ``removed``: the values of each section that has none after.
    """

    file: Path
    text: str
    before: dict[str, int] | None = None
    after: dict[str, int] | None = None
    removed: Sequence[dict[str, int]] = ()

    def make(self, host: Host) -> None:
        if not self.text.strip():
            remove(self.file)
            return
        host.make_dir(self.file.parent)
        write_whole(self.file.resolve(), self.text)  # of a link, change the target


def save_now(host: Host, mount: Mount, *, admin: bool, dry_run: bool) -> Remembered:
    """Save the values that ``mount`` has now, for its later mounts.

    Of values that a killed run was trying, those before it. ``admin``: in the administrator's
    configuration. Raises `Busy` while a run tries values, FusetuneError if later mounts have the
    same values by themselves or a file cannot be read or written, `ConfigError` if the
    configuration is invalid.
    """
    load(host)
    with nullcontext() if dry_run else Lock(host, mount, in_passing=True):
        return _save_now(host, mount, admin=admin, dry_run=dry_run)


def _save_now(host: Host, mount: Mount, *, admin: bool, dry_run: bool) -> Remembered:
    journal = Journal(host, mount)
    now = {
        name: value if (untried := journal.before_trials(name, value)) is None else untried
        for name, value in values_now(host, mount).items()
    }
    values = worth_keeping(knobs_of(host, mount), now, journal.originals)
    if not values:
        raise FusetuneError(
            f"{printable(mount.path)} has the kernel's default values, so there is nothing to "
            "save; change them with 'fusetune set' or 'fusetune auto', or remove saved ones with "
            "'fusetune forget'"
        )
    for name, value in values.items():
        if why := out_of_range(host, mount, LIVE_BY_NAME[name], value):
            raise FusetuneError(f"{why}; change it with 'fusetune set' first")
    if admin:
        edit = _section_edit(host, mount, values, now)
        if not dry_run:
            edit.make(host)
            _note_saved(host, mount, edit.file, values)
        return Remembered(edit.file, edit.before, edit.after)
    before = saved_values(host, mount)
    if not dry_run:
        save(host, mount, values, "save")
        _note_saved(host, mount, saved_path(host, mount), values)
    return Remembered(saved_path(host, mount), before, values)


def _note_saved(host: Host, mount: Mount, file: Path, values: Mapping[str, int]) -> None:
    words = " ".join(f"{name}={value}" for name, value in values.items())
    record(host, mount, "save", reasons=[f"{words} kept in {file}"])


def forget_kept(host: Host, name: str, *, admin: bool, dry_run: bool) -> list[Remembered]:
    """Remove what is saved for the mount ``name``, or for the path if nothing is mounted there.

    ``admin``: also the values in the administrator's sections for this path alone. Raises
    FusetuneError if nothing is known about ``name``.
    """
    mount = unknown = None
    try:
        mount = find(host, name)
    except FusetuneError as error:
        unknown = error
        path = os.path.abspath(name)
        forgotten = [Remembered(file, saved.values, None) for file, saved in saved_at(host, path)]
    else:
        path, forgotten = mount.path, kept_for(host, mount)
    edits = _removal_edits(host, path, mount) if admin else []
    if unknown and not forgotten and not edits:
        raise unknown
    if not dry_run:
        for one in forgotten:
            remove(one.file)
        if mount and (forgotten or edits):
            record(host, mount, "forget", reasons=["the values kept for later mounts were removed"])
        for edit in edits:
            edit.make(host)
    return forgotten + [
        Remembered(edit.file, before, None) for edit in edits for before in edit.removed
    ]


def _section_edit(
    host: Host, mount: Mount, values: dict[str, int], now: Mapping[str, int]
) -> _Edit:
    """Return the edit that writes ``values`` into the section of ``mount``.

    Other values that sections for this path alone have become those of ``now``, all values of the
    mount.

    That is the section for this path alone that takes precedence, if there is one, otherwise a new
    one in a file of mounts.d named after the path.
    """
    ours = [
        (file, document, number, section)
        for file, document in _documents(host)
        for number, section in _about(document, mount.path, mount).items()
    ]
    if ours:
        file, document, number, section = sorted(ours, key=lambda one: _rank(one[3]))[-1]
        before = _values(section)
        kept = {name for *_, one in ours for name in _values(one)}
        after = before | {name: now[name] for name in now if name in kept} | values
        for name in before:
            if before[name] != after[name]:
                section[name] = after[name]
        new = {name: value for name, value in after.items() if name not in before}
        return _Edit(file, _with(tomlkit.dumps(document), number, new), before or None, after)
    # A file that begins with a dot is not read.
    name = re.sub(r"^\.|[^A-Za-z0-9._-]", "_", mount.path.strip("/").replace("/", "-")) or "root"
    if len(name) > _LONGEST_NAME:
        name = name[:_LONGEST_NAME] + hashlib.sha256(os.fsencode(mount.path)).hexdigest()[:20]
    file = host.admin_dir / "mounts.d" / f"{name}.toml"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if text and not text.endswith("\n"):
        text += "\n"
    text += _new_section(mount, values)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FusetuneError(f"cannot add a section to {file}: {error}; edit it by hand") from error
    return _Edit(file, text, None, values)


def _new_section(mount: Mount, values: Mapping[str, int]) -> str:
    section = tomlkit.table()
    for key in ("path", "fstype", "source"):
        word = getattr(mount, key)
        if any("\udc80" <= char <= "\udcff" for char in word):
            raise FusetuneError(
                f"{printable(word)} is not UTF-8, which configuration files must be; "
                "use 'fusetune save' without --admin"
            )
        section[key] = glob.escape(word)
    for name, value in values.items():
        section[name] = value
    sections = tomlkit.aot()
    sections.append(section)
    document = tomlkit.document()
    document["mount"] = sections
    return tomlkit.dumps(document)


def _removal_edits(host: Host, path: str, mount: Mount | None) -> list[_Edit]:
    """Return the edits that remove the values for ``path``; ``mount``: for this one alone.

    A section that sets something else stays without its values.
    """
    load(host)  # report an invalid file instead of editing it
    edits = []
    for file, document in _documents(host):
        ours = {n: one for n, one in _about(document, path, mount).items() if _values(one)}
        if ours:
            whole = {n for n, one in ours.items() if not set(one) - {*MATCHES, *LIVE_BY_NAME}}
            text = _without(file.read_text(encoding="utf-8"), ours, whole)
            edits.append(_Edit(file, text, removed=[_values(one) for one in ours.values()]))
    return edits


def _without(text: str, numbers: Collection[int], whole: Collection[int]) -> str:
    """Return ``text`` without the values of the ``[[mount]]`` sections of these numbers.

    ``whole``: those to remove completely. Comments around them are kept; tomlkit would drop or move
    them.
    """
    gone: set[int] = set()
    begin = 0
    for number, line, chunk, parsed in _statements(text):
        if "mount" in parsed:
            begin = line
        if number in whole:
            gone.update(range(begin, line + chunk.count("\n")))
        elif number in numbers and LIVE_BY_NAME.keys() & parsed:
            gone.update(range(line, line + chunk.count("\n")))
    lines = enumerate(text.split("\n"), 1)
    return "\n".join(line for number, line in lines if number not in gone)


def _with(text: str, number: int, values: Mapping[str, int]) -> str:
    """Return ``text`` with ``values`` added to the ``[[mount]]`` section of this number.

    They follow its last key; tomlkit would add them after the comments that follow.
    """
    end = max(line + chunk.count("\n") for n, line, chunk, _ in _statements(text) if n == number)
    lines = text.split("\n")
    lines[end - 1 : end - 1] = [f"{name} = {value}" for name, value in values.items()]
    return "\n".join(lines)


def _statements(text: str) -> Iterator[tuple[int, int, str, dict[str, Any]]]:
    """Yield each of `statements` of a ``[[mount]]`` section, after the section's number."""
    inside, count = False, -1
    for line, chunk, parsed in statements(text):
        if chunk.lstrip().startswith("["):
            inside = "mount" in parsed
            count += inside
        if inside:
            yield count, line, chunk, parsed


def _documents(host: Host) -> Iterator[tuple[Path, tomlkit.TOMLDocument]]:
    directory = host.admin_dir
    for file in (directory / "fusetune.toml", *toml_files(directory / "mounts.d")):
        if file.exists():
            yield file, tomlkit.parse(file.read_text(encoding="utf-8"))


def _about(document: tomlkit.TOMLDocument, path: str, mount: Mount | None) -> dict[int, Table]:
    """Return the sections for ``path`` alone, by number.

    Of these, only those that are surely about ``mount``, if there is one.
    """
    sections = document.get("mount", [])
    return {
        number: section
        for number, section in enumerate(sections if isinstance(sections, AoT) else ())
        if section.get("path") == glob.escape(path) and (not mount or _fits(section, mount))
    }


def _fits(section: Table, mount: Mount) -> bool:
    """Whether a section for the path of ``mount`` cannot be about another file system there."""
    return not _OTHERS.intersection(section) and all(
        fnmatchcase(getattr(mount, key), section[key])
        for key in ("fstype", "source")
        if key in section
    )


def _rank(section: Table) -> tuple[Layer, list[tuple[int, int]]]:
    matches = {key: str(section[key]) for key in MATCHES if key in section}
    return Section(Layer.ADMIN, Origin(Path()), matches).rank


def _values(section: Table) -> dict[str, int]:
    return {
        name: knob.parse(str(section[name]))
        for name, knob in LIVE_BY_NAME.items()
        if name in section
    }
