# SPDX-License-Identifier: GPL-2.0-or-later
"""What may be changed on which mount, and why other changes are refused."""

import fnmatch
import pwd
from collections.abc import Collection, Mapping
from contextlib import suppress

from fusetune.errors import UsageError
from fusetune.knobs import Knob
from fusetune.mounts.mount import Mount

# Mounts without files of their own, or of a desktop session.
_LEFT_ALONE = {
    "fuse.lxcfs": "lxcfs shows container limits, not files",
    "fuse.portal": "a desktop portal's documents",
    "fuse.gvfsd-fuse": "a desktop session's bridge to its own services",
    "fuse.kio-fuse": "a desktop session's bridge to its own services",
    "fuse.vmware-vmblock": "drag and drop between host and guest",
    "fuse.xrdp-chansrv": "a remote desktop session's clipboard and drives",
}


def excluded_reason(mount: Mount, exclude: Collection[str] = ()) -> str | None:
    """Return why fusetune leaves ``mount`` alone by default; None if it does not.

    ``exclude``: patterns of further file system types to leave alone. ``set`` still works on them.
    """
    for pattern in exclude:
        if fnmatch.fnmatchcase(mount.fstype, pattern):
            return f"the configuration excludes {pattern}"
    return _LEFT_ALONE.get(mount.fstype)


def more_dirty_memory(knob: Knob, value: int) -> bool:
    """Whether ``value`` lets the mount keep more pages dirty than the kernel's default does."""
    if knob.name == "max_ratio":
        return knob.stock is not None and value > knob.stock
    return knob.name == "strict_limit" and value == 0


def dirty_share(values: Mapping[str, int]) -> int:
    """Return what a mount with these values may keep dirty, in percent of the host's limit.

    ``values``: by knob. 0 with the kernel's defaults; 100 without strict limit
    (mm/page-writeback.c, balance_dirty_pages()).
    """
    if not values.get("strict_limit", 1):
        return 100
    ratio = values.get("max_ratio", 1)
    return ratio if ratio > 1 else 0


def refusal(
    mount: Mount,
    knob: Knob,
    value: int,
    allowed_owners: Collection[int] = (),
    room: int | None = None,
) -> str | None:
    """Return why ``mount`` must not get ``value``, None if it may.

    The kernel's strict limit keeps an unprivileged user's stuck or hostile server from pinning the
    host's memory. Only the administrator may lift it, for named owners. ``room``: percent of the
    host's dirty limit that other mounts leave; None: no bound.
    """
    if not more_dirty_memory(knob, value):
        return None
    if room is not None and (share := dirty_share({knob.name: value})) > room:
        return (
            f"{knob.name}={value} would let tuned mounts together exceed max_dirty_percent in "
            f"[policy] of fusetune.toml: it needs {share} % of the host's limit, {max(0, room)} % "
            "remain; raise max_dirty_percent, or use 'fusetune set --force'"
        )
    if not mount.owner_known:
        return f"{knob.name}={value} would allow more dirty memory, but {mount.owner_unknown}"
    if mount.owner_uid and mount.owner_uid not in allowed_owners:
        return (
            f"{knob.name}={value} would allow an unprivileged user's mount (uid {mount.owner_uid}) "
            f"more dirty memory; permit it with allow_users in [policy] of fusetune.toml, "
            f"or with --allow-owner {mount.owner_uid}"
        )
    return None


def owners_named(names: Collection[str]) -> frozenset[int]:
    """Return the uids of ``names`` (or numbers); unknown names are ignored."""
    uids: set[int] = set()
    for name in names:
        with suppress(UsageError):
            uids |= parse_owners([name])
    return frozenset(uids)


def parse_owners(names: Collection[str]) -> frozenset[int]:
    """Return the uids of users given by name or number. Raises UsageError for an unknown name."""
    uids = set()
    for name in names:
        try:
            uids.add(int(name) if name.isascii() and name.isdigit() else pwd.getpwnam(name).pw_uid)
        except KeyError as error:
            raise UsageError(f"--allow-owner {name}: there is no such user") from error
    return frozenset(uids)
