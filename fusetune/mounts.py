# SPDX-License-Identifier: GPL-2.0-or-later
"""What is mounted: every FUSE mount of this host, found without touching any of them.

A FUSE server may hang, and with it any call on a path in its mount. All that is told here comes
from /proc/self/mountinfo, from the bdi device in sysfs and from the control file system fusectl,
none of which asks the server.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from fusetune.errors import FusetuneError, reason
from fusetune.host import Host

# Stock FUSE, and the module with the published improvements that runs beside it.
FUSE_TYPE = re.compile(r"(fuse|fuseblk|virtiofs|fusetuned|fusetunedblk)(\..*)?", re.DOTALL)
BDI_NAME = re.compile(r"\d+:\d+(-[a-z]+)?")
FUSECTL = "sys/fs/fuse/connections"
FUSETUNEDCTL = "sys/fs/fusetuned/connections"
#: The control file systems by their place.
CONTROLS = {FUSECTL: "fusectl", FUSETUNEDCTL: "fusetunedctl"}


@dataclass(frozen=True)
class Mount:
    """One FUSE super block and where it is mounted.

    ``path``: the first of its mount points; ``also_at``: the others (bind mounts).
    ``bdi``: name of its device in /sys/class/bdi, None where the kernel shows none.
    ``connection``: its folder's name in fusectl (the device number), None where there is none.
    ``owner_uid``, ``owner_gid``: who mounted it; 0 for virtiofs, which only root mounts.
    ``owner_known``: whether that is certain. The kernel prints user_id= as the mount's own user
    namespace has it (fs/fuse/inode.c, fuse_show_options()), where a user's id may be 0; its real
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
    also_at: tuple[str, ...] = ()
    instance: int | None = None

    @cached_property
    def control(self) -> str:
        """Folder of this mount's kind in sysfs that holds a folder for each connection."""
        return FUSETUNEDCTL if self.is_tuned_type else FUSECTL

    @property
    def is_tuned_type(self) -> bool:
        """Whether the module fusetuned serves it, and not the kernel's own FUSE."""
        return self.fstype.startswith("fusetuned")

    @property
    def owner_unknown(self) -> str:
        """Why the owner cannot be told, where it cannot."""
        kind = CONTROLS[self.control]
        return (
            f"who mounted {printable(self.path)} cannot be told without its connection in {kind}; "
            f"mount it: mount -t {kind} {kind} /{self.control}"
        )

    @property
    def allows_other(self) -> bool:
        """Whether users other than the owner, root included, may enter."""
        return "allow_other" in self.options or self.fstype == "virtiofs"

    @property
    def read_only(self) -> bool:
        """Whether the super block or the mount point is read-only."""
        return "ro" in self.options


@dataclass(frozen=True)
class _Line:
    """One line of mountinfo (proc_pid_mountinfo(5))."""

    device: str
    path: str
    options: tuple[str, ...]
    fstype: str
    source: str


def unescape(field: bytes) -> str:
    """Decode a mountinfo field: octal escapes (fs/seq_file.c, mangle_path), any bytes."""
    raw = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 0xFF]), field)
    return os.fsdecode(raw)


def printable(path: str) -> str:
    """Return ``path`` for one line of text: no line break, no control or undecodable byte."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in path)


def shell_word(path: str) -> str:
    """Return ``path`` as a word for a shell line that a user may copy."""
    if path.isprintable():
        return shlex.quote(path)
    return "$'" + "".join(f"\\x{byte:02x}" for byte in os.fsencode(path)) + "'"


@lru_cache(maxsize=4096)  # `watch` reads the same lines again with every mount that comes
def _parse(line: bytes) -> _Line | None:
    fields, _, tail = line.partition(b" - ")
    words, rest = fields.split(b" "), tail.split(b" ")
    if len(words) < 6 or len(rest) < 3:
        return None
    return _Line(
        device=words[2].decode(),
        path=unescape(words[4]),
        options=tuple(unescape(words[5] + b"," + rest[2]).split(",")),
        fstype=unescape(rest[0]),
        source=unescape(rest[1]),
    )


def _mountinfo(host: Host, pid: str = "self") -> list[_Line]:
    """Return every mount of a process's mount namespace; of a stack, the topmost comes last."""
    try:
        with open(host.path(f"proc/{pid}/mountinfo"), "rb") as stream:
            return [line for line in map(_parse, stream.read().split(b"\n")) if line]
    except OSError as error:
        raise FusetuneError(f"cannot read /proc/{pid}/mountinfo: {reason(error)}") from error


def fstypes(host: Host, pid: str) -> set[str]:
    """Return the types of all file systems that are mounted where a process is.

    Raises FusetuneError where that cannot be read.
    """
    return {line.fstype for line in _mountinfo(host, pid)}


