# SPDX-License-Identifier: GPL-2.0-or-later
"""Saved results under /var/lib: the values to set when the mount appears again."""

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self

from fusetune.desired.config import load
from fusetune.desired.curve import BeforeAfter, Curve
from fusetune.desired.volume import Volume, versioned_volume
from fusetune.errors import FusetuneError, UsageError, do_for_each
from fusetune.files import files_in, remove, write_whole
from fusetune.host import Host
from fusetune.knobs import LIVE_BY_NAME
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import Mount
from fusetune.toml.file import ConfigError

#: Version 1 had no ``schema``, ``by`` or ``ci95``, version 2 no ``run``, version 3 no ``volume``.
SCHEMA = 4
_NUMBERS = (int, float)  # and not bool
#: Seconds since the epoch, in the year 5138: localtime(3) fails for later ones.
LATEST = 1e11
#: What reading damaged content raises.
DAMAGED = (
    UsageError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
)
_MOST = 1e12  # of a gain


class Unusable(FusetuneError):
    """A saved result that this version cannot use."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of a run of ``auto``, in addition to the mount's type and source.

    ``server``: the program that serves it, ``version``: that of its package, None if unknown;
    ``kernel``: its series, such as 6.12; ``owner_uid``: the mount's owner; ``units``: of each
    workload's figure, by the workload's name.
    """

    server: str
    version: str | None
    kernel: str
    owner_uid: int
    units: dict[str, str]


@dataclass(frozen=True)
class Run:
    """The measurements of a run of ``auto``; higher is better.

    ``blocks``: settings that were measured together, as values by knob name in the knob's unit,
    each with the figure of each workload by its name. ``start`` and ``chosen``: the setting at the
    begin and the one that was chosen; ``weights``: of the workloads, above 0. These three are empty
    if not recorded. ``curves``: one for each knob of which several values were measured; ``proof``:
    one for each workload, empty if nothing was proven better. Both are None if not recorded.
    """

    conditions: Conditions
    blocks: Sequence[Sequence[tuple[Mapping[str, int], Mapping[str, float]]]]
    start: Mapping[str, int] = field(default_factory=dict)
    chosen: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    curves: Sequence[Curve] | None = None
    proof: Sequence[BeforeAfter] | None = None

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """Return the run of a file, which may lack what is None.

        ValueError, TypeError, KeyError or UsageError if damaged.
        """
        blocks = [[(values, figures) for values, figures in block] for block in fields["blocks"]]
        units = fields["conditions"]["units"]
        if not all(isinstance(unit, str) for unit in units.values()):
            raise ValueError("the unit of a workload must be a text")
        start, chosen, weights = (fields.get(name, {}) for name in ("start", "chosen", "weights"))
        if start.keys() != chosen.keys():
            raise ValueError("start and choice must name the same knobs")
        for values, figures in chain(*blocks, [(start, weights), (chosen, {})]):
            _check_values(values)
            if not all(isinstance(f, float) and 0 < f < math.inf for f in figures.values()):
                raise ValueError("a figure must be a number above 0")
            if start and values and values.keys() != start.keys():
                raise ValueError("every setting must name the same knobs")
            if not figures.keys() <= units.keys():
                raise ValueError("a workload lacks its unit")
        if any(figures.keys() != units.keys() for _, figures in chain(*blocks)):
            raise ValueError("a setting lacks the figure of a workload")
        conditions = Conditions(**{"version": None, **fields["conditions"]})
        if type(conditions.owner_uid) is not int or conditions.owner_uid < 0:
            raise ValueError("the owner must be a uid")
        curves = fields.get("curves")
        curves = curves and [Curve.parse(curve) for curve in curves]
        proof = fields.get("proof")
        proof = proof and [BeforeAfter.parse(one) for one in proof]
        if proof and not {one.workload for one in proof} <= units.keys():
            raise ValueError("a proven workload lacks its unit")
        return cls(conditions, blocks, start, chosen, weights, curves, proof)


@dataclass(frozen=True)
class Saved:
    """Values by knob name, in the knob's unit, for the mount with this path, type and source.

    ``by``: the command that saved them, "auto" or "save". ``gain``: what ``auto`` measured, speed
    after / before, with its 95 % interval ``ci95`` (None if not recorded). ``time``:
    seconds since the epoch. ``run``: for a later run to begin with, None if not recorded.
    ``volume``: what it is about besides the path, None if not known.
    """

    path: str
    fstype: str
    source: str
    values: dict[str, int]
    by: str
    time: float
    gain: float | None = None
    ci95: tuple[float, float] | None = None
    run: Run | None = None
    volume: Volume | None = None

    @property
    def recency(self) -> float:
        """The time to compare with other results; 0 in the future: the clock was wrong then."""
        return self.time if self.time <= time.time() else 0.0

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """Return what a file of this version has. Raises as `Run.parse`."""
        found = dict(fields)
        if found.get("ci95"):
            found["ci95"] = tuple(found["ci95"])
        for name, kind in (("run", Run), ("volume", Volume)):
            if found.get(name) is not None:
                found[name] = kind.parse(found[name])
        saved = cls(**found)
        if not all(isinstance(word, str) for word in (saved.path, saved.fstype, saved.source)):
            raise TypeError("path, fstype and source must be text")
        _check_values(saved.values)
        _check_numbers(saved.time, saved.gain, saved.ci95)
        return saved


