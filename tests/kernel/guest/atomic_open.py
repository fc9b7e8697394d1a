# SPDX-License-Identifier: GPL-2.0-or-later
"""Names looked up and opened by one request, and the same results as without."""

import errno
import os
import random
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.kernel.guest import namei_scenarios, raw
from tests.kernel.guest.rig import (
    CONTROL,
    KEEPS_FREED,
    KERNEL,
    SLOWNESS,
    SOURCE,
    copy_through,
    count,
    expect_errno,
    fresh_source,
    load,
    run,
    stock,
    tuned,
    unload,
)
from tests.native.mirror import Mirror, open_files, wait_for

FILES = 300
_ASKED = ("LOOKUP", "OPEN", "CREATE", "TUNED_HELLO", "TUNED_OPEN", "GETATTR", "SETATTR", "MKNOD")
#: Names are asked for at each open, attributes are not: not even where a check takes minutes.
_NAMES_EXPIRE = ("entry_timeout=0", "timeout=3600")

Mounting = Callable[..., AbstractContextManager[Mirror]]


def atomic(*options: str, mount: str = "") -> AbstractContextManager[Mirror]:
    """Mount the source by the module with atomic_open."""
    return tuned(*options, mount="+".join(filter(None, ("atomic_open", mount))))


def _asked(mirror: Mirror) -> dict[str, int]:
    """Return how often the server was asked what, since this was last called."""
    ops = mirror.counters()["ops"]
    mirror.reset_counters()
    return {name: ops[name]["count"] for name in _ASKED if ops[name]["count"]}


def _asked_to_make(mirror: Mirror) -> dict[str, int]:
    """Return the same without GETATTR of the directory, whose attributes each new file changes."""
    return {name: times for name, times in _asked(mirror).items() if name != "GETATTR"}


@contextmanager
def all_open(
    files: int, point: Path, flags: int = os.O_RDONLY, prefix: str = "file"
) -> Iterator[None]:
    """Open so many files of a directory, and close all of them in the end."""
    fds = []
    try:
        for number in range(files):
            fds.append(os.open(point / f"{prefix}{number}", flags, 0o644))  # noqa: PERF401
        yield
    finally:
        for fd in fds:
            os.close(fd)


def open_all(files: int, point: Path, flags: int = os.O_RDONLY, prefix: str = "file") -> None:
    """Open and close so many files of a directory, one by one."""
    with all_open(files, point, flags, prefix):
        pass