def _option_number(options: Sequence[str], name: str) -> int:
    for option in options:
        key, _, value = option.partition("=")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _with_kernel_objects(host: Host, mount: Mount) -> Mount:
    """Add bdi, instance and connection; a mount that vanishes meanwhile simply has none."""
    major, minor = (int(part) for part in mount.device.split(":"))
    # fuse_bdi_init() (fs/fuse/inode.c) adds the suffix for mounts of a block device.
    name = mount.device + ("-" + mount.fstype.partition(".")[0] if "blk" in mount.fstype else "")
    bdi = instance = None
    try:
        instance = os.stat(host.path(f"sys/class/bdi/{name}/")).st_ino
        bdi = name
    except FileNotFoundError:
        pass
    # fuse_ctl_add_conn() (fs/fuse/control.c) prints the kernel's dev_t: 20 bits of minor.
    number = str(major << 20 | minor)
    mount = replace(mount, bdi=bdi, instance=instance)
    try:
        uid, gid = host.owner(f"{mount.control}/{number}")
    except FileNotFoundError:
        return mount
    return replace(mount, connection=number, owner_uid=uid, owner_gid=gid, owner_known=True)


def discover(host: Host) -> list[Mount]:
    """Return every FUSE super block in this mount namespace, in the order of mounting.

    Bind mounts of one super block are one `Mount`. Mounts the control file systems first that
    these mounts need, where one is absent and we are root. Raises FusetuneError where /proc cannot
    be read.
    """
    return _super_blocks(host, _mountinfo(host))


def _super_blocks(host: Host, lines: Iterable[_Line]) -> list[Mount]:
    found: dict[str, Mount] = {}
    for line in lines:
        if not FUSE_TYPE.fullmatch(line.fstype):
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
            owner_uid=_option_number(line.options, "user_id"),
            owner_gid=_option_number(line.options, "group_id"),
            owner_known=line.fstype == "virtiofs",
        )
    if host.real:
        for control in {mount.control for mount in found.values()}:
            mount_control(host, control)
    return [_with_kernel_objects(host, mount) for mount in found.values()]


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


def points_of(host: Host, types: re.Pattern[str]) -> list[str]:
    """Return where file systems are mounted whose whole type ``types`` matches."""
    lines = [line for line in _mountinfo(host) if types.fullmatch(line.fstype)]
    return list(dict.fromkeys(line.path for line in lines))


def _lexical(path: str, points: frozenset[str]) -> str:
    """Resolve symbolic links in ``path`` without looking at or beyond any FUSE mount point."""
    done = "/"
    # Not normalised: what ".." means depends on the links before it.
    todo = os.path.join(os.getcwd(), path).split("/")[::-1]
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
        if links > 40:  # as the kernel, MAXSYMLINKS
            return os.path.abspath(path)
        if target.startswith("/"):
            done = "/"
        todo.extend(target.split("/")[::-1])
    return done


def find(host: Host, name: str) -> Mount:
    """Return the mount that ``name`` means: a mount point or a bdi name such as ``0:43``.

    Where several are stacked on one point, the topmost (the last mounted). Raises FusetuneError
    that says what stands there instead.
    """
    lines = _mountinfo(host)
    mounts = _super_blocks(host, lines)
    if BDI_NAME.fullmatch(name):
        for mount in mounts:
            if name in (mount.bdi, mount.device):
                return mount
        raise FusetuneError(f"no FUSE mount has the bdi {name}; 'fusetune list' shows them")
    points = frozenset(path for mount in mounts for path in (mount.path, *mount.also_at))
    path = _lexical(name, points)
    top = next((line for line in reversed(lines) if line.path == path), None)
    for mount in mounts:
        if top and mount.device == top.device:
            return replace(mount, path=path, also_at=_others(mount, path))
    if path in points and top:
        raise FusetuneError(
            f"the FUSE mount at {printable(path)} is covered by another mount ({top.fstype}); "
            "name it by its bdi, which 'fusetune list' shows"
        )
    for point in sorted(points, key=len, reverse=True):
        if path.startswith(point + "/"):
            raise FusetuneError(
                f"{printable(name)} lies in a FUSE mount but is not its mount point; "
                f"use {printable(point)}"
            )
    if not os.path.lexists(path):
        raise FusetuneError(
            f"{printable(name)} does not exist; 'fusetune list' shows the FUSE mounts"
        )
    raise FusetuneError(
        f"{printable(name)} is not a FUSE mount point; 'fusetune list' shows those there are"
    )


def _others(mount: Mount, path: str) -> tuple[str, ...]:
    return tuple(point for point in (mount.path, *mount.also_at) if point != path)


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


def settled(host: Host, mount: Mount) -> dict[str, str]:
    """Return what INIT settled on, by name, as the module fusetuned tells it.

    Empty for other mounts, before INIT is answered, and where it cannot be told.
    """
    if not mount.is_tuned_type or mount.connection is None:
        return {}
    try:
        text = host.read(f"{mount.control}/{mount.connection}/init")
    except OSError:
        return {}
    return {name: rest for name, _, rest in (line.partition(" ") for line in text.splitlines())}