def saved_path(host: Host, about: Mount | Saved) -> Path:
    """Return the file of the saved result for a mount, or for the path, type and source of one."""
    path = about.first_path if isinstance(about, Mount) else about.path
    identity = "\0".join((path, about.fstype, about.source))
    digest = hashlib.sha256(os.fsencode(identity)).hexdigest()[:20]
    return host.state_dir / "saved" / f"{digest}.json"


def save(
    host: Host,
    mount: Mount,
    values: Mapping[str, int],
    by: str,
    gain: float | None = None,
    ci95: tuple[float, float] | None = None,
    run: Run | None = None,
) -> None:
    """Save ``values`` for this path, type and source. Raises FusetuneError.

    An existing file that this version cannot read is renamed, not overwritten.
    """
    identity = (mount.first_path, mount.fstype, mount.source)
    volume = _volume(host, mount)
    store(host, Saved(*identity, dict(values), by, time.time(), gain, ci95, run, volume))


def store(host: Host, saved: Saved) -> None:
    """Save a result, also one of another host, as `save` does."""
    path = saved_path(host, saved)
    host.make_dir(path.parent)
    try:
        _read(path)
    except Unusable:
        set_aside(path)
    write_whole(path, json.dumps({"schema": SCHEMA} | asdict(saved)) + "\n")


def _volume(host: Host, mount: Mount) -> Volume | None:
    with suppress(ConfigError):  # which whoever needs the configuration reports
        return versioned_volume(host, mount, load(host), Daemons(host))
    return None


def set_aside(path: Path) -> Path:
    """Rename an unusable file, so that it is neither lost nor read again; return its new name."""
    kept = path.with_name(f"{path.name}.set-aside-{time.time_ns()}")
    os.rename(path, kept)
    return kept


def saved_for(host: Host, mount: Mount) -> Saved | None:
    """Return the saved result for ``mount``, None if there is none. Raises `Unusable`."""
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
        elif version not in (2, 3, SCHEMA):
            raise Unusable(
                f"the saved result {path} has schema {version} of another version of fusetune; "
                "'fusetune auto' or 'fusetune save' renames it and writes a new one"
            )
        return Saved.parse(fields)
    except DAMAGED as error:
        raise Unusable(
            f"the saved result {path} is damaged: {error!r}; 'fusetune auto' or 'fusetune save' "
            "renames it and writes a new one, 'fusetune forget' removes it"
        ) from error


def _check_numbers(time: Any, gain: Any, ci95: Any) -> None:
    if type(time) not in _NUMBERS or not 0 <= time < LATEST:
        raise ValueError("the time must be in seconds since 1970")
    low, high = ci95 or (1.0, 1.0)
    for one in (low, high, 1.0 if gain is None else gain):
        if type(one) not in _NUMBERS or not 0 < one < _MOST:
            raise ValueError("a gain must be a number above 0")
    if low > high:
        raise ValueError("an interval must begin with its lower end")


def _check_values(values: Mapping[str, int]) -> None:
    for name, value in values.items():
        LIVE_BY_NAME[name].parse(f"{value:d}")


def all_saved(host: Host) -> list[tuple[Path, Saved]]:
    """Return all usable saved results, by file."""
    found = ((file, _usable(file)) for file in result_files(host))
    return [(file, saved) for file, saved in found if saved]


def saved_under(host: Host, mount: Mount, conditions: Conditions) -> Saved | None:
    """Return the result of a run under the same conditions for the type and source of ``mount``.

    Prefer the result of the mount itself, otherwise the latest of another path.
    """
    fitting = [
        saved
        for _, saved in all_saved(host)
        if saved.run
        and saved.run.conditions == conditions
        and (saved.fstype, saved.source) == (mount.fstype, mount.source)
    ]
    return max(
        fitting, key=lambda saved: (saved.path == mount.first_path, saved.recency), default=None
    )


def _usable(file: Path) -> Saved | None:
    with suppress(Unusable):
        return _read(file)
    return None


def saved_at(host: Host, path: str) -> list[tuple[Path, Saved]]:
    """Return what is saved for any file system at ``path``, mounted or not, by file."""
    return [(file, saved) for file, saved in all_saved(host) if saved.path == path]


def forget(host: Host, mount: Mount) -> None:
    """Remove what is saved for ``mount``, if anything."""
    remove(saved_path(host, mount))


def forget_all(host: Host) -> None:
    """Remove all saved results, whether their mounts are mounted or not."""
    do_for_each(result_files(host), remove)


def unusable(host: Host) -> Iterator[str]:
    """Yield a sentence for each file that is unusable or was set aside."""
    try:
        files, aside = (result_files(host, end) for end in (".json", ".set-aside-*"))
    except FusetuneError as error:
        yield str(error)
        return
    for path in files:
        try:
            _read(path)
        except Unusable as error:
            yield str(error)
    for path in aside:
        yield f"an unusable saved result was renamed to {path}"


def result_files(host: Host, end: str = ".json") -> list[Path]:
    """Return the files of saved results, or those with another end. Raises FusetuneError."""
    return files_in(host.state_dir / "saved", f"*{end}")
