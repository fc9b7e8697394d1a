# SPDX-License-Identifier: GPL-2.0-or-later
"""The checks that run in a virtual machine, in the order they stand in; never on a host.

Each is a function ``check_*``. A line of JSON a check goes to standard output.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.native.mirror import Mirror, mounted_at, unmount

KERNEL = tuple(int(part) for part in os.uname().release.split(".")[:2])
CONTROL = Path("/sys/fs/fusetuned/connections")
MODULE = Path("/sys/module/fusetuned")
SOURCE = Path("/srv/source")
ROUNDS = 50
#: What the kernel says when something is wrong with it.
_SPLAT = re.compile(r"WARNING:|BUG:|Oops|Call Trace|INFO: |refcount_t|general protection|leaked")


def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program; raises RuntimeError with its stderr if it fails and ``check``."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.returncode}: {done.stderr}")
    return done


def load(*parameters: str) -> None:
    """Load the module anew, and mount its control filesystem."""
    unload()
    run("modprobe", "fusetuned", *parameters)
    run("mount", "-t", "fusetunedctl", "none", CONTROL)


def unload() -> None:
    """Unload the module, if it is loaded."""
    if MODULE.exists():
        if mounted_at(CONTROL):
            run("umount", CONTROL)
        run("rmmod", "fusetuned")


def fresh_source() -> Path:
    """Return an empty source folder."""
    run("rm", "-rf", SOURCE)
    SOURCE.mkdir(parents=True)
    return SOURCE


@contextmanager
def tuned(*options: str, mount: str = "", point: str = "/mnt/tuned") -> Iterator[Mirror]:
    """Mount the source by the module; ``mount`` are its own options, joined by +."""
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


def check_loads_beside_stock() -> None:
    """The module has names of its own for all that the kernel's FUSE has."""
    load()
    types = Path("/proc/filesystems").read_text().split()
    wanted = {"fuse", "fuseblk", "fusectl"}
    assert wanted | {"fusetuned", "fusetunedblk", "fusetunedctl"} <= set(types), types
    assert (MODULE / "version").read_text().strip()
    assert Path("/dev/fuse").is_char_device()
    assert Path("/dev/fusetuned").is_char_device()
    assert Path("/sys/fs/fuse/connections").is_dir()
    assert CONTROL.is_dir()
    run("mount", "-t", "tracefs", "none", "/sys/kernel/tracing", check=False)
    events = Path("/sys/kernel/tracing/events")
    assert (events / "fusetuned" / "fuse_request_send").is_dir() == (KERNEL >= (6, 12))
    assert Path("/proc/sys/fs/fusetuned/max_pages_limit").exists() == (KERNEL >= (7, 2))


def check_carries_data() -> None:
    """A mount of the module is a file system, and the server sees its requests."""
    load()
    fresh_source()
    for options in (("timeout=1",), ("writeback",), ("direct_io",), ("splice=off",)):
        with tuned(*options) as mirror:
            assert " fusetuned.mirrorfs " in Path("/proc/self/mountinfo").read_text()
            copy_through(mirror.mountpoint)
            assert count(mirror, "WRITE", "bytes") >= 5000001
            connection = CONTROL / mirror.bdi.partition(":")[2]
            assert (connection / "max_background").read_text().strip() == "12"


def check_behaves_as_stock_without_options() -> None:
    """The same work makes the same requests, with the same largest ones."""
    load()
    seen = []
    for mounting in (stock, tuned):
        fresh_source()
        with mounting("splice=off", "timeout=60") as mirror:
            copy_through(mirror.mountpoint)
            with (mirror.mountpoint / "appended").open("ab", buffering=0) as file:
                for _ in range(20):
                    file.write(b"x" * 1000)
            ops = mirror.counters()["ops"]
            seen.append(
                {
                    name: {key: op[key] for key in ("count", "bytes", "largest_bytes", "errors")}
                    for name, op in ops.items()
                    if name not in ("RELEASE", "FORGET", "READ")
                }
            )
    assert seen[0] == seen[1], seen
    assert seen[0]["WRITE"]["count"] > 0


def check_stock_mounts_live_on() -> None:
    """A mount of the kernel's FUSE works before, while and after the module is there."""
    unload()
    fresh_source()
    with stock() as mirror:
        copy_through(mirror.mountpoint)
        load()
        copy_through(mirror.mountpoint)
        with tuned() as other:
            copy_through(other.mountpoint)
            copy_through(mirror.mountpoint)
        unload()
        copy_through(mirror.mountpoint)


def check_unload_is_refused_while_mounted() -> None:
    """A module in use stays, by a mount, an open device or its control filesystem."""
    load()
    fresh_source()
    run("umount", CONTROL)
    with tuned() as mirror:
        assert run("rmmod", "fusetuned", check=False).returncode != 0
        copy_through(mirror.mountpoint)
    device = os.open("/dev/fusetuned", os.O_RDWR)
    assert run("rmmod", "fusetuned", check=False).returncode != 0
    os.close(device)
    run("rmmod", "fusetuned")
    assert not MODULE.exists()


def check_rounds() -> None:
    """Loaded, mounted, used, unmounted, unloaded, again and again."""
    fresh_source()
    for _ in range(ROUNDS):
        load()
        with tuned() as mirror:
            (mirror.mountpoint / "file").write_bytes(b"x" * 10000)
            assert (mirror.mountpoint / "file").read_bytes() == b"x" * 10000
        unload()


def check_killed_server() -> None:
    """A server's death aborts its mount, and the module can go after it."""
    load()
    fresh_source()
    with tuned() as mirror:
        mirror.kill()
        expect_errno(errno.ENOTCONN, lambda: os.listdir(mirror.mountpoint))
        mirror.unmount()
    unload()


def _splats(log: int) -> list[str]:
    """Return the complaints among what the kernel said since last asked."""
    lines = []
    while True:
        try:
            lines.append(os.read(log, 8192).decode(errors="replace").partition(";")[2])
        except BlockingIOError:
            return [line.splitlines()[0] for line in lines if _SPLAT.search(line)]
        except BrokenPipeError:
            continue  # overwritten before it was read


def _report(check: str, seconds: float, failure: str) -> None:
    entry: dict[str, Any] = {"check": check, "seconds": round(seconds, 1), "failure": failure}
    print(json.dumps(entry), flush=True)


def names() -> list[str]:
    """Return the names of all checks, in order."""
    return [name for name in globals() if name.startswith("check_")]


def main() -> None:
    """Run every check and report on it."""
    if not Path("/rig/start").exists():
        sys.exit("guest: for a virtual machine of tests/kernel only")
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    _splats(log)
    # The server's own folder must not be under what is read-only here.
    os.environ["TMPDIR"] = "/tmp"  # noqa: S108
    run("modprobe", "fuse")
    for name in names():
        started, failure = time.monotonic(), ""
        try:
            globals()[name]()
        except Exception:  # noqa: BLE001
            failure = traceback.format_exc()
            for point in ("/mnt/tuned", "/mnt/stock"):
                unmount(Path(point))
        failure += "".join(f"kernel: {line}\n" for line in _splats(log))
        _report(name, time.monotonic() - started, failure)
    _report("end", 0, "")


if __name__ == "__main__":
    main()
