# SPDX-License-Identifier: GPL-2.0-or-later
"""What files keep for mounts, before and after a command."""

from dataclasses import dataclass
from pathlib import Path

from fusetune.desired.results import Unusable, all_saved, result_files, saved_for, saved_path
from fusetune.host import Host
from fusetune.mounts.mount import Mount


@dataclass(frozen=True)
class Remembered:
    """Values in ``file`` by knob, before and after; None: nothing about the mount."""

    file: Path
    before: dict[str, int] | None
    after: dict[str, int] | None


def kept_for(host: Host, mount: Mount) -> list[Remembered]:
    """Return what is saved for ``mount`` and would be removed, if anything."""
    file = saved_path(host, mount)
    return [Remembered(file, saved_values(host, mount), None)] if file.exists() else []


def all_kept(host: Host) -> list[Remembered]:
    """Return what is saved for any mount and would be removed."""
    values = {file: saved.values for file, saved in all_saved(host)}
    return [Remembered(file, values.get(file), None) for file in result_files(host)]


def saved_values(host: Host, mount: Mount) -> dict[str, int] | None:
    """Return the saved values for ``mount``, None if there are none or they cannot be read."""
    try:
        saved = saved_for(host, mount)
    except Unusable:
        return None
    return saved.values if saved else None
