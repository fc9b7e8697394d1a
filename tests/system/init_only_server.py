# SPDX-License-Identifier: GPL-2.0-or-later
"""A FUSE server for many mounts in one process, which replies to INIT and refuses all else.

As a program in the container, it reads commands from stdin, one per line, and answers each with a
line when it is done, both in JSON. When stdin ends, it unmounts everything.
"""

from __future__ import annotations

import ctypes
import errno
import heapq
import json
import os
import resource
import select
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID, _MS_NODEV, _MNT_DETACH = 2, 4, 2
_INIT = 26
# include/uapi/linux/fuse.h: fuse_in_header, fuse_out_header, fuse_init_out
_IN = struct.Struct("=IIQQIIIHH")
_OUT = struct.Struct("=IiQ")
_INIT_OUT = struct.Struct("=IIIIHHIIHHI28x")
#: Bytes; no request here is longer, and the kernel requires at least 8 KiB.
_BUFFER = 135168


class Server:
    """The mounts, by mount point, and the replies that are still due."""

    def __init__(self) -> None:
        self._fds: dict[str, int] = {}
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._later: list[tuple[float, int, int]] = []
        self._poll = select.epoll()
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Serve commands until stdin ends."""
        orders = sys.stdin.fileno()
        unread = b""
        while True:
            timeout = max(0.0, self._later[0][0] - time.monotonic()) if self._later else None
            ready = {fd for fd, _ in self._poll.poll(timeout)}
            while self._later and self._later[0][0] <= time.monotonic():
                _, fd, unique = heapq.heappop(self._later)
                self._answer_init(fd, unique)
            for fd in ready - {orders}:
                self._serve(fd)
            if orders in ready:
                new = os.read(orders, 1 << 20)
                if not new:
                    return
                *lines, unread = (unread + new).split(b"\n")
                for line in lines:
                    order = json.loads(line)
                    print(json.dumps(getattr(self, order.pop("do"))(**order)), flush=True)

    def mount(
        self, points: Sequence[str], fstype: str, source: str, owner: int, init: Mapping[str, Any]
    ) -> float:
        """Mount each of ``points``; return the seconds that took.

        ``init``: the reply, by field of fuse_init_out, sent ``delay`` seconds later, or never if
        None.
        """
        began = time.monotonic()
        for point in points:
            fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            options = f"fd={fd},rootmode=40000,user_id={owner},group_id={owner}"
            words = (os.fsencode(source), os.fsencode(point), fstype.encode())
            if _LIBC.mount(*words, _MS_NOSUID | _MS_NODEV, options.encode()):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), point)
            self._fds[point] = fd
            self._answers[fd] = init
            self._serve(fd)
            self._poll.register(fd, select.EPOLLIN)
        return time.monotonic() - began

    def unmount(self, points: Sequence[str]) -> float:
        """Unmount each of ``points``; return the seconds that took."""
        began = time.monotonic()
        for point in points:
            _LIBC.umount2(os.fsencode(point), _MNT_DETACH)
            if (fd := self._fds.pop(point, -1)) >= 0:
                self._close(fd)
        return time.monotonic() - began

    def cycle(self, point: str, pauses: Sequence[float], fstype: str, source: str) -> float:
        """Mount and unmount ``point`` repeatedly, mounted for each of ``pauses`` (seconds)."""
        began = time.monotonic()
        for pause in pauses:
            self.mount([point], fstype, source, 0, {"delay": 0})
            time.sleep(pause)
            self.unmount([point])
        return time.monotonic() - began

    def end(self) -> None:
        """Unmount everything."""
        self.unmount(list(reversed(self._fds)))

    def _close(self, fd: int) -> None:
        del self._answers[fd]
        self._later = [one for one in self._later if one[1] != fd]
        heapq.heapify(self._later)
        os.close(fd)

    def _serve(self, fd: int) -> None:
        """Read all pending requests."""
        while fd in self._answers:
            try:
                request = os.read(fd, _BUFFER)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENODEV:  # unmounted by somebody else
                    raise
                self._poll.unregister(fd)
                return
            _, opcode, unique, *_ = _IN.unpack_from(request)
            if opcode != _INIT:
                os.write(fd, _OUT.pack(_OUT.size, -errno.ENOSYS, unique))
            elif (delay := self._answers[fd]["delay"]) == 0:
                self._answer_init(fd, unique)
            elif delay is not None:
                heapq.heappush(self._later, (time.monotonic() + delay, fd, unique))

    def _answer_init(self, fd: int, unique: int) -> None:
        init = self._answers[fd]
        out = _INIT_OUT.pack(
            *(7, 31, init.get("max_readahead", 1 << 30), 0),
            *(init.get("max_background", 0), init.get("congestion_threshold", 0)),
            *(131072, 1, 0, 0, 0),
        )
        os.write(fd, _OUT.pack(_OUT.size + len(out), 0, unique) + out)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    server = Server()
    try:
        server.run()
    finally:
        server.end()


if __name__ == "__main__":
    main()
