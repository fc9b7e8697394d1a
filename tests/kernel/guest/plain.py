# SPDX-License-Identifier: GPL-2.0-or-later
"""A FUSE server without a library, which sets no flags at INIT unless a check wants them.

It counts requests, and how many of them the kernel sends before the first reply.
"""

import errno
import os
import select
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.kernel.guest import raw
from tests.kernel.guest.rig import CONTROL, SLOWNESS

#: INIT flags of linux/fuse.h.
ASYNC_READ, BIG_WRITES, WRITEBACK_CACHE, POSIX_ACL = 1, 1 << 5, 1 << 16, 1 << 20
MAX_PAGES, INIT_EXT, PASSTHROUGH = 1 << 22, 1 << 30, 1 << 37
_NAMES = {
    1: "LOOKUP",
    2: "FORGET",
    3: "GETATTR",
    4: "SETATTR",
    14: "OPEN",
    15: "READ",
    16: "WRITE",
    17: "STATFS",
    18: "RELEASE",
    20: "FSYNC",
    21: "SETXATTR",
    22: "GETXATTR",
    23: "LISTXATTR",
    24: "REMOVEXATTR",
    25: "FLUSH",
    26: "INIT",
    27: "OPENDIR",
    28: "READDIR",
    29: "RELEASEDIR",
    34: "ACCESS",
    35: "CREATE",
    36: "INTERRUPT",
    42: "BATCH_FORGET",
}
_SILENT = ("FORGET", "INTERRUPT", "BATCH_FORGET")
_HEADER = 40
#: Bits of fuse_setattr_in.valid.
_SETS_MODE, _SETS_SIZE, _SETS_MTIME = 1, 8, 32
#: Seconds without a request until it replies to the held ones.
_GATHER = 0.3 * SLOWNESS


@dataclass
class File:
    """A file of the root directory; ``node`` is its number."""

    node: int
    data: bytearray = field(default_factory=bytearray)
    mode: int = 0o100644
    mtime: int = 1000
    ctime: int = 1000


