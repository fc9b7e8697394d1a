# SPDX-License-Identifier: GPL-2.0-or-later
"""What fusetune did to each mount, and to the host: every run and change; only the latest are kept.

``history/NAME.jsonl`` in the state directory has a line for each entry, below one that names the
mount. Nothing depends on it: the undo journal has what `reset` needs.
"""

import fcntl
import json
import math
import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from heapq import merge
from pathlib import Path
from typing import Any, Self

from fusetune.changes.apply import Change
from fusetune.desired.config import load
from fusetune.desired.results import DAMAGED, LATEST, Run, saved_path
from fusetune.desired.sections import Settings
from fusetune.desired.volume import kernel_series
from fusetune.errors import FusetuneError, reason
from fusetune.files import files_in, write_whole
from fusetune.host import Host
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from fusetune.toml.file import ConfigError

_SCHEMA = 1
#: Mounts whose history is kept. If each mount has a new path, as in containers, old histories are
#: removed.
_MOST_FILES = 1000
_NO_LOGIN = 2**32 - 1  # audit's loginuid of what no login session started


@dataclass(frozen=True)
class Entry:
    """What one command did.

    ``time``: seconds since the epoch; ``user``: the login name, None outside login sessions, as
    for the service; ``changes``: value before and after by knob; ``gain``: speed after divided by
    speed before, with its 95 % interval ``ci95``; ``workloads``: what was measured; ``reasons``:
    sentences; ``run``: all measurements of a run of ``auto``.
    """

    time: float
    command: str
    user: str | None
    changes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    gain: float | None = None
    ci95: Sequence[float] | None = None
    workloads: Sequence[str] = ()
    reasons: Sequence[str] = ()
    run: Run | None = None

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Return the entry in a line. Raises one of `DAMAGED`."""
        fields = json.loads(line)
        if fields.get("run") is not None:
            fields["run"] = Run.parse(fields["run"])
        entry = cls(**fields)
        numbers = [entry.time, entry.gain or 0.0, *(entry.ci95 or ())]
        for old, new in entry.changes.values():
            numbers += [old, new]
        words = [entry.command, entry.user or "", *entry.workloads, *entry.reasons]
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError("a number must be finite")
        if not 0 <= entry.time < LATEST:
            raise ValueError("the time must be in seconds since 1970")
        if entry.ci95 is not None and len(entry.ci95) != 2:
            raise ValueError("an interval must have two ends")
        if not all(isinstance(word, str) for word in words):
            raise TypeError("a word must be a string")
        return entry


@dataclass(frozen=True)
class History:
    """The entries of a mount or of the host, the oldest first, and what could not be read."""

    entries: Sequence[Entry] = ()
    problems: Sequence[str] = ()


def record(
    host: Host,
    mount: Mount | None,
    command: str,
    changes: Mapping[str, Sequence[int]] | None = None,
    *,
    keep: int | None = None,
    **facts: Any,
) -> None:
    """Add what ``command`` did to the history of a mount, or of the host for None.

    ``keep``: number of entries to keep, None for the configured one; ``facts``: other fields of
    `Entry`. Failures are ignored: a full disk must not make the command fail.
    """
    keep = _configured(host) if keep is None else keep
    entry = Entry(time.time(), command, _user(host), changes or {}, **facts)
    path = _path(host, mount)
    with suppress(OSError, FusetuneError):
        host.make_dir(path.parent)
        with _locked(path.parent):
            if keep:
                _add(path, mount, json.dumps(asdict(entry)), keep)
            else:
                path.unlink(missing_ok=True)


def values_of(changes: Sequence[Change]) -> dict[str, tuple[int, int]]:
    """Return the value before and after by knob, as an `Entry` has it."""
    return {change.knob.name: (change.old, change.new) for change in changes}


def history_of(host: Host, mount: Mount | None) -> History:
    """Return the history of a mount, or of the host for None."""
    return _read([_path(host, mount)])


def found_nothing_better(host: Host, mount: Mount) -> bool:
    """Return whether the last thing done to a mount was a run of ``auto`` that changed nothing.

    A run on another series of the kernel does not count.
    """
    entries = history_of(host, mount).entries
    if not entries or entries[-1].command not in ("auto", "auto --live") or entries[-1].changes:
        return False
    run = entries[-1].run
    return run is None or run.conditions.kernel == kernel_series(host)


def history_named(host: Host, name: str) -> tuple[str, History]:
    """Return the mount point that ``name`` means, and its history.

    If nothing is mounted there, all mounts that were mounted there are included. Raises
    FusetuneError if nothing is known about ``name``.
    """
    try:
        mount = find(host, name)
    except FusetuneError:
        path = os.path.abspath(name)
        found = _read([file for file in _files(host) if _about(file).get("path") == path])
        if not found.entries:
            raise
        return path, found
    return mount.path, history_of(host, mount)


def _configured(host: Host) -> int:
    try:
        return load(host).settings.keep
    except ConfigError:  # reported by those who need the configuration
        return Settings.keep


def _user(host: Host) -> str | None:
    try:
        uid = int(host.read("proc/self/loginuid"))
    except (OSError, ValueError):  # a kernel without audit
        return None
    if uid == _NO_LOGIN:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _path(host: Host, mount: Mount | None) -> Path:
    name = saved_path(host, mount).stem if mount else "host"
    return host.state_dir / "history" / f"{name}.jsonl"


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the histories; only root can open the file and hold the lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(directory / ".lock", flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _add(path: Path, mount: Mount | None, line: str, keep: int) -> None:
    """Append a line; if there are ``keep`` entries, remove the oldest."""
    about = (
        {"path": mount.first_path, "fstype": mount.fstype, "source": mount.source} if mount else {}
    )
    head = json.dumps({"schema": _SCHEMA, **about}) + "\n"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        _make_room(path.parent)
        text = ""
    first, *entries = text.splitlines(keepends=True) or [head]
    if text.endswith("\n") and first == head and len(entries) < keep:
        with open(path, "a", encoding="utf-8", opener=_no_link) as stream:
            stream.write(f"{line}\n")
        return
    whole = [entry for entry in entries if entry.endswith("\n")]  # a crash may tear the last one
    write_whole(path, "".join([head, *whole[max(0, len(whole) + 1 - keep) :], f"{line}\n"]))


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _make_room(directory: Path) -> None:
    """Remove the least recently changed histories if there are too many."""
    files = sorted(directory.glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
    for file in files[: max(0, len(files) + 1 - _MOST_FILES)]:
        file.unlink(missing_ok=True)


def _files(host: Host) -> list[Path]:
    return files_in(host.state_dir / "history", "*.jsonl")


def _about(file: Path) -> dict[str, Any]:
    """Return what the first line of a history says; empty if it cannot be read."""
    with suppress(OSError, ValueError, RecursionError), open(file, "rb") as stream:
        head = json.loads(stream.readline())
        if isinstance(head, dict):
            return head
    return {}


def _read(files: Sequence[Path]) -> History:
    """Return the entries of some files by time, without those that are damaged."""
    found: list[list[Entry]] = []
    problems: list[str] = []
    for file in files:
        try:
            _, *lines = file.read_bytes().splitlines() or [b""]
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"cannot read the history {file}: {reason(error)}")
            continue
        damaged, entries = 0, list[Entry]()
        found.append(entries)
        for line in lines:
            try:
                entries.append(Entry.parse(line))
            except DAMAGED:
                damaged += 1
        if damaged:
            problems.append(f"{damaged} of {len(lines)} entries of {file} are damaged")
    # Each file is in order, even if the clock was set back meanwhile.
    return History(tuple(merge(*found, key=lambda entry: entry.time)), tuple(problems))
