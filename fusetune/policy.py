# SPDX-License-Identifier: GPL-2.0-or-later
"""What may be changed on which mount, and why not."""

import pwd
from collections.abc import Collection

from fusetune.errors import UsageError
from fusetune.knobs import Knob
from fusetune.mounts import Mount

# Mounts that hold no files of their own, or belong to a desktop session.
_LEFT_ALONE = {
    "fuse.lxcfs": "lxcfs shows container limits, not files",
    "fuse.portal": "a desktop portal's documents",
    "fuse.gvfsd-fuse": "a desktop session's bridge to its own services",
    "fuse.kio-fuse": "a desktop session's bridge to its own services",
    "fuse.vmware-vmblock": "drag and drop between host and guest",
    "fuse.xrdp-chansrv": "a remote desktop session's clipboard and drives",
}


def excluded_reason(mount: Mount) -> str | None:
    """Return why fusetune leaves ``mount`` alone by itself, None if it does not.

    An administrator's ``set`` on it is still obeyed.
    """
    return _LEFT_ALONE.get(mount.fstype)


def more_dirty_memory(knob: Knob, value: int) -> bool:
    """Whether ``value`` lets the mount keep more pages dirty than the kernel's default does."""
    if knob.name == "max_ratio":
        return knob.stock is not None and value > knob.stock
    return knob.name == "strict_limit" and value == 0


def refusal(
    mount: Mount, knob: Knob, value: int, allowed_owners: Collection[int] = ()
) -> str | None:
    """Return why ``mount`` must not get ``value``, None if it may.

    The kernel's strict limit keeps an unprivileged user's server, stuck or hostile, from pinning
    the host's memory; only the administrator lifts it, for an owner by name.
    """
    if mount.owner_uid == 0 or mount.owner_uid in allowed_owners:
        return None
    if more_dirty_memory(knob, value):
        return (
            f"{knob.name}={value} would give an unprivileged user's mount (uid {mount.owner_uid}) "
            f"more dirty memory; allow it with --allow-owner {mount.owner_uid}"
        )
    return None


def parse_owners(names: Collection[str]) -> frozenset[int]:
    """Return the uids of users given by name or number. Raises UsageError for an unknown name."""
    uids = set()
    for name in names:
        try:
            uids.add(int(name) if name.isascii() and name.isdigit() else pwd.getpwnam(name).pw_uid)
        except KeyError as error:
            raise UsageError(f"--allow-owner {name}: there is no such user") from error
    return frozenset(uids)
