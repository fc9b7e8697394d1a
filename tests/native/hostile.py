# SPDX-License-Identifier: GPL-2.0-or-later
"""A FUSE server in raw protocol that behaves at first, and then lies about one file."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.native.raw import mount
from tests.native.servers import mounts_at

_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
# Numbers and structures as in include/uapi/linux/fuse.h, version 7.31.
_HEADER = struct.Struct("=IIQQIIIHH")
_ATTR = struct.Struct("=6Q3I7I")
_BIG_WRITES, _MAX_WRITE = 1 << 5, 128 << 10
_SET_MODE, _SET_UID, _SET_GID, _SET_SIZE = 1, 2, 4, 8
_NO_REPLY = (2, 36, 42)  # FORGET, INTERRUPT, BATCH_FORGET


@dataclass(frozen=True)
class Shown:
    """What the server reports for a file; ``nodeid``: its number."""

    nodeid: int
    mode: int
    size: int
    rdev: int = 0


@dataclass(frozen=True)
class Fault:
    """From reply number ``after`` on, ``change`` is applied to replies about ``name``.

    ``name`` is the beginning of a file's name, "" for the root.
    """

    name: str
    change: Callable[[Shown], Shown]
    after: int = 0
    endless: bool = False


@dataclass
class _Node:
    nodeid: int
    name: str
    mode: int
    uid: int = 0
    gid: int = 0
    data: bytearray = field(default_factory=bytearray)
    children: dict[str, _Node] = field(default_factory=dict)
    told: int = 0
    sparse: int = 0  # zero bytes instead of data


class HostileServer:
    """A mount of type fuse.raw at ``point`` with ``fault``, for the duration of the context.

    ``target``: the target of each symbolic link; ``sparse``: names and sizes of files of zeros.
    ``reads``: name, offset and size of each READ of these.
    """

    def __init__(
        self, point: Path, fault: Fault, target: Path, sparse: Mapping[str, int] | None = None
    ) -> None:
        self.point = point
        self._fault, self._target = fault, target
        self._root = _Node(1, "", stat.S_IFDIR | 0o755)
        self._nodes = {1: self._root}
        self._next = 2
        self.reads: list[tuple[str, int, int]] = []
        for name, size in (sparse or {}).items():
            self._make(self._root, os.fsencode(name), stat.S_IFREG | 0o444).sparse = size
        point.mkdir()
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        mount(self._fd, point, flags=0)
        self.device = mounts_at(point)[-1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> HostileServer:
        return self

    def __exit__(self, *exception: object) -> None:
        _LIBC.umount2(os.fsencode(self.point), _MNT_DETACH)
        self._thread.join(20)
        os.close(self._fd)

    @property
    def names(self) -> list[str]:
        """The names in its root directory."""
        return list(self._root.children)

    def _serve(self) -> None:
        with suppress(OSError):  # ENODEV: unmounted
            while True:
                request = os.read(self._fd, _MAX_WRITE + (64 << 10))
                _, opcode, unique, nodeid, *_ = _HEADER.unpack_from(request)
                if opcode in _NO_REPLY:
                    continue
                try:
                    code, body = 0, self._answer(opcode, nodeid, request[_HEADER.size :])
                except OSError as error:
                    code, body = error.errno or errno.EIO, b""
                with suppress(FileNotFoundError):  # its caller is gone
                    reply = struct.pack("=IiQ", 16 + len(body), -code, unique)
                    os.write(self._fd, reply + body)

    def _answer(self, opcode: int, nodeid: int, body: bytes) -> bytes:
        if opcode == 26:  # INIT
            return struct.pack(
                "=IIIIHHIIHHI28x", 7, 31, 1 << 17, _BIG_WRITES, 12, 9, _MAX_WRITE, 1, 0, 0, 0
            )
        if opcode not in _OPERATIONS:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if nodeid not in self._nodes:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return _OPERATIONS[opcode](self, self._nodes[nodeid], body)

    def _shown(self, node: _Node) -> Shown:
        shown = Shown(node.nodeid, node.mode, node.sparse or len(node.data))
        fault = self._fault
        if node.name.startswith(fault.name) if fault.name else node is self._root:
            node.told += 1
            if node.told > fault.after:
                shown = fault.change(shown)
        self._nodes[shown.nodeid] = node
        return shown

    def _attributes(self, node: _Node, shown: Shown) -> bytes:
        times = (0, 0, 0, 0, 0, 0)
        owner = (node.uid, node.gid)
        return _ATTR.pack(
            shown.nodeid, shown.size, 1, *times, shown.mode, 1, *owner, shown.rdev, 4096, 0
        )

    def _entry(self, node: _Node) -> bytes:
        shown = self._shown(node)
        return struct.pack("=4Q2I", shown.nodeid, 0, 0, 0, 0, 0) + self._attributes(node, shown)

    def _child(self, node: _Node, name: bytes) -> _Node:
        try:
            return node.children[os.fsdecode(name.rstrip(b"\0"))]
        except KeyError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error

    def _make(self, parent: _Node, name: bytes, mode: int) -> _Node:
        node = _Node(self._next, os.fsdecode(name.rstrip(b"\0")), mode)
        self._next += 1
        parent.children[node.name] = node
        return node

    def _lookup(self, node: _Node, body: bytes) -> bytes:
        return self._entry(self._child(node, body))

    def _getattr(self, node: _Node, body: bytes) -> bytes:
        return struct.pack("=QII", 0, 0, 0) + self._attributes(node, self._shown(node))

    def _setattr(self, node: _Node, body: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("=IIQQ", body)
        mode, _, uid, gid = struct.unpack_from("=4I", body, 68)
        if valid & _SET_MODE:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        node.uid = uid if valid & _SET_UID else node.uid
        node.gid = gid if valid & _SET_GID else node.gid
        if valid & _SET_SIZE:
            del node.data[size:]
            node.data.extend(bytes(size - len(node.data)))
        return self._getattr(node, b"")

    def _readlink(self, node: _Node, body: bytes) -> bytes:
        return os.fsencode(self._target)

    def _mkdir(self, node: _Node, body: bytes) -> bytes:
        (mode,) = struct.unpack_from("=I", body)
        return self._entry(self._make(node, body[8:], stat.S_IFDIR | stat.S_IMODE(mode)))

    def _create(self, node: _Node, body: bytes) -> bytes:
        _, mode = struct.unpack_from("=II", body)
        made = self._make(node, body[16:], stat.S_IFREG | stat.S_IMODE(mode))
        return self._entry(made) + self._open(made, b"")

    def _remove(self, node: _Node, body: bytes) -> bytes:
        del node.children[self._child(node, body).name]
        return b""

    def _open(self, node: _Node, body: bytes) -> bytes:
        return struct.pack("=QII", 0, 0, 0)

    def _read(self, node: _Node, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        if node.sparse:
            self.reads.append((node.name, offset, size))
            return bytes(min(size, node.sparse - offset))
        return bytes(node.data[offset : offset + size])

    def _write(self, node: _Node, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        node.data.extend(bytes(max(0, offset - len(node.data))))
        node.data[offset : offset + size] = body[40 : 40 + size]
        return struct.pack("=II", size, 0)

    def _statfs(self, node: _Node, body: bytes) -> bytes:
        return struct.pack("=5Q4I24x", 1 << 20, 1 << 20, 1 << 20, 99, 99, 4096, 255, 4096, 0)

    def _readdir(self, node: _Node, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        names = list(node.children)[offset:]
        if self._fault.endless and node is not self._root:
            names = [f"file-{number}" for number in range(offset, offset + 20)]
        reply = b""
        for number, name in enumerate(names, offset + 1):
            raw = os.fsencode(name)
            entry = struct.pack("=QQII", number, number, len(raw), 0) + raw
            entry += bytes(-len(entry) % 8)
            if len(reply) + len(entry) > size:
                break
            reply += entry
        return reply

    def _nothing(self, node: _Node, body: bytes) -> bytes:
        return b""


_OPERATIONS: dict[int, Callable[[HostileServer, _Node, bytes], bytes]] = {
    1: HostileServer._lookup,
    3: HostileServer._getattr,
    4: HostileServer._setattr,
    5: HostileServer._readlink,
    9: HostileServer._mkdir,
    10: HostileServer._remove,
    11: HostileServer._remove,
    14: HostileServer._open,
    15: HostileServer._read,
    16: HostileServer._write,
    17: HostileServer._statfs,
    18: HostileServer._nothing,  # RELEASE
    20: HostileServer._nothing,  # FSYNC
    25: HostileServer._nothing,  # FLUSH
    27: HostileServer._open,  # OPENDIR
    28: HostileServer._readdir,
    29: HostileServer._nothing,  # RELEASEDIR
    35: HostileServer._create,
}


def as_kind(kind: int, rdev: int = 0) -> Callable[[Shown], Shown]:
    """Return a change of a file's type to ``kind`` (S_IFLNK and so on)."""
    return lambda shown: replace(shown, mode=kind | stat.S_IMODE(shown.mode), rdev=rdev)


def as_size(size: int) -> Callable[[Shown], Shown]:
    """Return a change of a file's size to ``size`` bytes."""
    return lambda shown: replace(shown, size=size)


def as_another() -> Callable[[Shown], Shown]:
    """Return a change of a file's number to one never used before."""
    numbers = iter(range(1 << 32, 1 << 40))
    return lambda shown: replace(shown, nodeid=next(numbers))
