# SPDX-License-Identifier: GPL-2.0-or-later
"""Saved results under /var/lib: what to set when the mount appears again."""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fusetune.errors import FusetuneError, UsageError
from fusetune.files import write_whole
from fusetune.host import Host
from fusetune.knobs import LIVE_BY_NAME
from fusetune.mounts.mount import Mount

#: Version 1 had no ``schema``, ``by`` or ``ci95``.
SCHEMA = 2


class Unusable(FusetuneError):
    """A saved result that this version cannot use."""


@dataclass(frozen=True)
class Saved:
    """Values by knob name, in the knob's unit, for the mount of this path, type and source.

    ``by``: the command that saved them, "auto" or "save". ``gain``: what ``auto`` measured, speed
    after / before, with its 95 % interval ``ci95`` (None if not recorded). ``time``:
    seconds since the epoch.
    """

    path: str
    fstype: str
    source: str
    values: dict[str, int]
    by: str
    time: float
    gain: float | None = None
    ci95: tuple[float, float] | None = None


def saved_path(host: Host, mount: Mount) -> Path:
    """Return the file of the saved result of ``mount``."""
    identity = "\0".join((mount.path, mount.fstype, mount.source))
    digest = hashlib.sha256(os.fsencode(identity)).hexdigest()[:20]
    return host.state_dir / "saved" / f"{digest}.json"


def save(
    host: Host,
    mount: Mount,
    values: Mapping[str, int],
    by: str,
    gain: float | None = None,
    ci95: tuple[float, float] | None = None,
) -> None:
    """Save ``values`` for this path, type and source. Raises FusetuneError.

    An existing file that this version cannot read is renamed, not overwritten.
    """
    path = saved_path(host, mount)
    host.make_dir(path.parent)
    saved = Saved(mount.path, mount.fstype, mount.source, dict(values), by, time.time(), gain, ci95)
    try:
        saved_for(host, mount)
    except Unusable:
        set_aside(path)
    write_whole(path, json.dumps({"schema": SCHEMA} | asdict(saved), indent=2) + "\n")


def set_aside(path: Path) -> Path:
    """Rename an unusable file, so that it is neither lost nor read again; return its new name."""
    kept = path.with_name(f"{path.name}.set-aside-{time.time_ns()}")
    os.rename(path, kept)
    return kept


def saved_for(host: Host, mount: Mount) -> Saved | None:
    """Return what is saved for ``mount``, None if nothing. Raises `Unusable`."""
    return _read(saved_path(host, mount))


def _read(path: Path) -> Saved | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"cannot read the saved result {path}: {error}") from error
    try:
        fields = json.loads(text)
        version = fields.pop("schema", 1)
        if version == 1:
            fields["by"] = "auto"
        elif version != SCHEMA:
            raise Unusable(
                f"the saved result {path} is of schema {version}, which another version of "
                "fusetune wrote; 'fusetune auto' or 'save' sets it aside and writes its own"
            )
        if fields.get("ci95"):
            fields["ci95"] = tuple(fields["ci95"])
        saved = Saved(**fields)
        for name, value in saved.values.items():
            LIVE_BY_NAME[name].parse(f"{value:d}")
        low, high = saved.ci95 or (0, 0)
        f"{saved.time:f} {saved.gain or 0:f} {low:f} {high:f}"  # ValueError if one is not a number
    except (UsageError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unusable(
            f"the saved result {path} is damaged: {error!r}; 'fusetune auto' or 'save' sets it "
            "aside and writes its own, 'fusetune forget' removes it"
        ) from error
    return saved


def saved_at(host: Host, path: str) -> Iterator[tuple[Path, Saved]]:
    """Yield what is saved for any file system at ``path``, mounted now or not."""
    for file in _files(host):
        with suppress(Unusable):
            saved = _read(file)
            if saved and saved.path == path:
                yield file, saved


def forget(host: Host, mount: Mount) -> None:
    """Remove what is saved for ``mount``, if anything."""
    saved_path(host, mount).unlink(missing_ok=True)


def forget_all(host: Host) -> None:
    """Remove all saved results, of mounts that are mounted now or not."""
    for path in _files(host):
        path.unlink(missing_ok=True)


def unusable(host: Host) -> Iterator[str]:
    """Yield a sentence for each file that is unusable or was set aside."""
    for path in sorted(_files(host)):
        try:
            _read(path)
        except Unusable as error:
            yield str(error)
    for path in sorted((host.state_dir / "saved").glob("*.set-aside-*")):
        yield f"a saved result that could not be used was set aside as {path}"


def _files(host: Host) -> list[Path]:
    return list((host.state_dir / "saved").glob("*.json"))
