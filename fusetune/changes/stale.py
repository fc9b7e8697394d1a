# SPDX-License-Identifier: GPL-2.0-or-later
"""Removes journals, notes and locks of mounts that are gone."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fusetune.changes.journal import key_of, unpack
from fusetune.changes.lock import Busy, Lock, clear_lock, instance_in
from fusetune.changes.overrides import read_overrides
from fusetune.errors import FusetuneError, as_root, do_for_each, reason
from fusetune.files import files_in, remove
from fusetune.host import Host
from fusetune.mounts.control import bdis_shown


def remove_stale(host: Host, key: str = "*") -> None:
    """Remove journals, notes and locks of mounts that are gone: nothing remains to undo.

    ``key``: of one mount (`key_of`). Those of mounts in other mount namespaces are kept, because
    their bdi exists. Without sysfs all are kept: no bdi exists then. Raises FusetuneError for the
    first file that cannot be examined or removed, after all.
    """
    if not bdis_shown(host):
        return

    def one(path: Path) -> None:
        try:
            with suppress(FileNotFoundError):  # removed or released meanwhile
                _remove_if_stale(host, path)
        except OSError as error:
            raise FusetuneError(f"cannot read {path}: {reason(error)}{as_root(error)}") from error

    undo, run = host.state_dir / "undo", host.run_dir
    places = (undo, "journal"), (run, "left"), (run, "lock")
    do_for_each((file for where, kind in places for file in files_in(where, f"{key}.{kind}")), one)


def _remove_if_stale(host: Host, path: Path) -> None:
    if path.suffix == ".lock":
        if path.stem != key_of(None) and _is_of_a_gone_mount(host, path):
            clear_lock(host, path)
    elif path.suffix == ".left":
        _remove_unless_alive(host, path, read_overrides)
    else:
        with suppress(ValueError, KeyError):
            # ValueError: damaged; the next change of its mount reports that.
            _remove_unless_alive(host, path, _head)


def _instance_now(host: Host, path: Path) -> int | None:
    """Return `Mount.instance` of the bdi that our file ``path`` is named after, None if gone."""
    try:
        return os.stat(host.path(f"sys/class/bdi/{path.stem}/")).st_ino
    except FileNotFoundError:
        return None


def _is_of_a_gone_mount(host: Host, lock: Path) -> bool:
    now = _instance_now(host, lock)
    return now is None or instance_in(lock) not in ("", str(now))


def _head(journal: Path) -> Mapping[str, Any]:
    """Return what the first line of a journal says about its mount.

    Raises ValueError if it is damaged, FileNotFoundError if it was removed meanwhile.
    """
    return unpack(journal.read_bytes().partition(b"\n")[0])


def _remove_unless_alive(host: Host, path: Path, read: Callable[[Path], Mapping[str, Any]]) -> None:
    """Remove our file ``path``, about which ``read`` tells, if its mount is gone."""
    if _is_alive(host, path, read(path)):
        return
    # Its name may belong to another mount by now, whose file may replace this one.
    with suppress(Busy), Lock(host, None, path.stem, in_passing=True):
        if not _is_alive(host, path, read(path)):
            remove(path)


def _is_alive(host: Host, path: Path, about: Mapping[str, Any]) -> bool:
    instance = about["instance"]
    if about.get("boot_id", host.boot_id) != host.boot_id:
        return False
    return instance is None or instance == _instance_now(host, path)
