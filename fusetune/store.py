# SPDX-License-Identifier: GPL-2.0-or-later
"""What is remembered of a mount while it lives: undo journal, what is left alone, locks."""

import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from fusetune.errors import FusetuneError, reason
from fusetune.files import sync_folder
from fusetune.host import Host
from fusetune.mounts import Mount, printable, still_mounted


def key_of(mount: Mount | None) -> str:
    """Return the file name stem under which a mount's journal and lock stand; None: the host."""
    return "host" if mount is None else mount.bdi or mount.device


def _name(mount: Mount | None) -> str:
    return "this host" if mount is None else printable(mount.path)


def journal_path(host: Host, mount: Mount | None) -> Path:
    """Return the file of the undo journal of ``mount``, or of the host for None."""
    return host.state_dir / "undo" / f"{key_of(mount)}.journal"


#: Why a value was written, where it was to keep it (`Record.why`).
KEEPING = "apply"
#: Why a limit of the host was written, where a mount needs it.
NEEDED = "mount"


@dataclass(frozen=True)
class Record:
    """One write: ``old`` and ``new`` in the knob's unit, ``time`` in seconds since the epoch."""

    knob: str
    old: int
    new: int
    why: str
    time: float


class Damaged(FusetuneError):
    """An undo journal is not what was written; it was kept aside."""


class Busy(FusetuneError):
    """Another fusetune is at work on the mount."""


class Journal:
    """The undo journal of one mount, or of the host's own knobs.

    A file of lines, each a checksum, a length and a JSON object; the first says which super block
    of which boot it is about, each other is a `Record`. A line is on disk before its value is
    written to the kernel, so an unfinished last line speaks of a write that was never made, and is
    dropped.
    A journal about a mount or a boot that is gone has nothing left to undo, and is dropped whole.
    """

    def __init__(self, host: Host, mount: Mount | None) -> None:
        """Read the journal if there is one. Raises `Damaged`, or FusetuneError if unreadable.

        Whoever is about to change something uses `to_change` instead.
        """
        self._host = host
        self.path = journal_path(host, mount)
        self._about = {
            "boot_id": host.boot_id,
            "instance": mount.instance if mount else None,
        }
        self._target = _name(mount)
        self.records: list[Record] = []
        self._size = 0
        self._load()

    @classmethod
    def to_change(cls, host: Host, mount: Mount | None) -> Self:
        """Read the journal under the mount's lock; a damaged one is kept aside, and told once.

        Raises FusetuneError where the mount is gone: its device number may be another's by now,
        whose journal has the same name.
        """
        if mount and not still_mounted(host, mount):
            raise FusetuneError(f"{printable(mount.path)} is not mounted any more")
        try:
            return cls(host, mount)
        except Damaged as error:
            path = journal_path(host, mount)
            kept = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
            os.rename(path, kept)
            raise Damaged(
                f"the undo journal of {_name(mount)} was damaged and is kept as {kept}; the values "
                "before cannot be told from it: see 'fusetune show' and set them by hand"
            ) from error

    def _load(self) -> None:
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise FusetuneError(
                f"cannot read the undo journal {self.path}: {reason(error)}"
            ) from error
        whole = text[: text.rfind(b"\n") + 1]
        try:
            _check_torn(text[len(whole) :])
            about, *rest = [_unpack(line) for line in whole.splitlines()] or [{}]
            if "schema" in about:  # there is none in this version's
                raise ValueError("another version of fusetune wrote it")
            records = [Record(**fields) for fields in rest]
        except (ValueError, TypeError) as error:
            raise Damaged(
                f"the undo journal of {self._target} is damaged: {self.path}; the values before "
                "cannot be told from it, 'fusetune reset' keeps it aside"
            ) from error
        if about == self._about:
            self.records, self._size = records, len(whole)

    @property
    def originals(self) -> dict[str, int]:
        """Return the value of each changed knob as it was found before the first change."""
        found: dict[str, int] = {}
        for record in self.records:
            found.setdefault(record.knob, record.old)
        return found

    def wrote(self, knob: str, value: int) -> bool:
        """Whether ``value``, found now, differs from the original and was written by fusetune."""
        return value in self._written(knob) and value != self.originals[knob]

    def to_undo(self, knob: str, value: int) -> bool:
        """Whether ``knob``, which has ``value`` now, is to be put back to its original.

        Not if fusetune put it back already and somebody else changed it since. That the last
        write is on record does not mean that it was made: one before it may still stand.
        """
        written = self._written(knob)
        if not written or value == self.originals[knob]:
            return False
        return written[-1] != self.originals[knob] or value in written

    def last(self, knob: str) -> Record | None:
        """Return the last write of ``knob``, None if there was none."""
        return next((record for record in reversed(self.records) if record.knob == knob), None)

    def before(self, knob: str, why: str) -> int | None:
        """Return what ``knob`` was before the last writes of it, one upon the other, for ``why``.

        None if the last write was for something else, or there was none.
        """
        found = None
        for record in reversed(self.records):
            if record.knob != knob:
                continue
            if record.why != why or found not in (None, record.new):
                break
            found = record.old
        return found

    def _written(self, knob: str) -> list[int]:
        return [record.new for record in self.records if record.knob == knob]

    def append(self, records: Sequence[Record]) -> None:
        """Put ``records`` on disk. Raises FusetuneError, having added nothing, if it cannot."""
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
                sync_folder(self.path.parent)
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
        """Forget everything: there is nothing left to undo."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        self.records.clear()
        self._size = 0


def _pack(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(fields, sort_keys=True).encode()
    return b"%08x %d %s\n" % (zlib.crc32(text), len(text), text)


def _unpack(line: bytes) -> dict[str, Any]:
    """Return a journal line's object; ValueError if it is not as it was written."""
    checksum, length, text = line.split(b" ", 2)
    if int(checksum, 16) != zlib.crc32(text) or int(length) != len(text):
        raise ValueError("not what was written")
    fields: dict[str, Any] = json.loads(text)
    return fields


