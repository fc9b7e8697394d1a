# SPDX-License-Identifier: GPL-2.0-or-later
"""A TOML file that an administrator may edit, and errors that name its file, line and key."""

import difflib
import os
import stat
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fusetune.errors import FusetuneError, reason
from fusetune.files import files_in
from fusetune.text import printable
from fusetune.toml.lines import Where, lines_of, toml_problem


class ConfigError(FusetuneError):
    """A configuration file is invalid; the text begins with file and line."""


@dataclass(frozen=True)
class Origin:
    """Where a value comes from; ``line`` counts from 1, None for files that nobody edits."""

    file: Path
    line: int | None = None

    def __str__(self) -> str:
        path = printable(str(self.file))
        return path if self.line is None else f"{path}:{self.line}"


def toml_files(directory: Path) -> list[Path]:
    """Return the files NAME.toml in a directory, by name; hidden ones are copies in progress.

    Raises `ConfigError` if it cannot be read.
    """
    try:
        files = files_in(directory, "*.toml")
    except FusetuneError as error:
        raise ConfigError(str(error)) from error
    return [file for file in files if not file.name.startswith(".")]


class TomlFile:
    """A parsed file: its ``content``, and the line of each key.

    ``check_writers``: whether it must be writable by root only if root reads it. ``text``: its
    content, None to read it. Raises `ConfigError` if others can write it, if it cannot be read, or
    if it is not valid TOML.
    """

    def __init__(self, path: Path, text: str | None = None, *, check_writers: bool = True) -> None:
        self.path = path
        try:
            if check_writers and text is None:
                _check_writers(path)
            self._text = path.read_text(encoding="utf-8") if text is None else text
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {reason(error)}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{path}: not UTF-8 text at byte {error.start}; rewrite it"
            ) from error
        try:
            self.content = tomllib.loads(self._text)
        except (ValueError, RecursionError) as error:  # also too many digits, too deeply nested
            what, line = toml_problem(str(error), self._text)
            raise ConfigError(f"{path}:{line}: not valid TOML: {what}") from error

    @cached_property
    def _lines(self) -> Mapping[Where, int]:
        try:
            return lines_of(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{self.path}: {error}") from error

    def origin(self, where: Where) -> Origin:
        """Return the line of a key, or of the table that it would be in."""
        while where and where not in self._lines:
            where = where[:-1]
        return Origin(self.path, self._lines.get(where, 1))

    def wrong(self, where: Where, what: str) -> ConfigError:
        """Return the error for a key."""
        return ConfigError(f"{self.origin(where)}: {' '.join(what.split())}")

    def check_known(self, where: Where, name: str, known: Collection[str]) -> None:
        """Raise `ConfigError` with the nearest known name unless ``name`` is known."""
        if name in known:
            return
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        raise self.wrong(where, f"unknown key {name!r}: {hint}")


def _check_writers(path: Path) -> None:
    """Raise `ConfigError` if users other than root can write a file that root uses."""
    if os.geteuid():
        return
    for each in (path.parent, path):
        state = each.stat()
        if state.st_rdev == os.stat(os.devnull).st_rdev:
            continue  # a link to it masks the vendor's file
        if state.st_uid or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(
                f"{path}: users other than root can write {each}, so it is ignored; "
                f"chown root {each} && chmod go-w {each}"
            )
