# SPDX-License-Identifier: GPL-2.0-or-later
"""Linux system calls that Python 3.11 does not offer: openat2, mounts, namespaces and privileges.

Numbers of system calls from 424 on are the same on all architectures except alpha (uapi
asm-generic/unistd.h). Each function raises OSError with the kernel's error number.
"""

import ctypes
import os
import signal
import struct
from collections.abc import Mapping

#: uapi linux/openat2.h
RESOLVE_NO_XDEV, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x01, 0x04, 0x08
#: uapi linux/mount.h
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
MOUNT_ATTR_NOSYMFOLLOW = 0x200000
MS_PRIVATE, MS_SLAVE = 1 << 18, 1 << 19
#: uapi linux/sched.h
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x8000000, 0x10000000, 0x40000000
CLONE_NEWPID = 0x20000000
#: uapi linux/fcntl.h
AT_FDCWD = -100
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT = 428, 429, 430, 431, 432
_OPENAT2, _MOUNT_SETATTR, _CACHESTAT = 437, 442, 451
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH, _FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC = 1, 4, 1, 1
_FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 1, 6
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8  # sys/mount.h
_PR_SET_PDEATHSIG, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 1, 23, 24  # uapi linux/prctl.h
_PR_SET_NO_NEW_PRIVS = 38
_AT_STATX_DONT_SYNC = 0x4000  # uapi linux/fcntl.h
_STATX_TYPE = 1
# struct statx, uapi linux/stat.h
_STATX_BYTES, _DEVICE_NUMBER, _DEVICE_BELOW = 256, 128, 136
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _call(number: int, *arguments: int | bytes | ctypes.Structure | None) -> int:
    words = [
        ctypes.c_long(one) if isinstance(one, int) else _pointer(one)
        for one in (number, *arguments)
    ]
    return _checked(_LIBC.syscall(*words))


def _pointer(argument: bytes | ctypes.Structure | None) -> object:
    if isinstance(argument, ctypes.Structure):
        return ctypes.byref(argument)
    return ctypes.c_char_p(argument)


def openat2(directory: int, path: str, flags: int, resolve: int, mode: int = 0) -> int:
    """Open ``path`` from the descriptor ``directory`` under the restrictions ``resolve``.

    openat2(2). Returns a descriptor that is closed on exec.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)
    return _call(_OPENAT2, directory, os.fsencode(path), how, ctypes.sizeof(how))


def clone_tree(directory: int, path: str = "", *, recursive: bool = False) -> int:
    """Return a descriptor of a detached bind mount; ``path`` "": ``directory`` itself."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH
    flags |= _AT_RECURSIVE if recursive else 0
    return _call(_OPEN_TREE, directory, os.fsencode(path), flags)


def attach(mount: int, directory: int, path: str) -> None:
    """Attach a detached mount at ``path``, relative to the descriptor ``directory``."""
    _call(_MOVE_MOUNT, mount, b"", directory, os.fsencode(path), _MOVE_MOUNT_F_EMPTY_PATH)


def set_attributes(mount: int, attributes: int, *, recursive: bool = False) -> None:
    """Set MOUNT_ATTR_ bits of the mount that is open as ``mount``."""
    how = _MountAttr(attributes, 0, 0, 0)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _call(_MOUNT_SETATTR, mount, b"", flags, how, ctypes.sizeof(how))


def propagate(path: str, kind: int) -> None:
    """Set the propagation of mounts between ``path``, with all below it, and other namespaces.

    ``kind``: MS_PRIVATE: none; MS_SLAVE: only from the other namespaces to this one.
    """
    how = _MountAttr(0, 0, kind, 0)
    _call(_MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, how, ctypes.sizeof(how))


def new_tmpfs(**options: str) -> int:
    """Return a descriptor of a new, detached tmpfs with these mount options."""
    return _new("tmpfs", options)


def new_proc() -> int:
    """Return a descriptor of a new, detached /proc of this process's PID namespace."""
    return _new("proc", {})


def _new(fstype: str, options: Mapping[str, str]) -> int:
    context = _call(_FSOPEN, fstype.encode(), _FSOPEN_CLOEXEC)
    try:
        for key, value in options.items():
            _call(_FSCONFIG, context, _FSCONFIG_SET_STRING, key.encode(), value.encode(), 0)
        _call(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _call(_FSMOUNT, context, _FSMOUNT_CLOEXEC, 0)
    finally:
        os.close(context)


def unshare(flags: int) -> None:
    """Put this process into new namespaces: CLONE_NEW bits, unshare(2)."""
    _checked(_LIBC.unshare(flags))


def enter_namespace(descriptor: int, kind: int = 0) -> None:
    """Enter a namespace of a CLONE_NEW ``kind``, 0 for any, setns(2).

    A mount namespace's root becomes this process's root and working directory.
    """
    _checked(_LIBC.setns(descriptor, kind))


def detach(path: str) -> None:
    """Unmount the topmost mount at ``path`` as soon as nothing uses it, without following links."""
    _checked(_LIBC.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW))


def die_with_parent() -> None:
    """Make the kernel kill this process when the thread that forked it ends."""
    _checked(_LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def gain_no_rights() -> None:
    """Prevent programs that this process runs from gaining privileges."""
    _checked(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def bound_capabilities(allowed: int) -> None:
    """Drop all capabilities except those in the mask ``allowed`` from the bounding set."""
    number = 0
    while _LIBC.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) >= 0:  # EINVAL beyond the last
        if not allowed >> number & 1:
            _checked(_LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0))
        number += 1


def take_as_root(directory: int) -> None:
    """Make the mount ``directory``, attached on the root, the root; detach all other mounts.

    In a container whose seccomp profile forbids pivot_root(2), as those of containerd and Docker
    do even with CAP_SYS_ADMIN, the others stay below it, where only a process with CAP_SYS_CHROOT
    or CAP_SYS_ADMIN could reach them.
    """
    os.fchdir(directory)
    try:
        _checked(_LIBC.pivot_root(b".", b"."))
    except PermissionError:
        os.chroot(".")
        return
    _checked(_LIBC.umount2(b".", _MNT_DETACH))
    os.chdir("/")


def device_number(path: str) -> str:
    """Return the device number of the device file ``path``, such as "10:229"; "0:0" otherwise.

    Cached attributes of a FUSE or network file system suffice (fs/fuse/dir.c,
    fuse_update_get_attr()), so a hung server does not block this. Raises OSError.
    """
    return _statx_device(path, _STATX_TYPE, _DEVICE_NUMBER)


def device_below(path: str) -> str:
    """Return the device number of the file system that contains ``path``, such as "0:43".

    Like `device_number`; requests no attributes, which FUSE allows every user (fs/fuse/dir.c,
    fuse_getattr()). Raises OSError.
    """
    return _statx_device(path, 0, _DEVICE_BELOW)


def _statx_device(path: str, mask: int, offset: int) -> str:
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if _LIBC.statx(AT_FDCWD, os.fsencode(path), _AT_STATX_DONT_SYNC, mask, buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    major, minor = struct.unpack_from("=II", buffer.raw, offset)
    return f"{major}:{minor}"


def pages_brought(fd: int) -> int:
    """Return how many pages of a file are in the page cache or were evicted from it.

    cachestat(2), since Linux 6.5.
    """
    whole, found = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
    _checked(_LIBC.syscall(_CACHESTAT, fd, whole, found, 0))
    in_cache, _, _, evicted, _ = found  # struct cachestat, uapi linux/mman.h
    return in_cache + evicted