def _check_torn(tail: bytes) -> None:
    """Raise ValueError unless ``tail``, after the last line's end, is a line cut short."""
    _, length, text = (*tail.split(b" ", 2), b"", b"")[:3]
    if length.isdigit() and len(text) > int(length):
        raise ValueError("the last line has lost its end")


def remove_stale(host: Host, key: str = "*") -> None:
    """Remove what is remembered of mounts that are gone, for there is nothing left to undo.

    ``key``: of one mount (`key_of`). What is about mounts in other mount namespaces stays: their
    bdi is there.
    """
    for path in (host.state_dir / "undo").glob(f"{key}.journal"):
        with suppress(ValueError, KeyError, FileNotFoundError):
            # ValueError: damaged; that is told when its mount is next changed.
            _remove_unless_alive(host, path, _unpack(path.read_bytes().partition(b"\n")[0]))
    for path in host.run_dir.glob(f"{key}.left"):
        _remove_unless_alive(host, path, _read_left(path))
    for path in host.run_dir.glob(f"{key}.lock"):
        if path.stem != key_of(None) and not os.path.exists(_bdi_folder(host, path)):
            _clear(host, path)


def clear_left_behind(host: Host, mount: Mount) -> None:
    """Remove the lock that a killed one left on ``mount``, for its work is done by now."""
    path = host.run_dir / f"{key_of(mount)}.lock"
    if path.exists():
        _clear(host, path)


def _clear(host: Host, path: Path) -> None:
    with suppress(Busy), Lock(host, None, path.stem):
        pass  # releasing it removes it


def _bdi_folder(host: Host, path: Path) -> str:
    """Return the sysfs folder of the bdi that the file ``path`` of ours is named after."""
    return host.path(f"sys/class/bdi/{path.stem}/")


def _remove_unless_alive(host: Host, path: Path, about: Mapping[str, Any]) -> None:
    instance = about["instance"]
    try:
        alive = instance is None or instance == os.stat(_bdi_folder(host, path)).st_ino
    except FileNotFoundError:
        alive = False
    if not alive or about.get("boot_id", host.boot_id) != host.boot_id:
        path.unlink(missing_ok=True)


def _left_path(host: Host, mount: Mount) -> Path:
    return host.run_dir / f"{key_of(mount)}.left"


def _read_left(path: Path) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        return {"instance": fields["instance"], "values": dict(fields["values"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"instance": -1, "values": {}}  # cut short by a crash: it is only said once more


def left_alone(host: Host, mount: Mount) -> dict[str, int]:
    """Return the values, by knob, that are known to be the administrator's since they were ours."""
    about = _read_left(_left_path(host, mount))
    values: dict[str, int] = about["values"] if about["instance"] == mount.instance else {}
    return values


def leave_alone(host: Host, mount: Mount, values: Mapping[str, int]) -> None:
    """Note ``values`` as the administrator's for as long as the mount lives; none: forget them."""
    path = _left_path(host, mount)
    if values:
        note = json.dumps({"instance": mount.instance, "values": dict(values)})
        host.make_dir(path.parent)
        path.write_text(note, encoding="ascii")
    else:
        path.unlink(missing_ok=True)


class Lock:
    """Sole right to change or measure one mount (or the host's knobs); freed also by a crash.

    A file under the run folder locked with flock(2), removed on release. ``left_behind``: whether
    who had it before was killed, and may have left its work unfinished.
    """

    def __init__(self, host: Host, mount: Mount | None, key: str | None = None) -> None:
        """Take the lock. Raises `Busy`, naming the other process, if it is taken.

        ``key``: `key_of` a mount that is gone, whose lock is to be cleared away.
        """
        name = key or _name(mount)
        self._path = host.make_dir(host.run_dir) / f"{key or key_of(mount)}.lock"
        while True:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._fd = os.open(self._path, flags, 0o600)
            except OSError as error:
                raise FusetuneError(
                    f"cannot lock {name}: {self._path}: {reason(error)}; run it as root"
                ) from error
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                owner = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
                os.close(self._fd)
                raise Busy(
                    f"another fusetune (pid {owner or 'unknown'}) is at work on {name}; "
                    "wait for it to end"
                ) from error
            if self._current():
                break
            os.close(self._fd)  # its holder removed the file between our open and lock
        self.left_behind = os.fstat(self._fd).st_size > 0
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def _current(self) -> bool:
        try:
            return os.stat(self._path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def scratch_note(host: Host, mount: Mount) -> Path:
    """Return the file that names a benchmark's scratch folder while there is one.

    It lets the next run remove what a killed one could not.
    """
    return host.run_dir / f"{key_of(mount)}.scratch"


@contextmanager
def noted(note: Path, text: str) -> Iterator[None]:
    """Keep ``text`` in the file ``note`` while the context lasts."""
    note.write_bytes(os.fsencode(text))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
