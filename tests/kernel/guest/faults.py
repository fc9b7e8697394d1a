# SPDX-License-Identifier: GPL-2.0-or-later
"""Allocations fail one after another, in a kernel with fault injection and kmemleak."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kernel.guest.rig import SOURCE, copy_through, fresh_source, load, run, tuned, unload
from tests.native.mirror import CHECKOUT, mounted_at

_DEBUG = Path("/sys/kernel/debug")
#: No call here has more allocations.
_MOST = 500
#: Errors that a call may return if an allocation failed.
_EXPECTED = {0, errno.ENOMEM, errno.EFAULT, errno.EIO, errno.ENFILE}
_OPTIONS = "atomic_open+parallel_extend"
#: Seconds; kmemleak ignores younger objects.
_AGE = 6


def _debugfs() -> Path:
    if not (_DEBUG / "failslab").exists():
        run("mount", "-t", "debugfs", "none", _DEBUG)
    return _DEBUG


def _may_fail() -> None:
    """Let allocations that may sleep fail as well, without a log line for each."""
    directory = _debugfs()
    for kind in ("failslab", "fail_page_alloc"):
        (directory / kind / "ignore-gfp-wait").write_text("N")
        (directory / kind / "verbose").write_text("0")
    (directory / "fail_page_alloc" / "ignore-gfp-highmem").write_text("N")
    (directory / "fail_page_alloc" / "min-order").write_text("0")


def _nth(number: int, what: str, target: Path, options: str = "") -> tuple[int, bool]:
    """Return the errno of a call, and whether its Nth allocation failed."""
    program = CHECKOUT / "build" / "fail_nth"
    failed, injected = run(program, str(number), what, target, options).stdout.split()
    assert int(failed) in _EXPECTED, f"{what} {number}: {os.strerror(int(failed))}"
    return int(failed), injected == "1"


def _each(call: Callable[[int], bool]) -> int:
    """Let the first allocation of a call fail, then the second, ...; return how many there are."""
    for number in range(1, _MOST):
        if not call(number):
            return number - 1
    raise AssertionError(f"{_MOST} allocations, and still not all of them")


@contextmanager
def _point() -> Iterator[Path]:
    point = Path("/mnt/nth")
    point.mkdir(exist_ok=True)
    try:
        yield point
    finally:
        while mounted_at(point):
            run("umount", "-l", point)


def _mounts(what: str) -> int:
    """Mounting, or the reply to INIT, with a server that exits afterwards."""

    def call(number: int) -> bool:
        with _point() as point:
            failed, injected = _nth(number, what, point, _OPTIONS.replace("+", ","))
            if what == "mount":
                assert bool(mounted_at(point)) == (failed == 0), number
            if mounted_at(point):
                run("umount", point)
        return injected

    return _each(call)


def _unmount() -> int:
    def call(number: int) -> bool:
        fresh_source()
        with tuned(mount=_OPTIONS) as mirror:
            (mirror.mountpoint / "file").write_bytes(b"x" * 5000)
            failed, injected = _nth(number, "unmount", mirror.mountpoint)
            if failed:
                run("umount", mirror.mountpoint)
            assert not mounted_at(mirror.mountpoint)
        return injected

    return _each(call)


def _uses(what: str, *options: str) -> int:
    """A call in a mount, which still works after all the failures."""
    fresh_source()
    with tuned("timeout=0", *options, mount=_OPTIONS) as mirror:

        def call(number: int) -> bool:
            path = mirror.mountpoint / f"file{number}"
            if what == "list":
                path = mirror.mountpoint
            elif what != "create":
                (SOURCE / path.name).write_bytes(b"x" * 20000)
            return _nth(number, what, path)[1]

        found = _each(call)
        for path in SOURCE.iterdir():
            path.unlink()
        copy_through(mirror.mountpoint)
    return found


def check_failed_allocations() -> dict[str, int]:
    """Each allocation of mount, open, write, unmount and others fails once; all work afterwards."""
    load()
    _may_fail()
    found = {what: _mounts(what) for what in ("mount", "init")}
    for what in ("open", "create", "truncate", "stat", "list", "read", "write", "map"):
        found[what] = _uses(what)
    found["append"] = _uses("append", "direct_io")
    found["unmount"] = _unmount()
    assert all(found[what] for what in ("mount", "open", "write")), found
    unload()
    return found


def check_nothing_leaked() -> None:
    """All memory allocated by earlier checks is in use or freed."""
    kmemleak = _debugfs() / "kmemleak"
    unload()
    for _ in range(2):
        time.sleep(_AGE)
        kmemleak.write_text("scan")
    said = kmemleak.read_text()
    assert not said, said
