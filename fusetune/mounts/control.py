# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount's control files: the control file system, requests in flight, what INIT negotiated."""

import os
import subprocess

from fusetune.host import Host
from fusetune.mounts.mount import CONTROLS, Mount


def control_mounted(host: Host, control: str) -> bool:
    """Whether the control file system is mounted on its place, one of `CONTROLS`."""
    try:
        return os.stat(host.path(control)).st_dev != os.stat(host.path("sys")).st_dev
    except FileNotFoundError:  # its module is not loaded
        return False


def mount_control(host: Host, control: str) -> bool:
    """Mount a control file system on its place if it is absent; return whether it is there now.

    Without it the kernel shows no connection (Documentation/filesystems/fuse.rst). Only root can,
    and only in the initial user namespace; elsewhere nothing happens.
    """
    if control_mounted(host, control):
        return True
    if not os.path.isdir(host.path(control)) or os.geteuid() != 0:
        return False
    kind = CONTROLS[control]
    mounted = subprocess.run(
        ["mount", "-t", kind, kind, host.path(control)], stderr=subprocess.DEVNULL, check=False
    )
    return mounted.returncode == 0


def still_mounted(host: Host, mount: Mount) -> bool:
    """Whether ``mount`` is the same super block as when it was found, as far as its bdi tells."""
    if mount.bdi is None:
        return True
    try:
        return os.stat(host.path(f"sys/class/bdi/{mount.bdi}/")).st_ino == mount.instance
    except FileNotFoundError:
        return False


def waiting(host: Host, mount: Mount) -> int:
    """Return how many requests wait for the server's answer (fusectl's ``waiting``).

    0 where that cannot be told.
    """
    if mount.connection is None:
        return 0
    try:
        # Empty where the connection goes after the file was opened (fs/fuse/control.c).
        return int(host.read(f"{mount.control}/{mount.connection}/waiting") or 0)
    except OSError:
        return 0


def negotiated(host: Host, mount: Mount) -> dict[str, str]:
    """Return what INIT negotiated, by name, as the module fusetuned tells it.

    Empty for other mounts, before INIT is answered, and where it cannot be told.
    """
    if not mount.is_tuned_type or mount.connection is None:
        return {}
    try:
        text = host.read(f"{mount.control}/{mount.connection}/init")
    except OSError:
        return {}
    return {name: rest for name, _, rest in (line.partition(" ") for line in text.splitlines())}
