# SPDX-License-Identifier: GPL-2.0-or-later
"""Replacing an administrator's file: atomically, only if it is unchanged, with a backup."""

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from fusetune.errors import FusetuneError, reason
from fusetune.files import sync_directory
from fusetune.recipes.edit import Edit

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def protected(file: Path) -> Path:
    """Return the real path of a file, which need not exist.

    Raises FusetuneError if anybody but root, or this user, could change the file or redirect its
    path: neither the file nor a directory above it may be owned or writable by others. Sticky
    directories like /tmp, where nobody can rename other users' files, are allowed.
    """
    path = file.resolve()
    for each in (*reversed(path.parents), path):
        try:
            state = os.lstat(each)
        except FileNotFoundError:
            break
        except OSError as error:
            raise FusetuneError(f"cannot read {each}: {reason(error)}") from error
        sticky = stat.S_ISDIR(state.st_mode) and state.st_mode & stat.S_ISVTX
        if state.st_uid not in (0, os.geteuid()) or (state.st_mode & _WRITABLE and not sticky):
            raise FusetuneError(
                f"users other than root can change {each}, so {file} was not written; "
                f"chown root {each} && chmod go-w {each}"
            )
        if each == path and not stat.S_ISREG(state.st_mode):
            raise FusetuneError(f"{file} is not a regular file, so it was not written")
    return path


def backup_of(file: Path) -> Path:
    """Return the backup's path: next to the new file, so that it is found from a rescue shell."""
    path = file.resolve()
    return path.with_name(f"{path.name}.fusetune-backup")


def replace(edit: Edit, *, keep: bool = False) -> None:
    """Make an edit. A kill at any moment leaves the old file or the new one.

    The new file has the owner, mode and extended attributes of the old one. ``keep``: the old file
    stays as `backup_of`. Raises FusetuneError, also if the file no longer has the text before.
    """
    path = protected(edit.file)
    try:
        if edit.after is None:
            _check_unchanged(edit, path)
            path.unlink()
            if edit.concerns_systemd:  # also remove the directory of the drop-in
                with suppress(OSError):  # it has other drop-ins
                    path.parent.rmdir()
            sync_directory(path.parent if path.parent.exists() else path.parent.parent)
            return
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.fusetune-new")
        new.unlink(missing_ok=True)  # left by a killed run
        try:
            _write_new(new, edit.after, path if edit.before is not None else None)
            if keep:
                backup_of(path).unlink(missing_ok=True)
                os.link(path, backup_of(path))
            _check_unchanged(edit, path)
            new.rename(path)
        finally:
            new.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise FusetuneError(f"cannot write {edit.file}: {reason(error)}") from error


def _check_unchanged(edit: Edit, path: Path) -> None:
    """Raise FusetuneError unless the file has the text that the edit was made from."""
    content = path.read_bytes() if path.exists() else None
    if content != (None if edit.before is None else as_bytes(edit.before)):
        raise FusetuneError(
            f"another program changed {edit.file} meanwhile, so nothing was written; run the "
            "command again"
        )


def as_bytes(text: str) -> bytes:
    """Return the bytes of a file's text."""
    return text.encode("utf-8", "surrogateescape")


def _write_new(new: Path, text: str, like: Path | None) -> None:
    """Write a file, synced to disk, with owner, mode and attributes of ``like``, or mode 0644."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o600), "wb") as stream:
        stream.write(as_bytes(text))
        stream.flush()
        if like is None:
            os.fchmod(stream.fileno(), 0o644)
        else:
            state = like.stat()
            os.fchown(stream.fileno(), state.st_uid, state.st_gid)
            shutil.copystat(like, new)
            os.utime(new)  # systemd compares times to detect changed units
        os.fsync(stream.fileno())
