# SPDX-License-Identifier: GPL-2.0-or-later
"""Where fio runs: in a separate root, in which only the scratch directory is writable.

If fio only reads existing files, it sees only these files, or the mount if it opens many of them,
and can write nothing. The process that holds the directory or the files creates the namespaces;
nsenter(1) and setpriv(1) start fio in them.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fusetune import syscalls
from fusetune.errors import FusetuneError, reason

_PLACE, _TREE = "scratch", "mount"
# What a program needs to start. Links such as /lib -> usr/lib are recreated.
_TREES = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("dev/null", "dev/zero", "dev/random", "dev/urandom")
_FILES = ("etc/ld.so.cache", *_DEVICES)
_SCRATCH_ATTRIBUTES = (
    syscalls.MOUNT_ATTR_NOSYMFOLLOW
    | syscalls.MOUNT_ATTR_NOSUID
    | syscalls.MOUNT_ATTR_NODEV
    | syscalls.MOUNT_ATTR_NOEXEC
)
_READ_ONLY = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID


@dataclass(frozen=True)
class Rights:
    """The user that fio runs as; ``capabilities``: those it keeps, in setpriv(1)'s spelling."""

    uid: int
    gid: int
    capabilities: str = "-all"


#: Debian's and Fedora's user and group "nobody".
NOBODY = Rights(65534, 65534)
ROOT = Rights(0, 0)
#: For mounts whose server shows other owners than the creators of files.
ROOT_OVER_MODES = Rights(0, 0, "-all,+dac_override")
#: For files that only their owner may read.
ROOT_READING = Rights(0, 0, "-all,+dac_read_search")


@dataclass(frozen=True)
class ToRead:
    """What fio may read: ``files`` is descriptors of single files by the name that each gets.

    ``links``: paths beneath the directory ``top``, a descriptor, by the name that each gets. fio
    then sees the whole file system of ``top``, but not what is mounted there.
    """

    files: Mapping[str, int]
    top: int
    links: Mapping[str, str]


def own_namespaces() -> bool:
    """Put this process into new mount, network and IPC namespaces; return whether it could.

    Users other than root get them in a user namespace; False if this host does not allow that.
    Raises FusetuneError if root may not create them.
    """
    uid, gid = os.geteuid(), os.getegid()
    flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC
    try:
        syscalls.unshare(flags if uid == 0 else flags | syscalls.CLONE_NEWUSER)
    except OSError as error:
        if uid:
            return False
        raise FusetuneError(
            f"cannot create a mount namespace for fio: {reason(error)}; run fusetune where root "
            "has CAP_SYS_ADMIN, as on the host itself"
        ) from error
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", uid), ("gid_map", gid)):
            line = text if isinstance(text, str) else f"{text} {text} 1"
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(line)
    here = os.open("/", os.O_PATH | os.O_DIRECTORY)
    _to_the_root_of_all()
    syscalls.propagate("/", syscalls.MS_PRIVATE)
    os.fchdir(here)
    os.chroot(".")
    os.close(here)
    return True


def confine(scratch: int | ToRead, program: str) -> None:
    """Make fio's root from ``scratch`` and what ``program`` needs.

    ``scratch``: a descriptor of the directory, or what is read. The new root becomes that of this
    process, which has called `own_namespaces`. Raises OSError.
    """
    trees = _trees(scratch)
    files, links = set(_FILES), {}
    if isinstance(scratch, ToRead):
        files.update(f"{_PLACE}/{name}" for name in scratch.files)
        links = {f"{_PLACE}/{name}": f"{_TREE}/{path}" for name, path in scratch.links.items()}
    where = os.path.dirname(program).strip("/")
    for path in (*_TREES, *_FILES, *(() if where.startswith("usr/") else (where,))):
        if os.path.islink(f"/{path}"):
            links[path] = os.readlink(f"/{path}")
        elif os.path.exists(f"/{path}"):
            trees[path] = _read_only(path)
    _to_the_root_of_all()
    root = syscalls.new_tmpfs(mode="755", size="4m")  # a link to a long path takes a page
    syscalls.attach(root, syscalls.AT_FDCWD, "/")
    for path, tree in trees.items():
        _make_place(root, path, is_file=path in files)
        syscalls.attach(tree, root, path)
        os.close(tree)
    for path, target in links.items():
        os.symlink(target, path, dir_fd=root)
    syscalls.take_as_root(root)
    syscalls.set_attributes(root, _READ_ONLY)
    os.close(root)


def _trees(scratch: int | ToRead) -> dict[str, int]:
    """Return descriptors of the mounts in fio's root that it works on, by path."""
    if isinstance(scratch, int):
        trees, more = {_PLACE: syscalls.clone_tree(scratch)}, 0
    else:
        files = {**scratch.files, **({_TREE: scratch.top} if scratch.links else {})}
        trees = {f"{_PLACE}/{name}": syscalls.clone_tree(fd) for name, fd in files.items()}
        more = syscalls.MOUNT_ATTR_RDONLY
    for tree in trees.values():
        syscalls.set_attributes(tree, _SCRATCH_ATTRIBUTES | more)
    return trees


def _read_only(path: str) -> int:
    tree = syscalls.clone_tree(syscalls.AT_FDCWD, f"/{path}", recursive=True)
    attributes = _READ_ONLY | (0 if path in _DEVICES else syscalls.MOUNT_ATTR_NODEV)
    syscalls.set_attributes(tree, attributes, recursive=True)
    return tree


def _to_the_root_of_all() -> None:
    """Leave a chroot, because pivot_root(2) does not work in one."""
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    syscalls.enter_namespace(namespace, syscalls.CLONE_NEWNS)
    os.close(namespace)


def _make_place(root: int, path: str, *, is_file: bool) -> None:
    parts = path.split("/")
    for count in range(1, len(parts) + (not is_file)):
        with suppress(FileExistsError):
            os.mkdir("/".join(parts[:count]), dir_fd=root)
    if is_file:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=root))


def command(pid: int, confined: bool, rights: Rights | None, words: Sequence[str]) -> list[str]:
    """Return the command line that runs ``words`` in the scratch directory.

    ``pid``: the process that holds the directory or files; ``confined``: whether in namespaces,
    otherwise with it as working directory. ``rights`` None: those of this process's user. Started
    processes die with this process.
    """
    limited = ["setpriv", "--pdeathsig=KILL", "--no-new-privs", "--inh-caps=-all"]
    if not confined:
        return [*limited, "--", "env", f"--chdir=/proc/{pid}/cwd", "--", *words]
    entered = ["nsenter", f"--target={pid}", "--mount", "--net", "--ipc"]
    capabilities = rights.capabilities if rights else "-all"
    limited += ["--ambient-caps=-all", f"--bounding-set={capabilities}"]
    if rights:
        limited += [f"--reuid={rights.uid}", f"--regid={rights.gid}", "--clear-groups"]
    else:
        entered += ["--user", "--preserve-credentials"]
    return [*entered, "--", *limited, "--", "env", f"--chdir=/{_PLACE}", "--", *words]
