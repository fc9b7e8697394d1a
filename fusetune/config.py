# SPDX-License-Identifier: GPL-2.0-or-later
"""What the administrator wants: /etc/fusetune over /usr/lib/fusetune.

``fusetune.toml`` and ``mounts.d/*.toml``; a file in /etc replaces the one of the same name in
/usr/lib. A ``[[mount]]`` section says which mounts it is about and what they get; the most specific
section wins. One wrong key and nothing is taken of any file.
"""

import difflib
import fnmatch
import os
import re
import stat
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

from fusetune.errors import FusetuneError, UsageError, reason
from fusetune.host import Host
from fusetune.knobs import LIVE, REMOUNT, parse_number
from fusetune.library import check_options
from fusetune.mounts import Mount, printable
from fusetune.servers import Servers

MAIN_FILE = "fusetune.toml"
#: What a section can be matched by, what is most specific first.
MATCHES = ("path", "source", "server", "fstype")
#: What a server itself asks for, in bytes: the host's limits are raised for it.
NEEDS = ("max_write", "pipe_max_size")
_KNOBS = {knob.name: knob for knob in LIVE}
_LEAST_PIPE, _MOST_PIPE, _MOST_PAGES = 1 << 20, 1 << 31, 65535
_Where = tuple[str | int, ...]


class ConfigError(FusetuneError):
    """A configuration file is wrong; the text begins with file and line."""


class Layer(IntEnum):
    """Rank of where a value comes from."""

    VENDOR = 0
    SAVED = 1
    ADMIN = 2


@dataclass(frozen=True)
class Origin:
    """Where a value comes from; ``line`` counts from 1, None for files that no one edits."""

    file: Path
    line: int | None = None

    def __str__(self) -> str:
        path = printable(str(self.file))
        return path if self.line is None else f"{path}:{self.line}"


@dataclass(frozen=True)
class Section:
    """One ``[[mount]]``: ``matches`` by what of `MATCHES`, ``values`` by knob name.

    ``leave_alone``: whether such mounts are left alone, None where the section does not say.
    ``options``: those of the tuned libfuse3, which reads them from the file by itself. ``needs``:
    what of `NEEDS` the server asks for, in bytes.
    """

    layer: Layer
    origin: Origin
    matches: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    leave_alone: bool | None = None
    options: str | None = None
    needs: Mapping[str, int] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[Layer, list[tuple[int, int]]]:
        """Of two sections for a mount, the one with the greater rank wins.

        By layer; then by path, source, server, type: an exact one before a pattern, and the
        pattern with more characters that are not wildcards before the other.
        """
        return self.layer, [_specificity(self.matches.get(key)) for key in MATCHES]


@dataclass(frozen=True)
class Settings:
    """What is not about single mounts.

    ``allow_users``: names or uids whose mounts may get more dirty memory. ``max_dirty_percent``:
    what all tuned mounts together may keep dirty, in percent of the host's limit. ``exclude``:
    patterns of file system types to leave alone. ``max_pipe_size`` (bytes), ``max_pages``: how far
    the host's limits may be raised for mounts that need it. ``idle_seconds``: after which `watch`
    ends; 0: never.
    """

    allow_users: tuple[str, ...] = ()
    max_dirty_percent: int = 100
    exclude: tuple[str, ...] = ()
    idle_seconds: int = 60
    max_pipe_size: int = 8 << 20
    max_pages: int = 1024


@dataclass(frozen=True)
class Described:
    """What is known of a mount, also of one that is yet to come: each thing that it may be."""

    paths: Collection[str]
    sources: Collection[str]
    fstypes: Collection[str]
    servers: Callable[[], Collection[str]]


@dataclass(frozen=True)
class Config:
    """All files together; ``sections`` in the order of files and lines."""

    sections: tuple[Section, ...] = ()
    settings: Settings = field(default_factory=Settings)

    def matching(self, mount: Mount, servers: Servers) -> Iterator[Section]:
        """Yield the sections that are about ``mount``, in no order of rank."""
        paths = (mount.path, *mount.also_at)
        servers_of = partial(servers.of, mount)
        yield from self.matching_any(Described(paths, [mount.source], [mount.fstype], servers_of))

    def matching_any(self, described: Described) -> Iterator[Section]:
        """Yield the sections that may be about what is ``described``, in no order of rank."""
        for section in self.sections:
            if _about(section.matches, described):
                yield section


def ranked(sections: list[Section]) -> list[Section]:
    """Return the sections, whose word counts most first; of equals the later one."""
    order = sorted(range(len(sections)), key=lambda n: (sections[n].rank, n), reverse=True)
    return [sections[number] for number in order]


def _specificity(pattern: str | None) -> tuple[int, int]:
    if pattern is None:
        return 0, 0
    literal = len(re.sub(r"[*?]|\[[^]]*\]", "", pattern))
    return (2, literal) if literal == len(pattern) else (1, literal)


def _path_matches(pattern: str, path: str) -> bool:
    """``*`` stays within a folder's name; ``**`` is any number of folders."""
    return _parts_match(pattern.split("/"), path.split("/"))


def _parts_match(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_parts_match(patterns[1:], parts[n:]) for n in range(len(parts) + 1))
    return (
        bool(parts)
        and fnmatch.fnmatchcase(parts[0], patterns[0])
        and _parts_match(patterns[1:], parts[1:])
    )


