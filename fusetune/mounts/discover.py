# SPDX-License-Identifier: GPL-2.0-or-later
"""Every FUSE mount of this host, found without touching any of them.

A FUSE server may hang, and with it any call on a path in its mount. Everything here comes from
/proc/self/mountinfo, from the bdi device in sysfs and from the control file system fusectl, none of
which contacts the server.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import BDI_NAME, Mount, is_fuse
from fusetune.mounts.mountinfo import Line, mountinfo
from fusetune.mounts.tree import MountTree
from fusetune.text import printable


def _option_number(options: Sequence[str], name: str) -> int:
    for option in options:
        key, _, value = option.partition("=")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _with_kernel_objects(host: Host, mount: Mount) -> Mount:
    """Add bdi, instance and connection; a mount that vanished meanwhile has none."""
    major, minor = (int(part) for part in mount.device.split(":"))
    # fuse_bdi_init() (fs/fuse/inode.c) adds the suffix for mounts of a block device.
    kind = mount.fstype.partition(".")[0]
    name = mount.device + (f"-{kind}" if "blk" in kind else "")
    bdi = instance = None
    try:
        instance = os.stat(host.path(f"sys/class/bdi/{name}/")).st_ino
        bdi = name
    except FileNotFoundError:
        pass
    # fuse_ctl_add_conn() (fs/fuse/control.c) prints the kernel's dev_t: 20 bits of minor.
    number = str(major << 20 | minor)
    try:
        uid, gid = host.owner(f"{mount.control}/{number}")
    except FileNotFoundError:
        return replace(mount, bdi=bdi, instance=instance)
    return replace(
        mount,
        bdi=bdi,
        instance=instance,
        connection=number,
        owner_uid=uid,
        owner_gid=gid,
        owner_known=True,
    )


def discover(host: Host) -> list[Mount]:
    """Return every FUSE super block in this mount namespace, in the order of mounting.

    Bind mounts of one super block are one `Mount`. A mount has a connection only if its control
    file system is mounted, see `mount_controls`. Raises FusetuneError if /proc cannot be read.
    """
    return mounts_of(host, mountinfo(host))


def mounts_of(host: Host, lines: Iterable[Line]) -> list[Mount]:
    """Return the FUSE super blocks among ``lines``, as `discover` does."""
    found: dict[str, Mount] = {}
    for line in lines:
        if not is_fuse(line.fstype):
            continue
        if known := found.get(line.device):
            if line.path not in (known.path, *known.also_at):  # a sandbox may list one twice
                found[line.device] = replace(known, also_at=(*known.also_at, line.path))
            continue
        found[line.device] = Mount(
            path=line.path,
            fstype=line.fstype,
            source=line.source,
            device=line.device,
            options=line.options,
            point_read_only=line.read_only,
            owner_uid=_option_number(line.options, "user_id"),
            owner_gid=_option_number(line.options, "group_id"),
            owner_known=line.fstype == "virtiofs",
        )
    return [_with_kernel_objects(host, mount) for mount in found.values()]


def lexical(path: str, points: frozenset[str]) -> str:
    """Resolve symbolic links in ``path`` without accessing ``points`` or paths below them."""
    done = "/"
    # Not normalised: what ".." means depends on the links before it.
    todo = _absolute(path).split("/")[::-1]
    links = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = os.path.dirname(done)
            continue
        here = os.path.join(done, part)
        if here in points:
            return os.path.normpath(os.path.join(here, *todo[::-1]))
        try:
            target = os.readlink(here)
        except OSError:
            done = here
            continue
        links += 1
        if links > 40:  # the kernel's MAXSYMLINKS
            return os.path.abspath(path)
        if target.startswith("/"):
            done = "/"
        todo.extend(target.split("/")[::-1])
    return done


def _absolute(path: str) -> str:
    if path.startswith("/"):
        return path
    try:
        return os.path.join(os.getcwd(), path)
    except FileNotFoundError as error:
        raise FusetuneError(
            f"the working directory was removed, so {printable(path)} leads nowhere; "
            "give an absolute path"
        ) from error


def find(host: Host, name: str) -> Mount:
    """Return the mount called ``name``: a mount point or a bdi name such as ``0:43``.

    If several are mounted on one point, it is the topmost one. Raises FusetuneError that
    says what is there instead.
    """
    lines = mountinfo(host)
    mounts = mounts_of(host, lines)
    if BDI_NAME.fullmatch(name):
        for mount in mounts:
            if name in (mount.bdi, mount.device):
                return mount
        raise FusetuneError(f"no FUSE mount has the bdi {name}; 'fusetune list' shows them")
    points = frozenset(path for mount in mounts for path in (mount.path, *mount.also_at))
    path = lexical(name, points)
    # Since Linux 6.8, lines are in order of creation, so a moved mount may cover a later one.
    end = MountTree(lines).leads_to(path)
    top = end if end and end.path == path else None
    for mount in mounts:
        if top and mount.device == top.device:
            first = mount.path if mount.path != path else None
            return replace(mount, path=path, also_at=_others(mount, path), first=first)
    if path in points and top:
        raise FusetuneError(
            f"the FUSE mount at {printable(path)} is covered by another mount ({top.fstype}); "
            "name it by its bdi, which 'fusetune list' shows"
        )
    for point in sorted(points, key=len, reverse=True):
        if path.startswith(point + "/"):
            raise FusetuneError(
                f"{printable(name)} is in a FUSE mount but is not its mount point; "
                f"use {printable(point)}"
            )
    if not os.path.lexists(path):
        raise FusetuneError(
            f"{printable(name)} does not exist; 'fusetune list' shows the FUSE mounts"
        )
    raise FusetuneError(
        f"{printable(name)} is not a FUSE mount point; 'fusetune list' shows the FUSE mounts"
    )


def _others(mount: Mount, path: str) -> tuple[str, ...]:
    return tuple(point for point in (mount.path, *mount.also_at) if point != path)
