# SPDX-License-Identifier: GPL-2.0-or-later
"""The real traffic of a mount, observed without affecting its requests."""

from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.profile.bpftrace import watch_by_bpftrace
from fusetune.profile.module import watch_by_module
from fusetune.profile.traffic import Traffic
from fusetune.profile.watching import Progress


def watch(host: Host, mount: Mount, seconds: float, progress: Progress) -> Traffic:
    """Observe a mount for ``seconds``, or until a signal arrives or the mount is gone.

    The module fusetuned counts the requests of its own mounts; bpftrace those of the kernel's FUSE.
    Raises FusetuneError, in one line with the remedy, if neither can.
    """
    by = watch_by_module if mount.is_tuned_type else watch_by_bpftrace
    return by(host, mount, seconds, progress)
