# SPDX-License-Identifier: GPL-2.0-or-later
"""The administrator's configuration: /etc/fusetune above /usr/lib/fusetune.

The files are ``fusetune.toml`` and ``mounts.d/*.toml``; a file in /etc replaces the one of the same
name in /usr/lib.
"""

import difflib
import os
import stat
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fusetune.desired.sections import MATCHES, Config, ConfigError, Layer, Origin, Section, Settings
from fusetune.desired.toml_lines import Where, lines_of, toml_problem
from fusetune.errors import UsageError, reason
from fusetune.host import Host
from fusetune.knobs import LIVE_BY_NAME, REMOUNT, parse_number
from fusetune.libfuse.options import check_options

MAIN_FILE = "fusetune.toml"
#: Sizes in bytes that a server asks for itself: the host's limits are raised to allow them.
NEEDS = ("max_write", "pipe_max_size")
_LEAST_PIPE, _MOST_PIPE, _MOST_PAGES = 1 << 20, 1 << 31, 65535


def _files(host: Host) -> Iterator[tuple[Layer, Path]]:
    """Yield the files that count, the main one first."""
    found: dict[str, tuple[Layer, Path]] = {}
    for layer, directory in ((Layer.VENDOR, host.vendor_dir), (Layer.ADMIN, host.admin_dir)):
        for path in (directory / MAIN_FILE, *sorted((directory / "mounts.d").glob("*.toml"))):
            if path.exists():
                found[str(path.relative_to(directory))] = layer, path
    yield from (found[name] for name in sorted(found))


