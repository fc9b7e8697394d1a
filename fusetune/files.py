# SPDX-License-Identifier: GPL-2.0-or-later
"""Atomic replacement of files, also in directories that other users may change."""

import errno
import fnmatch
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from fusetune.errors import FusetuneError, as_root, reason

_MOST_LINKS = 40  # the kernel's MAXSYMLINKS (include/linux/namei.h)


def write_whole(path: Path, text: str) -> None:
    """Replace the file ``path`` with ``text`` in UTF-8, atomically and synced to disk.

    A file of this user keeps its mode, and with root also its group; a new one has mode 0644,
    modified by the umask. Its directory is opened once, by
    `open_directory`; everything else uses that descriptor and an unpredictable temporary name.
    Raises FusetuneError, also if ``path`` exists and is not a regular file.
    """
    content = text.encode()
    try:
        directory = open_directory(path.parent)
    except OSError as error:
        raise FusetuneError(f"cannot write {path}: {reason(error)}") from error
    new = f".fusetune-{secrets.token_hex(8)}"
    try:
        _write_new(directory, new, content, _regular(directory, path.name))
        os.rename(new, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    except OSError as error:
        with suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise FusetuneError(f"cannot write {path}: {reason(error)}") from error
    finally:
        os.close(directory)


def _regular(directory: int, name: str) -> os.stat_result | None:
    """Return the state of a file, None without one. Raises OSError if it is not a regular file."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EEXIST, "it exists and is not a regular file; choose another name")
    return found


def _write_new(directory: int, name: str, content: bytes, old: os.stat_result | None) -> None:
    """Write a file, synced to disk, with the mode of ``old`` if that is this user's."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o644, dir_fd=directory), "wb") as stream:
        if old and old.st_uid == os.geteuid():
            if os.geteuid() == 0:
                os.fchown(stream.fileno(), -1, old.st_gid)
            os.fchmod(stream.fileno(), old.st_mode & 0o755)  # group bits may be an ACL's mask
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def open_directory(path: Path) -> int:
    """Return a descriptor of the directory ``path``, which the caller closes.

    Symbolic links on the way are only followed if root or this user owns them: others could
    redirect root with them. Raises OSError.
    """
    here = os.open(".", os.O_PATH | os.O_CLOEXEC)
    todo = list(reversed(path.parts))
    links = 0
    proc = os.stat("/proc").st_dev
    try:
        while todo:
            part = todo.pop()
            last, here = here, _beyond(here, part)
            found = os.fstat(here)
            if not stat.S_ISLNK(found.st_mode):
                os.close(last)
                continue
            link, here = here, last
            try:
                links += 1
                target = _target(link, found.st_uid, links)
                if found.st_dev == proc:
                    # readlink of /proc/PID/root does not return its target.
                    here = os.open(part, os.O_PATH | os.O_CLOEXEC, dir_fd=last)
                    os.close(last)
                else:
                    todo.extend(reversed(target.parts))
            finally:
                os.close(link)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
    finally:
        os.close(here)


def _beyond(here: int, part: str) -> int:
    return os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)


def _target(link: int, owner: int, links: int) -> Path:
    if owner not in (0, os.geteuid()):
        raise OSError(errno.EPERM, f"a symbolic link on the way belongs to uid {owner}")
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return Path(os.readlink("", dir_fd=link))


def files_in(directory: Path, pattern: str) -> list[Path]:
    """Return the files whose names match ``pattern``, by name; none without the directory.

    Raises FusetuneError if it cannot be read; `Path.glob` would then find nothing in some cases.
    """
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise FusetuneError(f"cannot read {directory}: {reason(error)}{as_root(error)}") from error
    return [directory / name for name in sorted(fnmatch.filter(names, pattern))]


def remove(path: Path) -> None:
    """Remove a file if there is one. Raises FusetuneError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise FusetuneError(f"cannot remove {path}: {reason(error)}{as_root(error)}") from error


def sync_directory(directory: Path) -> None:
    """Sync creations, renames and removals in ``directory`` to disk. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