def make_files(files: int) -> None:
    """Make the source anew with this many files, and let this process and servers open them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (16_000, 16_000))
    fresh_source()
    for number in range(files):
        (SOURCE / f"file{number}").write_text(f"{number}\n")


def check_atomic_open_is_one_request() -> None:
    """Opens of names that are there, in and out of the cache, and of new ones."""
    load()
    make_files(FILES)
    with stock(*_NAMES_EXPIRE) as mirror:
        os.stat(mirror.mountpoint)
        mirror.reset_counters()
        with all_open(FILES, mirror.mountpoint):
            assert _asked(mirror) == {"LOOKUP": FILES, "OPEN": FILES}
            open_all(FILES, mirror.mountpoint)
            assert _asked(mirror) == {"LOOKUP": FILES, "OPEN": FILES}
        open_all(FILES, mirror.mountpoint, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "stock")
        assert _asked_to_make(mirror) == {"LOOKUP": FILES, "CREATE": FILES}
    with atomic(*_NAMES_EXPIRE) as mirror:
        assert ",atomic_open" in Path("/proc/self/mountinfo").read_text()
        os.stat(mirror.mountpoint)
        mirror.reset_counters()
        with all_open(FILES, mirror.mountpoint):
            assert _asked(mirror) == {"TUNED_HELLO": 1, "TUNED_OPEN": FILES}
            open_all(FILES, mirror.mountpoint)
            assert _asked(mirror) == {"TUNED_OPEN": FILES}
        open_all(FILES, mirror.mountpoint, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "new")
        open_all(FILES, mirror.mountpoint, os.O_RDWR | os.O_CREAT | os.O_EXCL, "exclusive")
        assert _asked_to_make(mirror) == {"TUNED_OPEN": 2 * FILES}
        init = (CONTROL / mirror.bdi.partition(":")[2] / "init").read_text()
        assert " tuned_open" in init, init


def check_atomic_open_is_off_unless_asked_for() -> None:
    """Without the option, and by a server that does not know it: as stock, to the request."""
    load()
    seen = []
    for mounting, options in (
        (stock, ()),
        (tuned, ()),
        (atomic, ("atomic_open=off",)),
        (atomic, ("atomic_open=echo",)),
    ):
        make_files(50)
        with mounting(*_NAMES_EXPIRE, *options) as mirror:
            mirror.reset_counters()
            with all_open(50, mirror.mountpoint):
                open_all(50, mirror.mountpoint, os.O_RDWR)
            open_all(50, mirror.mountpoint, os.O_RDWR | os.O_CREAT, "new")
            seen.append(_asked(mirror))
    hello = {"TUNED_HELLO": 1}
    assert seen == [seen[0], seen[0], seen[0], seen[0] | hello], seen


def _held(server: int) -> list[str]:
    """Return what the server holds open: each inode that is known, and each file that is open."""
    return sorted(name for name in open_files(server) if name.startswith(os.fspath(SOURCE)))


def expect_nothing_held(server: int) -> None:
    """Every lookup of a server must be forgotten, and every open released, as nobody needs them."""

    def is_at_rest() -> bool:
        Path("/proc/sys/vm/drop_caches").write_text("2\n")
        return _held(server) == [os.fspath(SOURCE)]

    try:
        wait_for(is_at_rest, "")
    except TimeoutError:
        raise AssertionError(_held(server)) from None


def check_atomic_open_gives_what_stock_gives() -> None:
    """Scenes of files made, replaced, forbidden and so on, with the same results."""
    _gives_what_stock_gives(_NAMES_EXPIRE)


def check_atomic_open_gives_what_stock_gives_by_other_timeouts() -> None:
    """The same where nothing is cached, and where everything is."""
    _gives_what_stock_gives(("timeout=0",), ("timeout=3600", "negative_timeout=3600"))


def _gives_what_stock_gives(*timeouts: tuple[str, ...]) -> None:
    load()
    for options in timeouts:
        found = []
        for mounting, more in ((stock, {}), (atomic, {"mount": "allow_other"})):
            fresh_source()
            other = () if more else ("allow_other",)
            with mounting(*options, *other, "splice=off", **more) as mirror:
                os.stat(mirror.mountpoint)
                found.append(namei_scenarios.play(mirror.mountpoint, SOURCE))
                expect_nothing_held(mirror.process.pid)
                asked = _asked(mirror)
                assert bool(more) == ("TUNED_OPEN" in asked), asked
        expected, got = found
        assert len(expected) == 4 * len(namei_scenarios.SCENARIOS)
        differ = [
            f"{options} {title}: {got[title]}, not {expected[title]}\n"
            for title in expected
            if got[title] != expected[title]
        ]
        assert not differ, "".join(differ)
        assert "b'f'" in str(expected["existing by 0"])


def check_atomic_open_knows_what_is_missing() -> None:
    """A name that the server says is not there, and for how long, is asked for once."""
    load()
    fresh_source()
    with atomic("timeout=3600", "negative_timeout=3600") as mirror:
        os.stat(mirror.mountpoint)
        expect_errno(errno.ENOENT, lambda: os.open(mirror.mountpoint / "none", os.O_RDONLY))
        mirror.reset_counters()
        for number in range(200):
            name = mirror.mountpoint / f"none{number % 100}"
            expect_errno(errno.ENOENT, partial(os.open, name, os.O_RDWR))
        assert _asked(mirror) == {"TUNED_OPEN": 100}
        for number in range(100):
            (mirror.mountpoint / f"none{number}").touch()
        # It is known that they are not there.
        assert _asked(mirror)["CREATE"] == 100
        assert len(os.listdir(SOURCE)) == 100
    with atomic("timeout=3600") as mirror:
        name = mirror.mountpoint / "late"
        expect_errno(errno.ENOENT, lambda: os.open(name, os.O_RDONLY))
        (SOURCE / "late").write_text("late")
        assert name.read_text() == "late"


def _open_one(path: Path) -> None:
    os.close(os.open(path, os.O_RDONLY))


def check_atomic_open_of_cached_names_that_expire() -> None:
    """Names whose time is over are opened by one request, by many tasks at once."""
    load()
    make_files(100)
    with atomic("entry_timeout=0.1", "timeout=3600") as mirror, all_open(100, mirror.mountpoint):
        time.sleep(0.2)
        mirror.reset_counters()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(_open_one, [mirror.mountpoint / f"file{n}" for n in range(100)]))
        assert _asked(mirror) == {"TUNED_OPEN": 100}


def check_atomic_open_with_passthrough() -> None:
    """The kernel reads and writes what TUNED_OPEN opened and made."""
    if KERNEL < (6, 12):
        return
    load()
    fresh_source()
    with atomic("passthrough", *_NAMES_EXPIRE) as mirror:
        copy_through(mirror.mountpoint)
        (SOURCE / "file").write_text("behind")
        assert (mirror.mountpoint / "file").read_text() == "behind"
        asked = mirror.counters()["ops"]
        assert [asked[name]["count"] for name in ("READ", "WRITE", "OPEN", "CREATE")] == [0] * 4
        assert asked["TUNED_OPEN"]["count"] == 3
        expect_nothing_held(mirror.process.pid)


def _open_without_right(path: Path) -> None:
    """Open, as nobody, a file of root's in a way that only its owner may, without reading it."""
    os.seteuid(namei_scenarios.NOBODY)
    os.open(path, os.O_RDONLY | os.O_NOATIME)


