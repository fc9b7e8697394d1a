# SPDX-License-Identifier: GPL-2.0-or-later
"""Shared by the checks: the module, mounts by it and of stock, and counters."""

import errno
import mmap
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.native.mirror import PATIENCE, Mirror, mounted_at

KERNEL = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
CONTROL = Path("/sys/fs/fusetuned/connections")
MODULE = Path("/sys/module/fusetuned")
SOURCE = Path("/srv/source")
PAGE = mmap.PAGESIZE
#: How much slower a debug kernel is, which its parameters reveal.
SLOWNESS = 4 if re.search(r"\b(kasan|kcsan)", Path("/proc/cmdline").read_text()) else 1
#: Whether freed memory stays with its cache for a while: KASAN's quarantine.
KEEPS_FREED = "kasan" in Path("/proc/cmdline").read_text()


def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program; raises RuntimeError with its stderr if it fails and ``check``."""
    limit = 600.0 * SLOWNESS
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=limit)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.returncode}: {done.stderr}")
    return done


def load(*parameters: str) -> None:
    """Reload the module, and mount its control file system."""
    unload()
    run("modprobe", "fusetuned", *parameters)
    run("mount", "-t", "fusetunedctl", "none", CONTROL)


def unload() -> None:
    """Unload the module, if it is loaded."""
    if MODULE.exists():
        if mounted_at(CONTROL):
            run("umount", CONTROL)
        run("rmmod", "fusetuned")


def wait_for_end(server: subprocess.Popen[bytes]) -> None:
    """Wait for a server that must end with its mount.

    Kills it and raises TimeoutExpired if it does not: otherwise it would keep the module in use,
    and every later check would fail.
    """
    try:
        server.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(PATIENCE)
        raise


def fresh_source() -> Path:
    """Return an empty source directory."""
    run("rm", "-rf", SOURCE)
    SOURCE.mkdir(parents=True)
    return SOURCE


@contextmanager
def tuned(*options: str, mount: str = "", point: str = "/mnt/tuned") -> Iterator[Mirror]:
    """Mount the source by the module; ``mount`` are its mount options, combined with +."""
    own = (f"tuned_options={mount}",) if mount else ()
    with Mirror(SOURCE, Path(point), "tuned", *own, *options) as mirror:
        yield mirror


@contextmanager
def stock(*options: str, point: str = "/mnt/stock") -> Iterator[Mirror]:
    """Mount the source by the kernel's own FUSE."""
    with Mirror(SOURCE, Path(point), *options) as mirror:
        yield mirror


def count(mirror: Mirror, op: str, what: str = "count") -> int:
    """Return a number of the server's counters."""
    number: int = mirror.counters()["ops"].get(op, {}).get(what, 0)
    return number


def copy_through(point: Path) -> None:
    """Write, read back, rename and remove a file of odd size."""
    data = os.urandom(5000001)
    (point / "file").write_bytes(data)
    assert (point / "file").read_bytes() == data
    assert (SOURCE / "file").read_bytes() == data
    (point / "file").rename(point / "other")
    assert sorted(os.listdir(point)) == ["other"]
    (point / "other").unlink()
    assert not os.listdir(SOURCE)


def expect_errno(expected: int, action: Callable[[], object]) -> None:
    """Call ``action``, which must fail with this error."""
    got = 0
    try:
        action()
    except OSError as error:
        got = error.errno or 0
    names = errno.errorcode
    assert got == expected, f"{names.get(got, 'no error')}, not {names[expected]}"


def set_pipe_limit(size: int) -> None:
    """Set the largest size of a pipe, in bytes."""
    Path("/proc/sys/fs/pipe-max-size").write_text(f"{size}\n")


def direct(mirror: Mirror, size: int) -> None:
    """Write and read ``size`` bytes in one call each, with a page-aligned buffer."""
    data = os.urandom(size)
    fd = os.open(mirror.mountpoint / "direct", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    with mmap.mmap(-1, size) as buffer:
        buffer[:] = data
        assert os.pwrite(fd, buffer, 0) == size
        buffer[:] = bytes(size)
        assert os.preadv(fd, [buffer], 0) == size
        assert buffer[:] == data
    os.close(fd)
    assert (SOURCE / "direct").read_bytes() == data


def write_delay(milliseconds: int) -> str:
    """Return the option that makes a server's writes last until all writers have begun theirs."""
    return f"write_delay={milliseconds * SLOWNESS}ms"


def reached(wanted: int, measure: Callable[[], int]) -> bool:
    """Whether ``measure`` returns ``wanted`` in one of six tries, and not more in any before it.

    Chance decides whether writers overlap: the scheduler may run them one after another although
    nothing blocks them. One try in which they overlap shows that the kernel allows it. A try that
    returns more is a fault and ends the loop. A fault that serialises them shows in all six.
    """
    for _ in range(6):
        if (most := measure()) >= wanted:
            return most == wanted
    return False


def largest(mirror: Mirror) -> tuple[int, int]:
    """Return the pages of the largest WRITE and READ since the last call."""
    ops = mirror.counters()["ops"]
    mirror.reset_counters()
    write, read = (ops[name]["largest_bytes"] for name in ("WRITE", "READ"))
    return write // PAGE, read // PAGE


def refuses_to_mount(mount: str) -> None:
    """A mount with these options must fail with EINVAL."""
    said = "mounted"
    try:
        with tuned(mount=mount):
            pass
    except RuntimeError as error:
        said = str(error)
    assert "Invalid argument" in said, f"{mount}: {said}"
