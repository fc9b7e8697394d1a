# SPDX-License-Identifier: GPL-2.0-or-later
"""Open files, many at once or one by one, and see what the server then holds."""

import os
import random
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from tests.kernel.guest.rig import (
    SOURCE,
    fresh_source,
    tuned,
)
from tests.native.mirror import Mirror, open_files, wait_for

FILES = 300
_ASKED = ("LOOKUP", "OPEN", "CREATE", "TUNED_HELLO", "TUNED_OPEN", "GETATTR", "SETATTR", "MKNOD")


#: Names are looked up at each open, but attributes stay cached, even if a check takes minutes.
NAMES_EXPIRE = ("entry_timeout=0", "timeout=3600")


def atomic(*options: str, mount: str = "") -> AbstractContextManager[Mirror]:
    """Mount the source by the module with atomic_open."""
    return tuned(*options, mount="+".join(filter(None, ("atomic_open", mount))))


def asked_of(mirror: Mirror) -> dict[str, int]:
    """Return the number of requests of each kind since the last call."""
    ops = mirror.counters()["ops"]
    mirror.reset_counters()
    return {name: ops[name]["count"] for name in _ASKED if ops[name]["count"]}


@contextmanager
def all_open(
    files: int, point: Path, flags: int = os.O_RDONLY, prefix: str = "file"
) -> Iterator[None]:
    """Open this many files in a directory, and close all of them in the end."""
    fds = []
    try:
        for number in range(files):
            fds.append(os.open(point / f"{prefix}{number}", flags, 0o644))  # noqa: PERF401
        yield
    finally:
        for fd in fds:
            os.close(fd)


def open_all(files: int, point: Path, flags: int = os.O_RDONLY, prefix: str = "file") -> None:
    """Open and close this many files in a directory, one by one."""
    with all_open(files, point, flags, prefix):
        pass


def make_files(files: int) -> None:
    """Create a new source with this many files, and let this process and servers open them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (16_000, 16_000))
    fresh_source()
    for number in range(files):
        (SOURCE / f"file{number}").write_text(f"{number}\n")


def _held(server: int) -> list[str]:
    """Return how many descriptors the server holds: for each known inode and each open file."""
    return sorted(name for name in open_files(server) if name.startswith(os.fspath(SOURCE)))


def expect_nothing_held(server: int) -> None:
    """Every lookup must be forgotten and every open released once nobody needs them."""

    def is_at_rest() -> bool:
        Path("/proc/sys/vm/drop_caches").write_text("2\n")
        return _held(server) == [os.fspath(SOURCE)]

    try:
        wait_for(is_at_rest, "")
    except TimeoutError:
        raise AssertionError(_held(server)) from None


def open_one(path: Path) -> None:
    os.close(os.open(path, os.O_RDONLY))


def disturb(point: Path, seed: int, *, apart: bool = False) -> None:
    """Open, create, rename, replace and remove a few names, through the mount and behind it.

    ``apart``: no file created through the mount is removed behind it, because some servers' create
    leaks its file if the name is gone before its lookup (passthrough_ll, up to libfuse 3.18).
    """
    rng = random.Random(seed)
    for turn in range(300):
        made = f"name{rng.randrange(4)}"
        gone = f"gone{rng.randrange(4)}" if apart else made
        there, name = point / made, rng.choice((made, gone))
        whole = f"{seed} {turn} ".encode() * 50
        with suppress(FileNotFoundError, FileExistsError):
            match rng.randrange(8):
                case 0:
                    new = SOURCE / f".new{seed}"
                    new.write_bytes(whole)
                    new.rename(SOURCE / name)
                case 1:
                    (point / name).rename(point / f"name{rng.randrange(4)}")
                case 2:
                    (there if turn % 2 else SOURCE / gone).unlink()
                case 3:
                    fd = os.open(there, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                    os.write(fd, whole)
                    os.close(fd)
                case 4:
                    os.close(os.open(there, os.O_CREAT | os.O_RDWR))
                case _:
                    data = (point / name).read_bytes()
                    # One write each, so that nothing else can be read.
                    parts = data.split()
                    assert data == b"" or data == b"%s %s " % tuple(parts[:2]) * 50, data


def kill_openers(mirror: Mirror) -> None:
    """Kill programs while they open or create a file; nothing may be held afterwards."""
    (mirror.mountpoint / "file0").read_text()
    openers = []
    for number in range(40):
        name = mirror.mountpoint / (f"file{number}" if number % 2 else f"new{number}")
        script = 'exec 3<"$1"' if number % 2 else 'exec 3>"$1"'
        openers.append(subprocess.Popen(["sh", "-c", script, "sh", name]))
        time.sleep(0.01 * (number % 7))
        openers[number // 2].kill()
    for opener in openers:
        opener.kill()
        opener.wait(60)
    expect_nothing_held(mirror.process.pid)
    assert (mirror.mountpoint / "file1").read_text() == "1\n"