def signature(host: Host) -> Collection[tuple[object, ...]]:
    """Return a value that changes when any file is changed, added or removed."""
    found: list[tuple[object, ...]] = []
    for _, path in _files(host):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append((path, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return found


def load(host: Host) -> Config:
    """Read all files. Raises `ConfigError` that names file, line and key."""
    sections: list[Section] = []
    settings = Settings()
    for layer, path in _files(host):
        reader = _Reader(layer, path)
        sections += reader.sections()
        if path.name == MAIN_FILE and path.parent.name != "mounts.d":
            settings = reader.settings()
        else:
            reader.no_settings()
    return Config(tuple(sections), settings)


def _check_writers(path: Path) -> None:
    """Raise `ConfigError` if others than root can write a file that root is to obey."""
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


class _Reader:
    """One parsed file; errors name the line."""

    def __init__(self, layer: Layer, path: Path) -> None:
        self._layer, self._path = layer, path
        try:
            _check_writers(path)
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {reason(error)}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{path}: not UTF-8 text at byte {error.start}; rewrite it"
            ) from error
        try:
            self._content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # also too many digits, too deeply nested
            what, line = toml_problem(str(error), text)
            raise ConfigError(f"{path}:{line}: not valid TOML: {what}") from error
        self._lines = lines_of(text)

    def _origin(self, where: Where) -> Origin:
        while where and where not in self._lines:
            where = where[:-1]
        return Origin(self._path, self._lines.get(where, 1))

    def _wrong(self, where: Where, what: str) -> ConfigError:
        return ConfigError(f"{self._origin(where)}: {' '.join(what.split())}")

    def _check_known(self, where: Where, name: str, known: Collection[str]) -> None:
        if name in known:
            return
        if name in (knob.name for knob in REMOUNT):
            raise self._wrong(
                where,
                f"{name} is fixed when the mount is made: pass it to the server, or to the "
                "tuned libfuse by 'options'",
            )
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        raise self._wrong(where, f"unknown key {name!r}: {hint}")

    def settings(self) -> Settings:
        """Return ``[policy]`` and ``[watch]``."""
        found: dict[str, Any] = {}
        for table, content in self._content.items():
            self._check_known((table,), table, ("mount", *_SETTINGS))
            if table == "mount":
                continue
            for key, value in self._items((table,), content):
                self._check_known((table, key), key, _SETTINGS[table])
                try:
                    found[key] = _SETTINGS[table][key](value)
                except UsageError as error:
                    raise self._wrong((table, key), f"{key} {error}") from error
        return Settings(**found)

    def no_settings(self) -> None:
        """Check that there are none."""
        for table in self._content:
            if table in _SETTINGS:
                raise self._wrong((table,), f"[{table}] belongs in {MAIN_FILE}")
            self._check_known((table,), table, ("mount",))

    def _items(self, where: Where, content: object) -> list[tuple[str, object]]:
        if not isinstance(content, dict):
            heading = "[[mount]]" if where[0] == "mount" else f"[{where[0]}]"
            raise self._wrong(where, f"{where[0]} is a table: write {heading} and keys below it")
        return list(content.items())

    def sections(self) -> list[Section]:
        """Return the ``[[mount]]`` sections."""
        content = self._content.get("mount", [])
        if not isinstance(content, list):
            raise self._wrong(("mount",), "mount is a list of tables: write [[mount]]")
        return [self._section(number, one) for number, one in enumerate(content)]

    def _section(self, number: int, content: object) -> Section:
        matches: dict[str, str] = {}
        values: dict[str, int] = {}
        origins: dict[str, Origin] = {}
        needs: dict[str, int] = {}
        leave_alone = options = None
        for key, value in self._items(("mount", number), content):
            where = ("mount", number, key)
            self._check_known(
                where, key, (*MATCHES, "leave_alone", "options", *NEEDS, *LIVE_BY_NAME)
            )
            if key in MATCHES:
                if not isinstance(value, str) or not value:
                    raise self._wrong(where, f"{key} must be a string")
                matches[key] = value
            elif key == "leave_alone":
                if not isinstance(value, bool):
                    raise self._wrong(where, f"{key} must be true or false")
                leave_alone = value
                origins[key] = self._origin(where)
            elif key == "options":
                options = self._options(where, value)
            elif key in NEEDS:
                try:
                    needs[key] = _size(_MOST_PIPE, value)
                except UsageError as error:
                    raise self._wrong(where, f"{key} {error}") from error
            else:
                values[key] = self._knob_value(where, key, value)
                origins[key] = self._origin(where)
        origin = self._origin(("mount", number))
        return Section(self._layer, origin, matches, values, origins, leave_alone, options, needs)

    def _options(self, where: Where, value: object) -> str:
        if self._layer != Layer.ADMIN or self._path.parent.name != "mounts.d":
            raise self._wrong(where, "options belong in /etc/fusetune/mounts.d")
        if not isinstance(value, str):
            raise self._wrong(where, "options must be a string")
        try:
            check_options(value)
        except UsageError as error:
            raise self._wrong(where, f"options: {error}") from error
        return value

    def _knob_value(self, where: Where, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self._wrong(where, f"{name} must be a whole number, or a string such as '4M'")
        try:
            return LIVE_BY_NAME[name].parse(str(value))
        except UsageError as error:
            raise self._wrong(where, f"{error}") from error


def _whole_number(low: int, high: int, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"must be a whole number from {low} to {high}")
    return value


def _size(high: int, value: object, low: int = 1) -> int:
    """Return bytes."""
    try:
        number = parse_number(value) if isinstance(value, str) else value
    except UsageError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise UsageError(f"must be a number of bytes, such as '4M', from {low} to {high}")
    return number


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise UsageError("must be a list of strings")
    return tuple(value)


def _users(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or any(isinstance(one, bool) for one in value):
        raise UsageError("must be a list of user names or uids")
    return _strings([str(one) if isinstance(one, int) and one >= 0 else one for one in value])


_SETTINGS: Mapping[str, Mapping[str, Callable[[object], object]]] = {
    "policy": {
        "allow_users": _users,
        "max_dirty_percent": partial(_whole_number, 0, 100_000),
        "exclude": _strings,
        "max_pipe_size": partial(_size, _MOST_PIPE, low=_LEAST_PIPE),
        "max_pages": partial(_whole_number, 1, _MOST_PAGES),
    },
    "watch": {"idle_seconds": partial(_whole_number, 0, 31_536_000)},
}
