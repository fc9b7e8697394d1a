# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount's control files: the control file system, requests in flight, what INIT negotiated."""

import os
import subprocess
from collections.abc import Iterable

from fusetune.host import Host
from fusetune.mounts.mount import CONTROLS, Mount, control_of, is_fuse
from fusetune.mounts.mountinfo import Line, mountinfo


def control_mounted(host: Host, control: str) -> bool:
    """Whether this control file system of `CONTROLS` is mounted."""
    try:
        return os.stat(host.path(control)).st_dev != os.stat(host.path("sys")).st_dev
    except FileNotFoundError:  # its module is not loaded
        return False


def mount_controls(host: Host, lines: Iterable[Line] | None = None) -> None:
    """Mount the missing control file systems of this host's FUSE mounts.

    ``lines``: those of mountinfo that count; by default it is read. Without the control file
    systems the kernel shows no connection (Documentation/filesystems/fuse.rst). Only root in the
    initial user namespace can mount them; for others nothing happens. Raises FusetuneError if
    /proc cannot be read.
    """
    if not host.real or os.geteuid():
        return
    if lines is None:
        lines = mountinfo(host)
    for control in {control_of(line.fstype) for line in lines if is_fuse(line.fstype)}:
        if control_mounted(host, control) or not os.path.isdir(host.path(control)):
            continue
        kind = CONTROLS[control]
        command = ["mount", "-t", kind, kind, host.path(control)]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def bdis_shown(host: Host) -> bool:
    """Whether the kernel shows bdis: without sysfs, a mount cannot be told from an earlier one."""
    return os.path.isdir(host.path("sys/class/bdi"))


def still_mounted(host: Host, mount: Mount) -> bool:
    """Whether ``mount`` is still the super block that was found, according to its bdi."""
    if mount.bdi is None:
        return True
    try:
        return os.stat(host.path(f"sys/class/bdi/{mount.bdi}/")).st_ino == mount.instance
    except FileNotFoundError:
        return False


def waiting(host: Host, mount: Mount) -> int:
    """Return how many requests wait for the server's reply (fusectl's ``waiting``).

    0 if unknown.
    """
    return waiting_if_known(host, mount) or 0


def waiting_if_known(host: Host, mount: Mount) -> int | None:
    """Return how many requests wait for the server's reply, None if unknown."""
    if mount.connection is None:
        return None
    try:
        # Empty if the connection ended after the file was opened (fs/fuse/control.c).
        return int(host.read(f"{mount.control}/{mount.connection}/waiting") or 0)
    except OSError:
        return None


def negotiated(host: Host, mount: Mount) -> dict[str, str]:
    """Return what INIT negotiated, by name, as the module fusetuned shows it.

    Empty for other mounts, before the reply to INIT, or if it cannot be read.
    """
    if not mount.is_tuned_type or mount.connection is None:
        return {}
    try:
        text = host.read(f"{mount.control}/{mount.connection}/init")
    except OSError:
        return {}
    return {name: rest for name, _, rest in (line.partition(" ") for line in text.splitlines())}