@dataclass
class Plain:
    """The server's files, its reply to INIT, and the requests it saw.

    ``held`` names requests whose replies wait until the kernel sends no more; ``silent`` those
    that never get a reply. ``unreadable`` refuses to open a file for reading.
    """

    minor: int = 19
    flags: int = 0
    max_write: int = 1 << 17
    max_readahead: int = 1 << 17
    max_pages: int = 0
    max_stack_depth: int = 0
    held: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    unreadable: bool = False
    files: dict[str, File] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    sizes: dict[str, list[int]] = field(default_factory=lambda: {"READ": [], "WRITE": []})
    opened: list[int] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)
    control: Path = CONTROL
    device: int = -1

    def add(self, name: str, data: bytes = b"", mode: int = 0o100644) -> File:
        """Add a file."""
        self.files[name] = File(2 + len(self.files), bytearray(data), mode)
        return self.files[name]

    def serve(self, device: int) -> None:
        """Serve until the mount is gone."""
        waiting: list[bytes] = []
        poll = select.poll()
        poll.register(device, select.POLLIN)
        with suppress(OSError):
            while True:
                if not poll.poll(_GATHER * 1000 if waiting else None):
                    self._reply_to_all(device, waiting)
                    continue
                request = os.read(device, (1 << 20) + 8192)
                if self._name(request) in self.held:
                    waiting.append(request)
                else:
                    self._handle(device, request)

    def _reply_to_all(self, device: int, waiting: list[bytes]) -> None:
        for name, number in Counter(map(self._name, waiting)).items():
            self.most[name] = max(self.most[name], number)
        while waiting:
            self._handle(device, waiting.pop(0))

    @staticmethod
    def _name(request: bytes) -> str:
        number = struct.unpack_from("=I", request, 4)[0]
        return _NAMES.get(number, str(number))

    def _handle(self, device: int, request: bytes) -> None:
        name = self._name(request)
        unique, node = struct.unpack_from("=QQ", request, 8)
        self.counts[name] += 1
        if name in _SILENT or name in self.silent:
            return
        error, body = 0, b""
        try:
            body = self._reply(name, node, request[_HEADER:])
        except OSError as failed:
            error = failed.errno or errno.EIO
        os.write(device, struct.pack("=IiQ", 16 + len(body), -error, unique) + body)

    def _reply(self, name: str, node: int, body: bytes) -> bytes:
        """Return the body of a reply. Raises OSError for an error reply."""
        action = getattr(self, f"_{name.lower()}", None)
        if action:
            return bytes(action(node, body))
        if name in ("RELEASE", "FLUSH", "FSYNC", "RELEASEDIR", "ACCESS"):
            return b""
        raise OSError(errno.ENODATA if name.endswith("XATTR") else errno.ENOSYS, name)

    def _init(self, _node: int, _body: bytes) -> bytes:
        # struct fuse_init_out
        low, high = self.flags & 0xFFFFFFFF, self.flags >> 32
        head = struct.pack("=IIII", 7, self.minor, self.max_readahead, low)
        head += struct.pack("=HHI", 0, 0, self.max_write)
        if self.minor < 23:
            return head
        return head + struct.pack("=IHHII24x", 0, self.max_pages, 0, high, self.max_stack_depth)

    def _file(self, node: int) -> File:
        return next(file for file in self.files.values() if file.node == node)

    def _attr(self, node: int) -> bytes:
        file = File(1, mode=0o040755) if node == 1 else self._file(node)
        sizes, times = (len(file.data), 0), (file.mtime, file.mtime, file.ctime)
        attr = struct.pack("=6Q10I", node, *sizes, *times, 0, 0, 0, file.mode, 1, 0, 0, 0, 4096, 0)
        return attr if self.minor >= 9 else attr[:80]

    def _entry(self, node: int) -> bytes:
        return struct.pack("=4QII", node, 0, 0, 0, 0, 0) + self._attr(node)

    def _lookup(self, _node: int, body: bytes) -> bytes:
        name = body.rstrip(b"\0").decode()
        if name not in self.files:
            raise OSError(errno.ENOENT, name)
        return self._entry(self.files[name].node)

    def _getattr(self, node: int, _body: bytes) -> bytes:
        return struct.pack("=QII", 0, 0, 0) + self._attr(node)

    def _setattr(self, node: int, body: bytes) -> bytes:
        # struct fuse_setattr_in
        valid, _, _, size, _, _, mtime, _, _, _, _, mode = struct.unpack_from("=IIQQQQQQIIII", body)
        file = self._file(node)
        if valid & _SETS_SIZE:
            file.data = file.data[:size].ljust(size, b"\0")
        if valid & _SETS_MTIME:
            file.mtime = mtime
        if valid & _SETS_MODE:
            file.mode = mode
        file.ctime += 1
        return self._getattr(node, body)

    def _open(self, _node: int, body: bytes) -> bytes:
        flags = struct.unpack_from("=I", body)[0]
        self.opened.append(flags)
        if self.unreadable and flags & os.O_ACCMODE != os.O_WRONLY:
            raise OSError(errno.EACCES, "unreadable")
        # The file handle in a WRITE tells how its file was opened.
        return struct.pack("=QII", flags, 0, 0)

    def _create(self, _node: int, body: bytes) -> bytes:
        flags, mode = struct.unpack_from("=II", body)
        opened = self._open(0, body)
        name = body[16:].rstrip(b"\0").decode()
        file = self.files.get(name) or self.add(name, mode=mode)
        assert flags & os.O_CREAT
        return self._entry(file.node) + opened

    def _statfs(self, _node: int, _body: bytes) -> bytes:
        # struct fuse_kstatfs
        return struct.pack("=5Q3I28x", 1, 1, 1, 1, 1, 4096, 255, 4096)

    def _opendir(self, _node: int, _body: bytes) -> bytes:
        return struct.pack("=QII", 0, 0, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        flags, offset, size = struct.unpack_from("=QQI", body)
        if flags & os.O_ACCMODE == os.O_WRONLY:
            raise OSError(errno.EBADF, "read")
        self.sizes["READ"].append(size)
        return bytes(self._file(node).data[offset : offset + size])

    def _write(self, node: int, body: bytes) -> bytes:
        flags, offset, size = struct.unpack_from("=QQI", body)
        file, data = self._file(node), body[40 : 40 + size]
        if flags & os.O_APPEND:
            offset = len(file.data)
        self.sizes["WRITE"].append(size)
        self.writes.append((offset, size))
        file.data = file.data.ljust(offset, b"\0")
        file.data[offset : offset + size] = data
        file.mtime += 1
        file.ctime += 1
        return struct.pack("=II", size, 0)


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file, and close it in the end so that the module can be unloaded."""
    fd = os.open(path, flags, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def serving(server: Plain, *options: str, point: str = "/mnt/plain") -> Iterator[Path]:
    """Mount by the module with its ``options``, served by a thread; unmounted in the end.

    Yields the mount point after INIT. ``server.control`` is then the directory of its
    control files, and ``server.device`` its descriptor of /dev/fusetuned.
    """
    path = Path(point)
    path.mkdir(parents=True, exist_ok=True)
    server.device = device = os.open("/dev/fusetuned", os.O_RDWR | os.O_CLOEXEC)
    try:
        raw.mount(device, path, "".join(f",{option}" for option in options))
        server.control = CONTROL / _number_of(path)
        thread = threading.Thread(target=server.serve, args=(device,), daemon=True)
        thread.start()
        try:
            os.statvfs(path)  # waits for INIT
            server.counts.clear()
            yield path
        finally:
            raw.unmount(path)
            thread.join(20)
            if thread.is_alive():  # something still waits for a reply
                (server.control / "abort").write_text("1")
                thread.join(20)
            assert not thread.is_alive()
    finally:
        os.close(device)


def _number_of(point: Path) -> str:
    """Return the number of a mount's connection, without asking its server."""
    lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return next(words[2] for words in lines if words[4] == str(point)).partition(":")[2]
