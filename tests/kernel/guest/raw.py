# SPDX-License-Identifier: GPL-2.0-or-later
"""Mounts of the module by system calls, and a server that sends whatever a check wants."""

import ctypes
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
_MNT_DETACH = 2
_INIT_EXT, _TUNED_INIT_OPEN = 1 << 30, 0x20000000
_MAGIC = 0x64657475


class _Op:
    """Opcodes of linux/fuse.h and protocol.h."""

    LOOKUP, FORGET, GETATTR, OPEN, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 26, 36, 42
    TUNED_HELLO, TUNED_OPEN = 0x54554E00, 0x54554E01


#: Replies with a name are for this node.
_NODE = 7
_LIBC = ctypes.CDLL(None, use_errno=True)
#: Keeps the interpreter's lock, which a child needs.
_PYTHON = ctypes.PyDLL(None, use_errno=True)
#: The same on every architecture.
_CLONE3 = 435


def unshare(flags: int) -> None:
    """Call unshare(2). Raises OSError."""
    _checked(_LIBC.unshare(flags), "unshare")


def mount(device: int, point: Path | str, options: str = "") -> None:
    """Mount the server of ``device`` on ``point`` by the module. Raises OSError."""
    text = f"fd={device},rootmode=40000,user_id=0,group_id=0{options}"
    _checked(
        _LIBC.mount(b"raw", os.fsencode(point), b"fusetuned", 0, text.encode()), os.fspath(point)
    )


def unmount(point: Path | str) -> None:
    """Detach a mount, if there is one."""
    _LIBC.umount2(os.fsencode(point), _MNT_DETACH)


def _checked(failed: int, what: str) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _fork(number: int) -> int:
    """Fork a child with this pid. Raises OSError."""
    wanted = ctypes.c_int(number)
    fields = (0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(wanted), 1)
    # struct clone_args of linux/sched.h
    args = (ctypes.c_uint64 * len(fields))(*fields)
    pid = int(_PYTHON.syscall(ctypes.c_long(_CLONE3), args, ctypes.sizeof(args)))
    _checked(pid < 0, "clone3")
    return pid


def start(action: Callable[[], object], number: int = 0) -> int:
    """Run ``action`` in a child process, whose status is 0 or the errno; return its pid.

    The pid is ``number``, if that is given. Raises OSError if it is taken.
    """
    pid = _fork(number) if number else os.fork()
    if not pid:
        status = 255
        try:
            action()
            status = 0
        except OSError as error:
            status = error.errno or 255
        finally:
            os._exit(status)
    return pid


def ended(pid: int, seconds: float) -> int | None:
    """Return a child's exit status if it ends within ``seconds``, otherwise None."""
    for _ in range(int(seconds * 100)):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def in_child(action: Callable[[], object]) -> int:
    """Run ``action`` in a child process; return 0, or the errno that it failed with."""
    return os.waitstatus_to_exitcode(os.waitpid(start(action), 0)[1])


def _attr(node: int, mode: int) -> bytes:
    """Return a struct fuse_attr of root's."""
    return struct.pack("=6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _entry() -> bytes:
    """Return a struct fuse_entry_out of a file that its owner may use, with no entry timeout."""
    return struct.pack("=4QII", _NODE, 0, 0, 3600, 0, 0) + _attr(_NODE, 0o100600)


class Raw:
    """Replies to the kernel's requests; ``opened``: open flags in replies to TUNED_OPEN."""

    def __init__(self, device: int, mode: int) -> None:
        self.opened = 0
        self._device = device
        self._mode = mode

    def serve(self) -> None:
        """Serve until the mount is gone."""
        with suppress(OSError):
            while True:
                request = os.read(self._device, 1 << 20)
                _, opcode, unique, node = struct.unpack_from("=IIQQ", request)
                body = self._reply(opcode, node)
                if body is not None:
                    error = 0 if body else -38
                    head = struct.pack("=IiQ", 16 + len(body), error, unique)
                    os.write(self._device, head + body)

    def _reply(self, opcode: int, node: int) -> bytes | None:
        """Return the body of a reply; empty for ENOSYS, None if no reply is expected."""
        if opcode in (_Op.FORGET, _Op.INTERRUPT, _Op.BATCH_FORGET):
            return None
        # struct fuse_init_out
        init = struct.pack("=IIII", 7, 38, 1 << 17, _INIT_EXT)
        init += struct.pack("=HHIIHHI", 12, 9, 1 << 17, 1, 32, 0, _TUNED_INIT_OPEN) + bytes(28)
        mode = 0o100600 if node == _NODE else self._mode
        replies = {
            _Op.INIT: init,
            _Op.LOOKUP: _entry(),
            _Op.GETATTR: struct.pack("=QII", 3600, 0, 0) + _attr(node, mode),
            _Op.OPEN: struct.pack("=QII", 1, 0, 0),
            _Op.TUNED_HELLO: struct.pack("=II", _MAGIC, 1),
            _Op.TUNED_OPEN: _entry() + struct.pack("=QII", 1, self.opened, 0),
        }
        return replies.get(opcode, b"")


@contextmanager
def served(point: Path, options: str, mode: int) -> Iterator[Raw]:
    """Mount ``point`` by the module, served by a thread; unmounted in the end.

    ``mode`` is the root directory's.
    """
    point.mkdir(parents=True, exist_ok=True)
    device = os.open("/dev/fusetuned", os.O_RDWR | os.O_CLOEXEC)
    try:
        mount(device, point, options)
        server = Raw(device, mode)
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            unmount(point)
            thread.join(60)
    finally:
        os.close(device)
