# SPDX-License-Identifier: GPL-2.0-or-later
"""Calls that no server makes: random ones, with memory that changes, and by an intruder."""

import ctypes
import os
import random
import struct
import sys
import threading
from pathlib import Path

from fusetune import syscalls
from tests.native.mount_calls import (
    CREATE,
    FLAGS,
    FSCONFIG,
    FSOPEN,
    LIBC,
    MGC,
    PAGE,
    SET_FD,
    SET_STRING,
    Pages,
    call_mount,
    detach,
    device,
    lines_at,
    options_for,
)

_CAPABILITY_VERSION = 0x20080522  # uapi linux/capability.h, _LINUX_CAPABILITY_VERSION_3


def changing(point: Path, count: str) -> None:
    """Another thread changes the type, the target and the options while mount(2) reads them."""
    texts = {name: ctypes.create_string_buffer(1024) for name in ("target", "type", "options")}
    ended = threading.Event()
    other = point.with_name("other")
    other.mkdir()
    with device() as fd:
        values = {
            "target": [bytes(point), bytes(other)],
            "type": [b"fuse.x", b"fuse.yyy", b"fuseblk"],
            "options": [options_for(fd), b"fd=0," + options_for(fd), b"fd=%d,x" % fd],
        }

        def change() -> None:
            while not ended.is_set():
                for name, choices in values.items():
                    texts[name].value = random.choice(choices)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(int(count)):
                target, fstype, options = (ctypes.addressof(texts[name]) for name in texts)
                call_mount(b"s", target, fstype, 6, options)
                for where in (point, other):
                    for line in lines_at(where):
                        assert line.partition(" - ")[2].startswith("fuse"), line
                        detach(where)
        finally:
            ended.set()
            thread.join()
    print("done")


def fuzz(point: Path, seed: str, count: str) -> None:
    """mount(2), fsopen(2) and fsconfig(2) with random arguments; the mounts are removed."""
    draw = random.Random(int(seed))
    held = [Pages(closed=closed) for closed in (True, False)]
    contexts: list[int] = []
    with device() as fd:
        words = [
            *(b"fuse", b"fuseblk", b"fuse.x", b"tmpfs", b"fuse.%s", b"fd", b"source", b"subtype"),
            *(bytes(point), b"/", b".", b"", b"fd=%d" % fd, b"fd=0", b"fd=-1", b"fd=99999999999"),
            *(b"rootmode=40000", b"user_id=0", b"group_id=0", b"max_read=1", b"=", b",", b'"'),
            *(b'context="a,b', b"x" * 300, b"x" * 5000, b"%s%n", b"\x1b[2J\xff"),
        ]
        for _ in range(int(count)):
            arguments = [_argument(draw, held, words) for _ in range(5)]
            call = draw.choice(["mount", "mount", "fsopen", "fsconfig"])
            if call == "mount":
                # Only flags with which it is still a new mount.
                call_mount(*arguments[:3], draw.choice([0, 6, MGC, *FLAGS]), arguments[4])
            elif call == "fsopen":
                made = LIBC.syscall(FSOPEN, _word(arguments[0]), draw.choice([0, 1, 2]))
                if made >= 0:
                    contexts.append(made)
            else:
                on = draw.choice([*contexts[-3:], fd, -1])
                LIBC.syscall(
                    FSCONFIG,
                    on,
                    draw.choice([SET_STRING, SET_FD, CREATE]),
                    _word(arguments[0]),
                    _word(arguments[1]),
                    draw.choice([0, fd, -1]),
                )
            while len(contexts) > 20:
                os.close(contexts.pop(0))
    print("done")


def intrudes(point: Path, secret: str, how: str) -> None:
    """As user ID 0, without rights over the host, mount at the first line of input.

    The second line has the PID of the process that handles the call. Print what ``secret``, which
    is hidden here, has if it can be reached through a descriptor of that process.
    """
    with device() as fd:
        sys.stdin.readline()
        syscalls.unshare(syscalls.CLONE_NEWNS | (syscalls.CLONE_NEWUSER if how == "users" else 0))
        if how == "users":
            Path("/proc/self/uid_map").write_text("0 0 1")
        syscalls.propagate("/", syscalls.MS_PRIVATE)
        call_mount(b"s", os.fsencode(Path(secret).parent), b"tmpfs", 0, 0)
        if how == "powerless":
            LIBC.capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24))
        options = options_for(fd)
        thread = threading.Thread(
            target=lambda: call_mount(b"s", bytes(point), b"fuse", 6, options)
        )
        thread.start()
        handler = sys.stdin.readline().strip()
        # It has /proc open, from which ".." leads to the root directory.
        ways = ["", *(f"/proc/{handler}/fd/{number}/.." for number in range(64))]
        print({_text(f"{way}{secret}") for way in ways}, flush=True)
        thread.join()


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _word(argument: int | bytes) -> ctypes.c_ulong | ctypes.c_char_p:
    if isinstance(argument, bytes):
        return ctypes.c_char_p(argument)
    return ctypes.c_ulong(argument)


def _argument(draw: random.Random, held: list[Pages], words: list[bytes]) -> int | bytes:
    """Return a string of some ``words``, perhaps at a page's end, or an invalid address."""
    kind = draw.randrange(8)
    if kind == 0:
        return draw.choice([0, 8, 1 << 47, 1 << 63, (1 << 64) - 1, held[0].start + PAGE])
    text = b",".join(draw.choices(words, k=draw.choice([1, 1, 1, 4, 8])))
    if kind > 3 or len(text) >= PAGE:
        return text
    pages = draw.choice(held)
    ended = text + b"\0" * draw.randrange(2)
    return pages.put(ended, PAGE - len(ended))
