# SPDX-License-Identifier: GPL-2.0-or-later
"""Names are looked up and opened by one request, with the same results as on stock."""

import errno
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.kernel.guest import namei_scenarios, namei_stage
from tests.kernel.guest.opening import (
    FILES,
    NAMES_EXPIRE,
    all_open,
    asked_of,
    atomic,
    expect_nothing_held,
    make_files,
    open_all,
    open_one,
)
from tests.kernel.guest.rig import (
    CONTROL,
    KERNEL,
    SOURCE,
    copy_through,
    expect_errno,
    fresh_source,
    load,
    run,
    stock,
    tuned,
)
from tests.native.mirror import Mirror


def _asked_to_make(mirror: Mirror) -> dict[str, int]:
    """Return the same without GETATTR of the directory, whose attributes each new file changes."""
    return {name: times for name, times in asked_of(mirror).items() if name != "GETATTR"}


def check_atomic_open_is_one_request() -> None:
    """Opens of existing names, cached or not, and of new ones."""
    load()
    make_files(FILES)
    with stock(*NAMES_EXPIRE) as mirror:
        os.stat(mirror.mountpoint)
        mirror.reset_counters()
        with all_open(FILES, mirror.mountpoint):
            assert asked_of(mirror) == {"LOOKUP": FILES, "OPEN": FILES}
            open_all(FILES, mirror.mountpoint)
            assert asked_of(mirror) == {"LOOKUP": FILES, "OPEN": FILES}
        open_all(FILES, mirror.mountpoint, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "stock")
        assert _asked_to_make(mirror) == {"LOOKUP": FILES, "CREATE": FILES}
    with atomic(*NAMES_EXPIRE) as mirror:
        assert ",atomic_open" in Path("/proc/self/mountinfo").read_text()
        os.stat(mirror.mountpoint)
        mirror.reset_counters()
        with all_open(FILES, mirror.mountpoint):
            assert asked_of(mirror) == {"TUNED_HELLO": 1, "TUNED_OPEN": FILES}
            open_all(FILES, mirror.mountpoint)
            assert asked_of(mirror) == {"TUNED_OPEN": FILES}
        open_all(FILES, mirror.mountpoint, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "new")
        open_all(FILES, mirror.mountpoint, os.O_RDWR | os.O_CREAT | os.O_EXCL, "exclusive")
        assert _asked_to_make(mirror) == {"TUNED_OPEN": 2 * FILES}
        init = (CONTROL / mirror.bdi.partition(":")[2] / "init").read_text()
        assert " tuned_open" in init, init


def check_atomic_open_is_off_unless_asked_for() -> None:
    """Without the option, or with a server that does not support it, exactly stock's requests."""
    load()
    seen = []
    for mounting, options in (
        (stock, ()),
        (tuned, ()),
        (atomic, ("atomic_open=off",)),
        (atomic, ("atomic_open=echo",)),
    ):
        make_files(50)
        with mounting(*NAMES_EXPIRE, *options) as mirror:
            mirror.reset_counters()
            with all_open(50, mirror.mountpoint):
                open_all(50, mirror.mountpoint, os.O_RDWR)
            open_all(50, mirror.mountpoint, os.O_RDWR | os.O_CREAT, "new")
            seen.append(asked_of(mirror))
    hello = {"TUNED_HELLO": 1}
    assert seen == [seen[0], seen[0], seen[0], seen[0] | hello], seen


def check_atomic_open_gives_what_stock_gives() -> None:
    """Files are created, replaced, made unreadable and so on, with the same results."""
    _gives_what_stock_gives(NAMES_EXPIRE)


def check_atomic_open_gives_what_stock_gives_by_other_timeouts() -> None:
    """The same if nothing is cached, and if everything is."""
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
                asked = asked_of(mirror)
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
    """The server is asked only once for a name that does not exist, until its timeout."""
    load()
    fresh_source()
    with atomic("timeout=3600", "negative_timeout=3600") as mirror:
        os.stat(mirror.mountpoint)
        expect_errno(errno.ENOENT, lambda: os.open(mirror.mountpoint / "none", os.O_RDONLY))
        mirror.reset_counters()
        for number in range(200):
            name = mirror.mountpoint / f"none{number % 100}"
            expect_errno(errno.ENOENT, partial(os.open, name, os.O_RDWR))
        assert asked_of(mirror) == {"TUNED_OPEN": 100}
        for number in range(100):
            (mirror.mountpoint / f"none{number}").touch()
        # Their absence is cached.
        assert asked_of(mirror)["CREATE"] == 100
        assert len(os.listdir(SOURCE)) == 100
    with atomic("timeout=3600") as mirror:
        name = mirror.mountpoint / "late"
        expect_errno(errno.ENOENT, lambda: os.open(name, os.O_RDONLY))
        (SOURCE / "late").write_text("late")
        assert name.read_text() == "late"


def check_atomic_open_of_cached_names_that_expire() -> None:
    """Many tasks at once open names whose timeout has expired by one request each."""
    load()
    make_files(100)
    with atomic("entry_timeout=0.1", "timeout=3600") as mirror, all_open(100, mirror.mountpoint):
        time.sleep(0.2)
        mirror.reset_counters()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(open_one, [mirror.mountpoint / f"file{n}" for n in range(100)]))
        assert asked_of(mirror) == {"TUNED_OPEN": 100}


def check_atomic_open_with_passthrough() -> None:
    """With passthrough the kernel reads and writes files that TUNED_OPEN opened or created."""
    if KERNEL < (6, 12):
        return
    load()
    fresh_source()
    with atomic("passthrough", *NAMES_EXPIRE) as mirror:
        copy_through(mirror.mountpoint)
        (SOURCE / "file").write_text("behind")
        assert (mirror.mountpoint / "file").read_text() == "behind"
        asked = mirror.counters()["ops"]
        assert [asked[name]["count"] for name in ("READ", "WRITE", "OPEN", "CREATE")] == [0] * 4
        assert asked["TUNED_OPEN"]["count"] == 3
        expect_nothing_held(mirror.process.pid)


@contextmanager
def _overlaid(lower: Path) -> Iterator[Path]:
    """Mount an overlay with this lower directory, and yield its mount point."""
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
    """Return what programs see of files that change behind a mount below an overlay."""
    with _overlaid(lower) as merged:

        def seen(name: str, flags: int = os.O_RDONLY) -> object:
            try:
                return namei_stage.look(merged / name, flags)
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
    """Results are as on stock, by one request if overlayfs opens with the lower path."""
    load()
    run("modprobe", "overlay")
    found, asked = [], []
    for mounting in (stock, atomic):
        make_files(4)
        with mounting("entry_timeout=0", "timeout=0", "splice=off") as mirror:
            found.append(_seen_overlaid(mirror.mountpoint))
            expect_nothing_held(mirror.process.pid)
        with mounting(*NAMES_EXPIRE) as mirror, _overlaid(mirror.mountpoint) as merged:
            # At the first open overlayfs looks it up, at the next one the server is asked.
            for _ in range(2):
                open_one(merged / "file3")
            asked_of(mirror)
            for _ in range(10):
                open_one(merged / "file3")
            asked.append(asked_of(mirror))
    assert found[0] == found[1], found
    stock_asks = {"LOOKUP": 10, "OPEN": 10}
    assert asked == [stock_asks, {"TUNED_OPEN": 10} if KERNEL >= (6, 12) else stock_asks], asked