def _free_numbers(first: int, end: int, step: int) -> list[int]:
    """Return numbers that no task has, nor the 250th and 251st after them."""
    return [
        number
        for number in range(first, end, step)
        if not any(Path(f"/proc/{number + more}").exists() for more in (0, 250, 251))
    ]


def _ended(action: Callable[[], object], number: int) -> int | None:
    """Run ``action`` in a child of this number; return 0, its errno, or None.

    None if the number is taken: the kernel starts threads when it wants.
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
    """A revalidation that was left out, and then no open: noted for as long as the task lives.

    What a dead one has left takes no memory and nobody's place; a living one's takes a place, and
    who would have it goes as stock.
    """
    load()
    make_files(1)
    with atomic(*_NAMES_EXPIRE, mount="allow_other") as mirror, all_open(1, mirror.mountpoint):
        path = mirror.mountpoint / "file0"
        fails = partial(_open_without_right, path)
        assert raw.in_child(partial(_open_one, path)) == 0
        before, numbers = _radix_nodes(), _free_numbers(1000, 30000, 64)
        # Each in another node of a tree of tasks by their numbers.
        failed = [number for number in numbers if _ended(fails, number) == errno.EPERM]
        assert len(failed) > 400
        if not KEEPS_FREED:
            assert _radix_nodes() - before < len(failed) // 3
        mirror.reset_counters()
        ends = [_ended(partial(_open_one, path), number + 250) for number in failed[:50]]
        assert ends.count(0) > 40
        assert _asked(mirror) == {"TUNED_OPEN": ends.count(0)}
        said, told = os.pipe(), os.pipe()

        def stay() -> None:
            with suppress(PermissionError):
                _open_without_right(path)
            os.write(said[1], b"1")
            os.read(told[0], 1)

        number = _free_numbers(30000, 32000, 1)[0]
        living = raw.start(stay, number)
        os.read(said[0], 1)
        # One that shares its place, and one that does not.
        for other, asked in ((250, {"LOOKUP": 1, "OPEN": 1}), (251, {"TUNED_OPEN": 1})):
            mirror.reset_counters()
            os.waitpid(raw.start(partial(_open_one, path), number + other), 0)
            assert _asked(mirror) == asked, other
        os.write(told[1], b"1")
        os.waitpid(living, 0)
        mirror.reset_counters()
        os.waitpid(raw.start(partial(_open_one, path), number + 250), 0)
        assert _asked(mirror) == {"TUNED_OPEN": 1}
        for fd in (*said, *told):
            os.close(fd)


def _open_as_nobody(path: Path, flags: int) -> None:
    os.seteuid(namei_scenarios.NOBODY)
    os.open(path, flags, 0o600)


def check_atomic_open_by_a_server_that_claims_creation() -> None:
    """Who made a file may open it: what a server says it made without O_CREAT is an error."""
    load()
    point, created = Path("/mnt/raw"), 0x80000000
    flags = (os.O_RDONLY, os.O_RDWR, os.O_CREAT | os.O_RDWR)
    # Where nobody may make files, O_CREAT is not sent.
    for mode, last in ((0o40777, 0), (0o40755, errno.EIO)):
        options = ",default_permissions,allow_other,atomic_open"
        with raw.served(point, options, mode) as server:

            def opened(name: str, how: int, point: Path = point) -> int:
                return raw.in_child(partial(_open_as_nobody, point / name, how))

            assert [opened(f"closed{how}", how) for how in flags] == [errno.EACCES] * 3
            server.opened = created
            assert [opened(f"new{how}", how) for how in flags] == [errno.EIO, errno.EIO, last]
            server.opened = 0
            # Its name is cached then, and asked for at each open.
            with open(point / "cached", "rb"):
                server.opened = created
                for how in flags[:2]:
                    expect_errno(errno.EIO, partial(os.open, point / "cached", how))


@contextmanager
def _overlaid(lower: Path) -> Iterator[Path]:
    """Mount an overlay whose lower directory this is, and yield its mount point."""
    run("rm", "-rf", "/run/overlay")
    for name in ("upper", "work", "merged"):
        Path("/run/overlay", name).mkdir(parents=True)
    merged = Path("/run/overlay/merged")
    own = "upperdir=/run/overlay/upper,workdir=/run/overlay/work"
    run("mount", "-t", "overlay", "-o", f"lowerdir={lower},{own}", "none", merged)
    try:
        yield merged
    finally:
        run("umount", merged)


def _seen_overlaid(lower: Path) -> list[object]:
    """Return what programs see of files that change behind a mount that is an overlay's lower."""
    with _overlaid(lower) as merged:

        def seen(name: str, flags: int = os.O_RDONLY) -> object:
            try:
                return namei_scenarios.look(merged / name, flags)
            except OSError as error:
                return errno.errorcode[error.errno or 0]

        found = [seen("file0"), seen("file0"), seen("file1"), seen("none")]
        (SOURCE / "file1").write_text("longer than before")
        (SOURCE / "new").write_text("replaced")
        (SOURCE / "new").rename(SOURCE / "file2")
        found += [seen("file1"), seen("file2"), seen("file2")]
        (SOURCE / "new").write_text("replaced again")
        (SOURCE / "new").rename(SOURCE / "file0")
        (SOURCE / "file1").unlink()
        found += [seen("file0"), seen("file0"), seen("file1"), seen("file3", os.O_RDWR)]
        with (merged / "file3").open("a") as file:
            file.write("more")
        return [*found, seen("file3"), seen("file2")]


