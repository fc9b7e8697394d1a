# SPDX-License-Identifier: GPL-2.0-or-later
"""Values of the host's knobs for later boots, in sysctl.d and, for our module, in modprobe.d."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fusetune.errors import FusetuneError, UsageError, reason
from fusetune.files import write_whole
from fusetune.host import Host
from fusetune.knobs import SYSTEM, Knob

_SYSCTL_FILE = "etc/sysctl.d/60-fusetune.conf"
_MODPROBE_FILE = "etc/modprobe.d/60-fusetune.conf"
_SYSCTL, _MODULE = "proc/sys/", "sys/module/fusetuned/parameters/"
_HEADER = "# Written by 'fusetune set host --persist'; 'fusetune reset host' removes its lines.\n"


@dataclass(frozen=True)
class Line:
    """A knob's value in the file ``file`` of its kind, before and after; None: no line."""

    knob: Knob
    file: str
    old: int | None
    new: int | None
    mount: None = None


@dataclass(frozen=True)
class _Kind:
    """How a file spells a knob: ``pattern`` finds its value, ``line`` adds it."""

    file: str
    pattern: str
    line: str


def _kind(knob: Knob) -> _Kind | None:
    if knob.file.startswith(_SYSCTL):
        # sysctl.d(5): separated by dots or slashes; a leading dash ignores errors if it does not
        # exist.
        parts = knob.file.removeprefix(_SYSCTL).split("/")
        name = "[./]".join(map(re.escape, parts))
        pattern = rf"^[ \t]*-?[ \t]*{name}[ \t]*=[ \t]*(\d+)[ \t]*$"
        return _Kind(_SYSCTL_FILE, pattern, f"-{'.'.join(parts)} = {{}}\n")
    if knob.file.startswith(_MODULE):
        pattern = rf"^[ \t]*options[ \t]+fusetuned[ \t]+{knob.name}=(\d+)[ \t]*$"
        return _Kind(_MODPROBE_FILE, pattern, f"options fusetuned {knob.name}={{}}\n")
    return None


def persist(host: Host, values: Mapping[Knob, int], *, dry_run: bool) -> list[Line]:
    """Write ``values`` for later boots; return what changed. Other lines of the files are kept.

    Raises UsageError for a knob that no such file can set, FusetuneError if it cannot be written.
    """
    for knob in values:
        if _kind(knob) is None:
            raise UsageError(
                f"--persist: {knob.name} is a parameter of the kernel's own FUSE; put "
                f"fuse.{knob.name}=VALUE on the kernel's command line"
            )
    return _edit(host, values, dry_run)


def forget_persisted(host: Host, *, dry_run: bool) -> list[Line]:
    """Remove the lines that `persist` writes, and files without other lines. As `persist`."""
    return _edit(host, dict.fromkeys(SYSTEM), dry_run)


def _edit(host: Host, values: Mapping[Knob, int | None], dry_run: bool) -> list[Line]:
    texts = {file: _read(Path(host.path(file))) for file in (_SYSCTL_FILE, _MODPROBE_FILE)}
    before = dict(texts)
    lines = []
    for knob, new in values.items():
        kind = _kind(knob)
        if kind is None:
            continue
        text = texts[kind.file]
        found = re.findall(kind.pattern, text, re.MULTILINE)
        old = int(found[-1]) if found else None
        if old != new:
            lines.append(Line(knob, host.path(kind.file), old, new))
            text = re.sub(kind.pattern + r"\n?", "", text, flags=re.MULTILINE)
            text += "\n" if text and not text.endswith("\n") else ""
            texts[kind.file] = text + (kind.line.format(new) if new is not None else "")
    if not dry_run:
        for file, text in texts.items():
            if text != before[file]:
                _write(host, Path(host.path(file)), text)
    return lines


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return _HEADER
    except (OSError, UnicodeDecodeError) as error:
        raise FusetuneError(f"cannot read {path}: {error}") from error


def _write(host: Host, path: Path, text: str) -> None:
    if text.strip() in ("", _HEADER.strip()):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FusetuneError(f"cannot remove {path}: {reason(error)}") from error
    else:
        host.make_dir(path.parent)
        write_whole(path, text)
