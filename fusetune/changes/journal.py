# SPDX-License-Identifier: GPL-2.0-or-later
"""The undo journal of a mount: each value before it is written."""

import json
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from fusetune.errors import FusetuneError, as_root, reason
from fusetune.files import remove, sync_directory
from fusetune.host import Host
from fusetune.mounts.control import bdis_shown, still_mounted
from fusetune.mounts.mount import Mount
from fusetune.text import printable


def key_of(mount: Mount | None) -> str:
    """Return the file name stem of a mount's journal and lock; None: of the host's."""
    return "host" if mount is None else mount.bdi or mount.device


def name_of(mount: Mount | None) -> str:
    return "this host" if mount is None else printable(mount.path)


def journal_path(host: Host, mount: Mount | None) -> Path:
    """Return the file of the undo journal of ``mount``, or of the host for None.

    Raises FusetuneError if sysfs is hidden: the bdi names the file and says whose journal it is.
    """
    if mount and mount.instance is None and not bdis_shown(host):
        raise FusetuneError(
            f"the kernel shows no bdi for {printable(mount.path)}; is /sys mounted?"
        )
    return host.state_dir / "undo" / f"{key_of(mount)}.journal"


#: `Record.why` of values from configuration or a saved result.
KEEPING = "apply"
#: `Record.why` of limits of the host that a mount needs.
NEEDED = "mount"
#: `Record.why` of a value that ``auto`` tries, then the same on live traffic.
TRIAL, LIVE_TRIAL = "auto: trial", "auto --live: trial"
#: `Record.why` of a value that such a run found and restores.
PUT_BACK = "auto: put back"
_PASSING = (TRIAL, LIVE_TRIAL, PUT_BACK)
#: `Record.why` of a value that the server's reply to INIT set after ours, without a write of ours.
INIT = "INIT"


@dataclass(frozen=True)
class Record:
    """One write: ``old`` and ``new`` in the knob's unit, ``time`` in seconds since the epoch."""

    knob: str
    old: int
    new: int
    why: str
    time: float


class Damaged(FusetuneError):
    """An undo journal is damaged; it was renamed and kept."""


