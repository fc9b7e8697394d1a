# SPDX-License-Identifier: GPL-2.0-or-later
"""Opens by one request fail, are killed, or disturb each other; nothing is held afterwards."""

import errno
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.kernel.guest import namei_stage, raw
from tests.kernel.guest.opening import (
    NAMES_EXPIRE,
    all_open,
    asked_of,
    atomic,
    disturb,
    expect_nothing_held,
    kill_openers,
    make_files,
    open_one,
)
from tests.kernel.guest.rig import (
    KEEPS_FREED,
    SLOWNESS,
    count,
    expect_errno,
    fresh_source,
    load,
    unload,
)
from tests.native.mirror import wait_for


def _open_without_right(path: Path) -> None:
    """As nobody, open a file of root in a way that only its owner may, without reading it."""
    os.seteuid(namei_stage.NOBODY)
    os.open(path, os.O_RDONLY | os.O_NOATIME)


def _free_numbers(first: int, end: int, step: int) -> list[int]:
    """Return pids that are free, as are the 250th and 251st after them."""
    return [
        number
        for number in range(first, end, step)
        if not any(Path(f"/proc/{number + more}").exists() for more in (0, 250, 251))
    ]


def _ended(action: Callable[[], object], number: int) -> int | None:
    """Run ``action`` in a child with this pid; return 0, its errno, or None.

    None if the pid is taken, because the kernel may start threads at any time.
    """
    try:
        child = raw.start(action, number)
    except FileExistsError:
        return None
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _radix_nodes() -> int:
    lines = Path("/proc/slabinfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("radix_tree_node "))


def check_atomic_open_keeps_no_notes_of_failed_opens() -> None:
    """If no open follows a skipped revalidation, its note stays while the task lives.

    The note of a dead task takes no memory and blocks nobody's place. That of a living one blocks
    its place, and tasks with the same place revalidate as stock.
    """
    load()
    make_files(1)
    with atomic(*NAMES_EXPIRE, mount="allow_other") as mirror, all_open(1, mirror.mountpoint):
        path = mirror.mountpoint / "file0"
        fails = partial(_open_without_right, path)
        assert raw.in_child(partial(open_one, path)) == 0
        before, numbers = _radix_nodes(), _free_numbers(1000, 30000, 64)
        # Each in another node of the tree of pids.
        failed = [number for number in numbers if _ended(fails, number) == errno.EPERM]
        assert len(failed) > 400
        if not KEEPS_FREED:
            assert _radix_nodes() - before < len(failed) // 3
        mirror.reset_counters()
        ends = [_ended(partial(open_one, path), number + 250) for number in failed[:50]]
        assert ends.count(0) > 40
        assert asked_of(mirror) == {"TUNED_OPEN": ends.count(0)}
        said, told = os.pipe(), os.pipe()

        def stay() -> None:
            with suppress(PermissionError):
                _open_without_right(path)
            os.write(said[1], b"1")
            os.read(told[0], 1)

        number = _free_numbers(30000, 32000, 1)[0]
        living = raw.start(stay, number)
        os.read(said[0], 1)
        # One with the same place, and one with another.
        for other, asked in ((250, {"LOOKUP": 1, "OPEN": 1}), (251, {"TUNED_OPEN": 1})):
            mirror.reset_counters()
            os.waitpid(raw.start(partial(open_one, path), number + other), 0)
            assert asked_of(mirror) == asked, other
        os.write(told[1], b"1")
        os.waitpid(living, 0)
        mirror.reset_counters()
        os.waitpid(raw.start(partial(open_one, path), number + 250), 0)
        assert asked_of(mirror) == {"TUNED_OPEN": 1}
        for fd in (*said, *told):
            os.close(fd)


def _open_as_nobody(path: Path, flags: int) -> None:
    os.seteuid(namei_stage.NOBODY)
    os.open(path, flags, 0o600)


def check_atomic_open_by_a_server_that_claims_creation() -> None:
    """If a server claims to have created a file without O_CREAT, the open is an error."""
    load()
    point, created = Path("/mnt/raw"), 0x80000000
    flags = (os.O_RDONLY, os.O_RDWR, os.O_CREAT | os.O_RDWR)
    # In a directory where nobody may create files, O_CREAT is not sent.
    for mode, last in ((0o40777, 0), (0o40755, errno.EIO)):
        options = ",default_permissions,allow_other,atomic_open"
        with raw.served(point, options, mode) as server:

            def opened(name: str, how: int, point: Path = point) -> int:
                return raw.in_child(partial(_open_as_nobody, point / name, how))

            assert [opened(f"closed{how}", how) for how in flags] == [errno.EACCES] * 3
            server.opened = created
            assert [opened(f"new{how}", how) for how in flags] == [errno.EIO, errno.EIO, last]
            server.opened = 0
            # From then on its name is cached, and revalidated at each open.
            with open(point / "cached", "rb"):
                server.opened = created
                for how in flags[:2]:
                    expect_errno(errno.EIO, partial(os.open, point / "cached", how))


def check_atomic_open_at_once() -> None:
    """Names change while many tasks open them: each reads a whole file; all are closed."""
    load()
    for options in (NAMES_EXPIRE, ("entry_timeout=0.02", "timeout=3600"), ("timeout=0",)):
        fresh_source()
        with atomic(*options, "splice=off", "direct_io") as mirror:
            os.stat(mirror.mountpoint)
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(partial(disturb, mirror.mountpoint), range(8)))
            expect_nothing_held(mirror.process.pid)
            assert count(mirror, "TUNED_OPEN") > 100
    unload()


def check_atomic_open_of_killed_openers() -> None:
    """If a program is killed while the server opens its file, nothing stays open or looked up."""
    load()
    make_files(100)
    with atomic(*NAMES_EXPIRE, "delay=100ms", "splice=off") as mirror:
        kill_openers(mirror)
    unload()


def check_atomic_open_when_the_server_dies() -> None:
    """Openers get an error, and the module can be unloaded after."""
    load()
    make_files(100)
    # All openers must still wait when the server is killed.
    with atomic(*NAMES_EXPIRE, f"delay={3 * SLOWNESS}s") as mirror:
        openers = [
            subprocess.Popen(["sh", "-c", 'exec 3<"$1"', "sh", mirror.mountpoint / f"file{number}"])
            for number in range(10)
        ]
        wait_for(lambda: count(mirror, "TUNED_OPEN", "in_flight") > 0, "TUNED_OPEN")
        mirror.kill()
        for opener in openers:
            assert opener.wait(60) != 0
        expect_errno(errno.ENOTCONN, lambda: os.open(mirror.mountpoint / "file0", os.O_RDONLY))
        mirror.unmount()
    unload()
