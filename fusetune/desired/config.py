# SPDX-License-Identifier: GPL-2.0-or-later
"""The administrator's configuration: /etc/fusetune takes precedence over /usr/lib/fusetune.

The files are ``fusetune.toml`` and ``mounts.d/*.toml``; a file in /etc replaces the one of the same
name in /usr/lib.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fusetune.desired.sections import (
    LIBRARY_MATCHES,
    MATCHES,
    Config,
    Layer,
    Section,
    Settings,
)
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.knobs import LIVE_BY_NAME, REMOUNT, parse_number
from fusetune.libfuse.options import check_options
from fusetune.toml.file import Origin, TomlFile, toml_files
from fusetune.toml.lines import Where

MAIN_FILE = "fusetune.toml"
#: Sizes in bytes that a server requests itself: the host's limits are raised for them.
NEEDS = ("max_write", "pipe_max_size")
_OTHER_KEYS = ("leave_alone", "options", "accept", "volume_class")
_LEAST_PIPE, _MOST_PIPE, _MOST_PAGES = 1 << 20, 1 << 31, 65535


def _files(host: Host) -> Iterator[tuple[Layer, Path]]:
    """Yield the effective files, the main one first."""
    found: dict[str, tuple[Layer, Path]] = {}
    for layer, directory in ((Layer.VENDOR, host.vendor_dir), (Layer.ADMIN, host.admin_dir)):
        for path in (directory / MAIN_FILE, *toml_files(directory / "mounts.d")):
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


def sections_in(text: str, path: Path) -> Sequence[Section]:
    """Return the administrator's sections in a text, the present or future content of ``path``.

    Raises `ConfigError` that names file, line and key.
    """
    return _Reader(Layer.ADMIN, path, text).sections()


class _Reader(TomlFile):
    """One parsed file of the configuration."""

    def __init__(self, layer: Layer, path: Path, text: str | None = None) -> None:
        super().__init__(path, text)
        self._layer = layer
        self._may_have_options = layer == Layer.ADMIN and (
            path.parent.name == "mounts.d" or text is not None
        )

    def check_known(self, where: Where, name: str, known: Collection[str]) -> None:
        """Raise `ConfigError` unless ``name`` is known; for mount properties, say how to set it."""
        if name not in known and name in (knob.name for knob in REMOUNT):
            raise self.wrong(
                where,
                f"{name} is fixed when the mount is made: pass it to the server, or with 'options' "
                "to the tuned libfuse3",
            )
        super().check_known(where, name, known)

    def settings(self) -> Settings:
        """Return ``[policy]``, ``[watch]`` and ``[history]``."""
        found: dict[str, Any] = {}
        for table, content in self.content.items():
            self.check_known((table,), table, ("mount", *_SETTINGS))
            if table == "mount":
                continue
            for key, value in self._items((table,), content):
                self.check_known((table, key), key, _SETTINGS[table])
                try:
                    found[key] = _SETTINGS[table][key](value)
                except UsageError as error:
                    raise self.wrong((table, key), f"{key} {error}") from error
        return Settings(**found)

    def no_settings(self) -> None:
        """Check that there are none."""
        for table in self.content:
            if table in _SETTINGS:
                raise self.wrong((table,), f"[{table}] belongs in {MAIN_FILE}")
            self.check_known((table,), table, ("mount",))

    def _items(self, where: Where, content: object) -> list[tuple[str, object]]:
        if not isinstance(content, dict):
            heading = "[[mount]]" if where[0] == "mount" else f"[{where[0]}]"
            raise self.wrong(
                where, f"{where[0]} must be a table: write {heading} and its keys below"
            )
        return list(content.items())

    def sections(self) -> list[Section]:
        """Return the ``[[mount]]`` sections."""
        content = self.content.get("mount", [])
        if not isinstance(content, list):
            raise self.wrong(("mount",), "mount must be a list of tables: write [[mount]]")
        return [self._section(number, one) for number, one in enumerate(content)]

    def _section(self, number: int, content: object) -> Section:
        matches: dict[str, str] = {}
        values: dict[str, int] = {}
        origins: dict[str, Origin] = {}
        needs: dict[str, int] = {}
        leave_alone = options = accept = volume_class = None
        for key, value in self._items(("mount", number), content):
            where = ("mount", number, key)
            self.check_known(where, key, (*MATCHES, *_OTHER_KEYS, *NEEDS, *LIVE_BY_NAME))
            if key in MATCHES:
                matches[key] = self._string(where, value)
            elif key == "leave_alone":
                if not isinstance(value, bool):
                    raise self.wrong(where, f"{key} must be true or false")
                leave_alone = value
                origins[key] = self.origin(where)
            elif key == "options":
                options = self._options(where, value)
            elif key == "accept":
                accept = self._accept(where, value)
            elif key == "volume_class":
                volume_class = self._string(where, value)
            elif key in NEEDS:
                try:
                    needs[key] = _size(_MOST_PIPE, value)
                except UsageError as error:
                    raise self.wrong(where, f"{key} {error}") from error
            else:
                values[key] = self._knob_value(where, key, value)
                origins[key] = self.origin(where)
        if options is not None:
            self._check_library_matches(number, matches)
        origin = self.origin(("mount", number))
        found = (self._layer, origin, matches, values, origins, leave_alone, options, needs, accept)
        return Section(*found, volume_class)

    def _check_library_matches(self, number: int, matches: Mapping[str, str]) -> None:
        if others := matches.keys() - set(LIBRARY_MATCHES):
            raise self.wrong(
                ("mount", number, "options"),
                f"the tuned libfuse3 only knows {', '.join(LIBRARY_MATCHES)}, but not "
                f"{min(others)}: match these mounts by one of the former",
            )

    def _string(self, where: Where, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise self.wrong(where, f"{where[-1]} must be a string")
        return value

    def _accept(self, where: Where, value: object) -> tuple[str, ...]:
        if self._layer != Layer.ADMIN:
            raise self.wrong(
                where,
                "accept is only allowed in /etc/fusetune, because it is the administrator's "
                "decision",
            )
        try:
            return _strings(value)
        except UsageError as error:
            raise self.wrong(where, f"accept {error}") from error

    def _options(self, where: Where, value: object) -> str:
        if not self._may_have_options:
            raise self.wrong(where, "options are only allowed in /etc/fusetune/mounts.d")
        if not isinstance(value, str):
            raise self.wrong(where, "options must be a string")
        try:
            check_options(value)
        except UsageError as error:
            raise self.wrong(where, f"options: {error}") from error
        return value

    def _knob_value(self, where: Where, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.wrong(where, f"{name} must be a whole number, or a string such as '4M'")
        try:
            return LIVE_BY_NAME[name].parse(str(value))
        except UsageError as error:
            raise self.wrong(where, f"{error}") from error


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
        "share_results": _strings,
        "max_pipe_size": partial(_size, _MOST_PIPE, low=_LEAST_PIPE),
        "max_pages": partial(_whole_number, 1, _MOST_PAGES),
    },
    "watch": {"idle_seconds": partial(_whole_number, 0, 31_536_000)},
    "history": {"keep": partial(_whole_number, 0, 1000)},
}