def check_atomic_open_under_an_overlay() -> None:
    """What is seen is as on stock FUSE; where overlayfs opens by the file's own path, at one go."""
    load()
    run("modprobe", "overlay")
    found, asked = [], []
    for mounting in (stock, atomic):
        make_files(4)
        with mounting("entry_timeout=0", "timeout=0", "splice=off") as mirror:
            found.append(_seen_overlaid(mirror.mountpoint))
            expect_nothing_held(mirror.process.pid)
        with mounting(*_NAMES_EXPIRE) as mirror, _overlaid(mirror.mountpoint) as merged:
            # The first open has it looked up by overlayfs, the next one has the server asked.
            for _ in range(2):
                _open_one(merged / "file3")
            _asked(mirror)
            for _ in range(10):
                _open_one(merged / "file3")
            asked.append(_asked(mirror))
    assert found[0] == found[1], found
    stock_asks = {"LOOKUP": 10, "OPEN": 10}
    assert asked == [stock_asks, {"TUNED_OPEN": 10} if KERNEL >= (6, 12) else stock_asks], asked


def disturb(point: Path, seed: int, *, apart: bool = False) -> None:
    """Open, make, rename, replace and remove a few names, through the mount and behind it.

    ``apart``: none that is made there is removed behind, for a server whose create leaks its file
    if the name has gone before its lookup (passthrough_ll, up to libfuse 3.18 at least).
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
                    # One write each, so nothing else can be seen.
                    parts = data.split()
                    assert data == b"" or data == b"%s %s " % tuple(parts[:2]) * 50, data


def check_atomic_open_at_once() -> None:
    """Names change under many openers: each reads a whole file, and nothing is left."""
    load()
    for options in (_NAMES_EXPIRE, ("entry_timeout=0.02", "timeout=3600"), ("timeout=0",)):
        fresh_source()
        with atomic(*options, "splice=off", "direct_io") as mirror:
            os.stat(mirror.mountpoint)
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(partial(disturb, mirror.mountpoint), range(8)))
            expect_nothing_held(mirror.process.pid)
            assert count(mirror, "TUNED_OPEN") > 100
    unload()


def kill_openers(mirror: Mirror) -> None:
    """Kill programs while they open one of 100 files, or make one; nothing may be held after."""
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


def check_atomic_open_of_killed_openers() -> None:
    """Nothing stays open or known for a program killed while the server opens its file."""
    load()
    make_files(100)
    with atomic(*_NAMES_EXPIRE, "delay=100ms", "splice=off") as mirror:
        kill_openers(mirror)
    unload()


def check_atomic_open_when_the_server_dies() -> None:
    """Openers get an error, and the module can be unloaded after."""
    load()
    make_files(100)
    # All openers must still wait when the server is killed.
    with atomic(*_NAMES_EXPIRE, f"delay={3 * SLOWNESS}s") as mirror:
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