def _about(matches: Mapping[str, str], described: Described) -> bool:
    for key, pattern in matches.items():
        if key == "path":
            found = any(_path_matches(pattern, path) for path in described.paths)
        elif key == "server":
            found = any(_is_program(pattern, path) for path in described.servers())
        else:
            words = described.sources if key == "source" else described.fstypes
            found = any(fnmatch.fnmatchcase(word, pattern) for word in words)
        if not found:
            return False
    return True


def _is_program(pattern: str, executable: str) -> bool:
    """A pattern without a slash means the program's name alone."""
    if "/" not in pattern:
        return fnmatch.fnmatchcase(os.path.basename(executable), pattern)
    return _path_matches(pattern, executable)


# Reading


def _files(host: Host) -> Iterator[tuple[Layer, Path]]:
    """Yield the files that count, the main one first."""
    found: dict[str, tuple[Layer, Path]] = {}
    for layer, folder in ((Layer.VENDOR, host.vendor_dir), (Layer.ADMIN, host.admin_dir)):
        for path in (folder / MAIN_FILE, *sorted((folder / "mounts.d").glob("*.toml"))):
            if path.exists():
                found[str(path.relative_to(folder))] = layer, path
    yield from (found[name] for name in sorted(found))


def signature(host: Host) -> Collection[tuple[object, ...]]:
    """Return what is another value once any file was changed, added or removed."""
    found: list[tuple[object, ...]] = []
    for _, path in _files(host):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append((path, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return found


def load(host: Host) -> Config:
    """Read every file. Raises `ConfigError` that names file, line and key if one is wrong."""
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
    """Raise `ConfigError` where root is to believe what others may write, as the library does."""
    if os.geteuid():
        return
    for each in (path.parent, path):
        state = each.stat()
        if state.st_rdev == os.stat(os.devnull).st_rdev:
            continue  # a link to it masks the vendor's file
        if state.st_uid or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(
                f"{path}: others than root may write {each}, so nothing is taken of it; "
                f"chown root {each} && chmod go-w {each}"
            )


class _Reader:
    """One file, parsed; what is wrong in it is told with its line."""

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
            what, line = _toml_problem(str(error), text)
            raise ConfigError(f"{path}:{line}: not valid TOML: {what}") from error
        self._lines = _lines(text)

    def _origin(self, where: _Where) -> Origin:
        while where and where not in self._lines:
            where = where[:-1]
        return Origin(self._path, self._lines.get(where, 1))

    def _wrong(self, where: _Where, what: str) -> ConfigError:
        return ConfigError(f"{self._origin(where)}: {' '.join(what.split())}")

    def _check_known(self, where: _Where, name: str, known: Collection[str]) -> None:
        if name in known:
            return
        if name in (knob.name for knob in REMOUNT):
            raise self._wrong(
                where,
                f"{name} is settled at mount time: give it to the server, or to the tuned libfuse "
                "by 'options'",
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
                raise self._wrong((table,), f"[{table}] belongs into {MAIN_FILE}")
            self._check_known((table,), table, ("mount",))

    def _items(self, where: _Where, content: object) -> list[tuple[str, object]]:
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
            self._check_known(where, key, (*MATCHES, "leave_alone", "options", *NEEDS, *_KNOBS))
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

    def _options(self, where: _Where, value: object) -> str:
        if self._layer != Layer.ADMIN or self._path.parent.name != "mounts.d":
            raise self._wrong(where, "options belong into /etc/fusetune/mounts.d")
        if not isinstance(value, str):
            raise self._wrong(where, "options must be a string")
        try:
            check_options(value)
        except UsageError as error:
            raise self._wrong(where, f"options: {error}") from error
        return value

    def _knob_value(self, where: _Where, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self._wrong(where, f"{name} must be a whole number, or a string such as '4M'")
        try:
            return _KNOBS[name].parse(str(value))
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


# Where in a file a key stands


def _toml_problem(message: str, text: str) -> tuple[str, int]:
    """Return what tomllib found wrong, and its line."""
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", message)
    if not match:
        return message, 1
    return match[1], int(match[2]) if match[2] else max(1, len(text.splitlines()))


def statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield line, text and meaning of each expression of a valid TOML document.

    Each stands on lines of its own and is a valid document by itself (TOML 1.0, toml.abnf).
    """
    begin, chunk = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        chunk += line + "\n"
        try:
            parsed = tomllib.loads(chunk)
        except tomllib.TOMLDecodeError:
            continue  # a value that goes on in the next line
        if parsed:
            yield begin, chunk, parsed
        begin, chunk = number + 1, ""


def _leaves(value: object, where: _Where = ()) -> Iterator[_Where]:
    """Yield the place of ``value`` and of everything in it."""
    if where:
        yield where
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*where, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*where, number))


def _lines(text: str) -> dict[_Where, int]:
    """Return the line of every key and table of a valid document."""
    found: dict[_Where, int] = {}
    counts: dict[_Where, int] = {}
    table: _Where = ()
    for line, chunk, parsed in statements(text):
        header = chunk.lstrip().startswith("[")
        places = list(_leaves(parsed))
        if header:
            table = places[-1]
            if isinstance(table[-1], int):  # [[name]]: the next of its list
                name = table[:-1]
                counts[name] = counts.get(name, -1) + 1
                table = (*name, counts[name])
                found.setdefault(name, line)
            found.setdefault(table, line)
        else:
            for place in places:
                found.setdefault((*table, *place), line)
    return found
