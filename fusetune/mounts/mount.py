# SPDX-License-Identifier: GPL-2.0-or-later
"""A FUSE mount, as the kernel describes it."""

import re
from dataclasses import dataclass
from functools import cached_property

from fusetune.text import printable

# Stock FUSE, and the module with the published improvements that runs beside it.
_FUSE_TYPE = re.compile(r"(fuse|fuseblk|virtiofs|fusetuned|fusetunedblk)(\..*)?", re.DOTALL)
BDI_NAME = re.compile(r"\d+:\d+(-[a-z]+)?")
FUSECTL = "sys/fs/fuse/connections"
FUSETUNEDCTL = "sys/fs/fusetuned/connections"
#: The control file systems by mount point.
CONTROLS = {FUSECTL: "fusectl", FUSETUNEDCTL: "fusetunedctl"}


def is_fuse(fstype: str) -> bool:
    """Whether a file system of this type is a FUSE mount."""
    return _FUSE_TYPE.fullmatch(fstype) is not None


def control_of(fstype: str) -> str:
    """Return the mount point of the control file system for mounts of a FUSE type."""
    return FUSETUNEDCTL if fstype.startswith("fusetuned") else FUSECTL


@dataclass(frozen=True)
class Mount:
    """One FUSE super block and where it is mounted.

    ``path``: the mount point by which it was named, otherwise the first one; ``also_at``: the
    others (bind mounts); ``first``: the first one, if it is not ``path``.
    ``bdi``: name of its device in /sys/class/bdi, None if the kernel shows none.
    ``connection``: name of its directory in fusectl (the device number), None if there is none.
    ``options``: of mount and super block, see `Line`; ``point_read_only``: whether its first mount
    point is read-only here.
    ``owner_uid``, ``owner_gid``: who mounted it; 0 for virtiofs, which only root mounts.
    ``owner_known``: whether that is certain. The kernel prints user_id= relative to the mount's own
    user namespace (fs/fuse/inode.c, fuse_show_options()), where a user's ID may be 0; its real
    owner has the connection's directory in fusectl (fs/fuse/control.c, fuse_ctl_add_dentry()).
    ``instance``: identity of this super block's bdi in this boot. Device numbers are reused at
    once, kernfs inode numbers are not (fs/kernfs/dir.c, __kernfs_new_node); None without a bdi.
    """

    path: str
    fstype: str
    source: str
    device: str
    bdi: str | None = None
    connection: str | None = None
    owner_uid: int = 0
    owner_gid: int = 0
    owner_known: bool = True
    options: tuple[str, ...] = ()
    point_read_only: bool = False
    also_at: tuple[str, ...] = ()
    instance: int | None = None
    first: str | None = None

    @property
    def first_path(self) -> str:
        """The first of its mount points, under which files about it are kept."""
        return self.first or self.path

    @cached_property
    def control(self) -> str:
        """The directory in sysfs that holds one directory for each connection of this kind."""
        return control_of(self.fstype)

    @property
    def is_tuned_type(self) -> bool:
        """Whether the module fusetuned serves it instead of the kernel's own FUSE."""
        return self.fstype.startswith("fusetuned")

    @property
    def owner_unknown(self) -> str:
        """A sentence for mounts whose owner is unknown: why, and the remedy."""
        kind = CONTROLS[self.control]
        return (
            f"the owner of {printable(self.path)} is unknown without its connection in {kind}; "
            f"mount it: mount -t {kind} {kind} /{self.control}"
        )

    @property
    def allows_other(self) -> bool:
        """Whether users other than the owner, root included, may enter."""
        return "allow_other" in self.options or self.fstype == "virtiofs"

    @property
    def read_only(self) -> bool:
        """Whether the super block or the mount point is read-only."""
        return self.point_read_only or "ro" in self.options
