# SPDX-License-Identifier: GPL-2.0-or-later
"""A server's configuration file in /etc: the options that it sets, and how to change them."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.recipes.command_line import Changes
from fusetune.recipes.config_text import FORMATS, ConfigText, Format, Line
from fusetune.recipes.edit import Edit
from fusetune.recipes.fstab import split_items
from fusetune.recipes.recipe import Recipe
from fusetune.recipes.served import Served
from fusetune.recipes.spelling import Spellings, truth
from fusetune.text import printable

#: In bytes; the files from packages have less than 10 KiB.
_LARGEST = 1 << 16
_POINT = "{point}"


@dataclass(frozen=True)
class Changed:
    """The edit of the file, if any; the options that it cannot set; and notes."""

    edit: Edit | None = None
    unsaid: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ServerFile:
    """The current file. ``keys``: the key of each option that it can set.

    ``why_not``: why it cannot be edited, None if it can; empty if the recipe does not describe its
    syntax. ``text``: None if the file does not exist. ``settings``: the options that it and the
    files above it set; ``above``: the place of each setting that cannot be changed.
    """

    recipe: Recipe
    keys: Mapping[str, str]
    why_not: str | None = ""
    path: Path = Path()
    sections: Sequence[str] = ("",)
    text: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    above: Mapping[str, str] = field(default_factory=dict)

    def options(self, known: Sequence[Spellings]) -> dict[str, str]:
        """Return the options that it and the files above it set, in command-line form."""
        booleans = {one.name for one in known if one.boolean}
        return {
            name: truth(value) if name in booleans else value
            for name, value in self.settings.items()
        }

    def changed(self, changes: Changes) -> Changed:
        """Return the edit that sets options, or leaves them out if None."""
        form = self.recipe.server.file_format or ""
        text = ConfigText(self.text or "", form)
        done, unsaid, notes, wide = [], [], [], []
        for option, value in changes.items():
            key = self.keys[option]
            found = None if option in self.above else text.changes(key, value, self.sections)
            if found is None:
                unsaid.append(option)
                place = self.above.get(option)
                notes.append(
                    f"{key} is set in {place}, which is not edited"
                    if place
                    else f"{self.path} has a syntax in which fusetune cannot set {key}"
                )
                continue
            for one in found:
                text = text.changed(one)
            done += found
            if any(one.section != self._own for one in found):
                wide.append(key)
        if wide:
            notes.append(
                f"{', '.join(wide)} in {self.path}: the change affects every mount of "
                f"{self.recipe.name} on this host"
            )
        check = self.recipe.server.file_check
        edit = Edit(self.path, self.text, str(text), form, done, check) if done else None
        return Changed(edit, unsaid, notes)

    @property
    def _own(self) -> str | None:
        """The section for this mount alone, None if there is none."""
        names = self.recipe.server.file_sections
        return self.sections[-1] if names and _POINT in names[-1] else None


def server_file(
    host: Host, mount: Mount, recipe: Recipe, process: Served, options: str
) -> ServerFile:
    """Return the configuration file of the server of ``mount``.

    ``options``: those of the mount's line in fstab. The file is only read if it is a regular file
    that belongs to root or this user and that nobody else can write.
    """
    server = recipe.server
    keys = {one.name: one.file for one in recipe.option if one.file}
    keys |= {one.option: one.file for one in recipe.bad if one.file}
    if server.file is None or server.file_format is None:
        return ServerFile(recipe, keys)
    path = Path(host.path(server.file.lstrip("/")))
    for name in server.file_other:
        values = [*_values(name, process.words), *_values(name, ["-o", options])]
        values += filter(None, [process.environment.get(name)])
        if any(value not in (server.file, path.stem) for value in values):
            return ServerFile(recipe, keys, f"{name} names another file for this mount", path)
    form = FORMATS[server.file_format]
    sections = ["", *(one.replace(_POINT, mount.path) for one in server.file_sections)]
    try:
        text = _read(path)
        lines = _in_force(ConfigText(text or "", server.file_format), sections)
        settings, above = _settings(keys, form, lines, sections, path)
        for other in _files(host, server.file_above):
            further = ConfigText(_read(other) or "", server.file_format)
            ranked = _settings(keys, form, further.lines, None, other)
            settings, above = settings | ranked[0], above | ranked[1]
    except FusetuneError as refused:
        return ServerFile(recipe, keys, str(refused), path)
    return ServerFile(recipe, keys, None, path, sections, text, settings, above)


def _values(name: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the values of a word or mount option on a command line."""
    for number, word in enumerate(words):
        for item in (word, *split_items(word.removeprefix("-o"))):
            written, equals, value = item.partition("=")
            if written == name:
                yield value if equals else "".join(words[number + 1 : number + 2])
                break


def _read(path: Path) -> str | None:
    """Return a file's text, None if there is none. Raises FusetuneError with the reason if it is
    not read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        if path.parent.is_dir():
            return None
        raise FusetuneError(f"{printable(str(path.parent))} does not exist") from error
    except OSError as error:
        why = "it is a symbolic link" if path.is_symlink() else reason(error)
        raise FusetuneError(why) from error
    with open(fd, "rb") as stream:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            raise FusetuneError("it is not a regular file")
        if state.st_uid not in (0, os.geteuid()) or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise FusetuneError("users other than root can write it")
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise FusetuneError(f"it is larger than {_LARGEST >> 10} KiB")
    if b"\0" in content:
        raise FusetuneError("it is not valid text")
    return content.decode("utf-8", "surrogateescape")


def _files(host: Host, patterns: Sequence[str]) -> Iterator[Path]:
    for pattern in patterns:
        path = Path(host.path(pattern.lstrip("/")))
        yield from sorted(path.parent.glob(path.name))


def _in_force(text: ConfigText, sections: Sequence[str]) -> list[Line]:
    """Return the lines of these sections and of narrower ones, in order of precedence.

    [client.admin] is narrower than [client]: it is for a single client.
    """
    ranks = {name: rank for rank, name in enumerate(sections)}
    for _, name in text.sections:
        if not sections[-1].startswith("/") and name.startswith(f"{sections[-1]}."):
            ranks.setdefault(name, len(sections))
    lines = [one for one in text.lines if one.section in ranks]
    return sorted(lines, key=lambda one: ranks[one.section])


def _settings(
    keys: Mapping[str, str],
    form: Format,
    lines: Sequence[Line],
    sections: Sequence[str] | None,
    path: Path,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options that lines set, and the place of those that cannot be changed.

    ``sections``: the editable ones, None for none.
    """
    settings, above = {}, {}
    for option, key in keys.items():
        for line in lines:
            if line.key == form.key(key):
                settings[option] = line.value
                if sections is None:
                    above[option] = printable(str(path))
                elif line.section not in sections:
                    above[option] = f"[{printable(line.section)}] of {path}"
    return settings, above