class Journal:
    """The undo journal of one mount, or of the host's own knobs.

    A line is a checksum, a length and a JSON object. The first names the super block and the boot,
    other line is a `Record`. A line is synced to disk before its value is written to the kernel, so
    a torn last line belongs to a write that never happened and is ignored. A journal about a mount
    or a boot that is gone is ignored, too.
    """

    def __init__(self, host: Host, mount: Mount | None) -> None:
        """Read the journal if there is one. Raises `Damaged`, or FusetuneError if unreadable.

        To change something, use `to_change` instead.
        """
        self._host = host
        self.path = journal_path(host, mount)
        self._about = {
            "boot_id": host.boot_id,
            "instance": mount.instance if mount else None,
        }
        self._target = name_of(mount)
        self.records: list[Record] = []
        self._size = 0
        self._load()

    @classmethod
    def to_change(cls, host: Host, mount: Mount | None) -> Self:
        """Read the journal under the mount's lock; a damaged one is renamed and raises `Damaged`.

        Raises FusetuneError if the mount is gone: its device number, and with it the journal's
        name, may belong to another mount by now.
        """
        if mount and not still_mounted(host, mount):
            raise FusetuneError(f"{printable(mount.path)} is no longer mounted")
        try:
            return cls(host, mount)
        except Damaged as error:
            path = journal_path(host, mount)
            kept = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
            os.rename(path, kept)
            raise Damaged(
                f"the undo journal of {name_of(mount)} was damaged and was moved to {kept}; the "
                "original values are lost: check them with 'fusetune show' and set them by hand"
            ) from error

    def _load(self) -> None:
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise FusetuneError(
                f"cannot read the undo journal {self.path}: {reason(error)}{as_root(error)}"
            ) from error
        whole = text[: text.rfind(b"\n") + 1]
        try:
            _check_torn(text[len(whole) :])
            about, *rest = [unpack(line) for line in whole.splitlines()] or [{}]
            if "schema" in about:  # this version does not write one
                raise ValueError("another version of fusetune wrote it")
            records = [Record(**fields) for fields in rest]
        except (ValueError, TypeError) as error:
            raise Damaged(
                f"the undo journal of {self._target} is damaged: {self.path}; the original values "
                "are lost, and 'fusetune reset' renames the file"
            ) from error
        if about == self._about:
            self.records, self._size = records, len(whole)

    @property
    def originals(self) -> dict[str, int]:
        """Return the value of each changed knob as it was found before the first change.

        If the value was set before the reply to INIT, that is what the reply set.
        """
        found: dict[str, int] = {}
        for record in self.records:
            if record.why == INIT:
                found[record.knob] = record.new
            found.setdefault(record.knob, record.old)
        return found

    @property
    def changed(self) -> set[str]:
        """The names of the knobs that were changed, not just for a measurement."""
        return {record.knob for record in self.records if record.why not in _PASSING}

    def wrote(self, knob: str, value: int) -> bool:
        """Whether ``value``, found now, differs from the original and was written by fusetune."""
        return value in self._written(knob) and value != self.originals[knob]

    def to_undo(self, knob: str, value: int) -> bool:
        """Whether to restore ``knob``, which has ``value`` now, to its original value.

        Not if fusetune has restored it already and others changed it since. The last recorded
        write may never have happened, so an earlier value of ours counts too.
        """
        written = self._written(knob)
        if not written or value == self.originals[knob]:
            return False
        return written[-1] != self.originals[knob] or value in written

    def last(self, knob: str, *, passing: bool = True) -> Record | None:
        """Return the last write of ``knob``, None if there was none.

        ``passing``: also one that was only for a measurement.
        """
        writes = (one for one in reversed(self.records) if one.knob == knob)
        return next((one for one in writes if passing or one.why not in _PASSING), None)

    def before(self, knob: str, why: str) -> int | None:
        """Return the value of ``knob`` before its latest unbroken run of writes for ``why``.

        None if its last write had another reason, or there is none.
        """
        found = None
        for record in reversed(self.records):
            if record.knob != knob:
                continue
            if record.why != why or found not in (None, record.new):
                break
            found = record.old
        return found

    def before_trials(self, knob: str, value: int) -> int | None:
        """Return the value of ``knob`` before the trials of a run that was killed.

        None if ``value``, found now, is not from its last trial or, if that was not written any
        more, from before it. Only for the holder of the lock.
        """
        last = self.last(knob)
        if last is None or last.why not in (TRIAL, LIVE_TRIAL):
            return None
        return self.before(knob, last.why) if value in (last.new, last.old) else None

    def _written(self, knob: str) -> list[int]:
        return [record.new for record in self.records if record.knob == knob]

    def append(self, records: Sequence[Record]) -> None:
        """Append ``records`` and sync them to disk. Raises FusetuneError; nothing is added then."""
        lines = [_pack(asdict(record)) for record in records]
        if not self._size:
            lines.insert(0, _pack(self._about))
            self._host.make_dir(self.path.parent)
        data = b"".join(lines)
        fd = -1
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.ftruncate(fd, self._size)
            if os.pwrite(fd, data, self._size) != len(data):
                os.ftruncate(fd, self._size)
                raise OSError(28, "No space left on device")
            os.fsync(fd)
            if not self._size:
                sync_directory(self.path.parent)
        except OSError as error:
            raise FusetuneError(
                f"cannot write the undo journal {self.path}: {reason(error)}; nothing was changed"
            ) from error
        finally:
            if fd >= 0:
                os.close(fd)
        self._size += len(data)
        self.records.extend(records)

    def remove(self) -> None:
        """Remove the journal: nothing remains to undo. Raises FusetuneError."""
        remove(self.path)
        self.records.clear()
        self._size = 0


def _pack(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(fields, sort_keys=True).encode()
    return b"%08x %d %s\n" % (zlib.crc32(text), len(text), text)


def unpack(line: bytes) -> dict[str, Any]:
    """Parse a journal line. Raises ValueError if it is damaged."""
    checksum, length, text = line.split(b" ", 2)
    if int(checksum, 16) != zlib.crc32(text) or int(length) != len(text):
        raise ValueError("checksum or length mismatch")
    fields: dict[str, Any] = json.loads(text)
    return fields


def _check_torn(tail: bytes) -> None:
    """Raise ValueError if ``tail``, the rest after the last whole line, is not a torn line."""
    _, length, text = (*tail.split(b" ", 2), b"", b"")[:3]
    if length.isdigit() and len(text) > int(length):
        raise ValueError("the last line is incomplete")
