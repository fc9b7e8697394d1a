# SPDX-License-Identifier: GPL-2.0-or-later
"""Exported files: saved results and configuration sections as TOML, for other hosts."""

import glob
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import Item

from fusetune import __version__
from fusetune.desired.config import sections_in
from fusetune.desired.results import DAMAGED, Saved, all_saved
from fusetune.desired.results import SCHEMA as RESULT_SCHEMA
from fusetune.desired.sections import Config, Layer, Section
from fusetune.desired.volume import kernel_series
from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.masking import mask_text
from fusetune.mounts.discover import find
from fusetune.text import printable

_SCHEMA = "fusetune.export/1"
_LARGEST = 16 << 20  # bytes
_MOST = 10_000  # results in one file
_HEADING = (
    "Exported by 'fusetune export' for 'fusetune import'. Changing the file invalidates its "
    "signature."
)


@dataclass(frozen=True)
class Exported:
    """The content of an exported file. ``kernel``: the kernel series of the exporting host."""

    kernel: str
    results: Sequence[Saved]
    sections: Sequence[Mapping[str, Any]]


def chosen(host: Host, config: Config, names: Sequence[str]) -> Exported:
    """Return what is saved for the named mounts, and the administrator's sections on them.

    Return everything if no name is given. Raises FusetuneError for an unknown name.
    """
    saved = [one for _, one in all_saved(host)]
    sections = [one for one in config.sections if one.layer == Layer.ADMIN]
    if names:
        known = {glob.escape(one.path) for one in saved}
        known |= {one.matches["path"] for one in sections if "path" in one.matches}
        paths = {glob.escape(_path_of(host, name, known)) for name in names}
        saved = [one for one in saved if glob.escape(one.path) in paths]
        sections = [one for one in sections if one.matches.get("path") in paths]
    return Exported(kernel_series(host), saved, [table_of(one) for one in sections])


def _path_of(host: Host, name: str, known: Collection[str]) -> str:
    """Return the path that a name means, of a mount or of what was one; one of ``known``."""
    try:
        mount = find(host, name)
        path = mount.path if glob.escape(mount.path) in known else mount.first_path
    except FusetuneError:
        path = os.path.abspath(name)
        if glob.escape(path) not in known:
            raise
    if glob.escape(path) not in known:
        raise FusetuneError(
            f"nothing is saved for {printable(name)}, and no section is for it alone; "
            "save values with 'fusetune auto' or 'fusetune save'"
        )
    return path


def table_of(section: Section) -> dict[str, Any]:
    """Return the keys of a section as its file has them."""
    table: dict[str, Any] = {**section.matches, **section.values, **section.needs}
    for name in ("leave_alone", "options", "accept", "volume_class"):
        value = getattr(section, name)
        if value is not None:
            table[name] = list(value) if isinstance(value, tuple) else value
    return table


def text_of(exported: Exported) -> str:
    """Return the file's text. Secrets in sources are masked, and what is not UTF-8 is an error."""
    document = tomlkit.document()
    document.add(tomlkit.comment(_HEADING))
    document["schema"] = _SCHEMA
    document["fusetune"] = __version__
    document["kernel"] = exported.kernel
    for key, tables in (
        ("result", [_plain(asdict(one)) for one in exported.results]),
        ("mount", exported.sections),
    ):
        if tables:
            array = tomlkit.aot()
            for table in tables:
                array.append(_item(table))
            document[key] = array
    text = tomlkit.dumps(document)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FusetuneError(
            "a path or source is not UTF-8 and cannot be exported; name the mounts to export"
        ) from error
    return text


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a result without those that are None, which TOML does not have."""
    return {"schema": RESULT_SCHEMA, **_known(fields)}


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _known(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_known(each) for each in value]
    return value


def _item(table: Mapping[str, Any]) -> Item:
    """Return a table as TOML; the sources in it, those of mounts and volumes, are masked."""
    found = tomlkit.table()
    for name, value in table.items():
        if name == "source":
            found[name] = mask_text(value)
        else:
            found[name] = _item(value) if isinstance(value, Mapping) else _inline(value)
    return found


def _inline(value: Any) -> Any:
    """Return a value as TOML has it in one line: tomlkit makes tables of what is in lists."""
    if isinstance(value, Mapping):
        inline = tomlkit.inline_table()
        for name, each in value.items():
            inline[name] = _inline(each)
        return inline
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        for each in value:
            array.append(_inline(each))
        return array
    return value


def read(path: Path) -> bytes:
    """Return the content of an untrusted file, up to the maximum size of exports.

    Raises FusetuneError.
    """
    try:
        # A FIFO would make root wait.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            content = stream.read(_LARGEST + 1)
    except OSError as error:
        raise FusetuneError(f"cannot read {path}: {reason(error)}") from error
    if len(content or b"") > _LARGEST:
        raise FusetuneError(f"{path}: larger than {_LARGEST >> 20} MiB, so it is not an export")
    return content or b""


def parsed(content: bytes, name: str) -> Exported:
    """Parse the content of the file ``name``. Raises FusetuneError if it is not an export.

    Values are checked to be in range, and sections to be valid.
    """
    try:
        text = content.decode()
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise FusetuneError(f"{name}: not valid TOML: {printable(said)}") from error
    if document.get("schema") != _SCHEMA:
        raise FusetuneError(
            f"{name}: not an export of this version: its schema is not {_SCHEMA}; "
            "create it with 'fusetune export'"
        )
    results = document.get("result", [])
    sections = document.get("mount", [])
    kernel = document.get("kernel")
    if not (isinstance(results, list) and isinstance(sections, list) and isinstance(kernel, str)):
        raise FusetuneError(f"{name}: damaged: kernel must be text, result and mount lists")
    if len(results) > _MOST:
        raise FusetuneError(f"{name}: more than {_MOST} results; export fewer mounts at a time")
    found = [_result(one, f"{name}: result {number}") for number, one in enumerate(results, 1)]
    sections_in(text, Path(name))
    return Exported(kernel, found, sections)


def _result(fields: Any, where: str) -> Saved:
    try:
        found = dict(fields)
        if found.pop("schema", None) != RESULT_SCHEMA:
            raise FusetuneError(f"{where}: written by another version of fusetune; export it again")
        saved = Saved.parse(found)
        if saved.by not in ("auto", "save"):
            raise ValueError("by must be auto or save")
        if not saved.path.startswith("/"):
            raise ValueError("a result is about a mount point")
    except DAMAGED as error:
        raise FusetuneError(f"{where}: damaged: {printable(str(error))}") from error
    return saved
