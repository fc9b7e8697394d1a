# SPDX-License-Identifier: GPL-2.0-or-later
"""atomic_open in the tuned libfuse3: its examples open by one request, with stock's results."""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.kernel.guest import namei_scenarios, statistics_file
from tests.kernel.guest.opening import (
    all_open,
    disturb,
    expect_nothing_held,
    kill_openers,
    make_files,
    open_all,
)
from tests.kernel.guest.programs import pjdfstest
from tests.kernel.guest.rig import (
    CONTROL,
    KERNEL,
    SOURCE,
    count,
    fresh_source,
    load,
    unload,
    wait_for_end,
)
from tests.kernel.guest.tuned_library import LIBRARY, environment, served
from tests.native.mirror import (
    CHECKOUT,
    PATIENCE,
    mounted_at,
    unmount,
    wait_for,
)

#: Unmodified servers of libfuse, and how each serves the source without caching names.
_EXAMPLES = {
    "passthrough": f"modules=subdir,subdir={SOURCE}",
    "passthrough_ll": f"source={SOURCE},timeout=0",
    "hello": "entry_timeout=0",
}
_SANITIZED = "sanitized-passthrough_ll"
_EXAMPLES[_SANITIZED] = _EXAMPLES["passthrough_ll"]
_MIRRORS = ("passthrough", "passthrough_ll")
_ASKED = ("LOOKUP", "OPEN", "CREATE", "TUNED_HELLO", "TUNED_OPEN")


@dataclass
class Example:
    """A mount of one of libfuse's own servers."""

    point: Path
    process: subprocess.Popen[bytes]
    said: Path
    _seen: Counter[str]

    def asked(self) -> dict[str, int]:
        """Return the number of requests of each kind in _ASKED since the last call."""
        device = mounted_at(self.point)
        assert device
        text = (CONTROL / device.partition(":")[2] / "statistics").read_text()
        lines = statistics_file.parse(text)
        now = Counter({name: lines[name].count for name in _ASKED if name in lines})
        grown = now - self._seen
        self._seen = now
        return dict(grown)

    def expect_nothing_known(self) -> None:
        """The high-level library must free each node once nobody needs it."""

        def known() -> set[str]:
            Path("/proc/sys/vm/drop_caches").write_text("2\n")
            text = self.said.read_text(errors="replace")
            nodes = (re.findall(rf"{what}: (\d+)$", text, re.M) for what in ("NODEID", "DELETE"))
            made, gone = map(set, nodes)
            assert made
            return made - gone

        wait_for(lambda: not known(), "nodes to be forgotten", timeout=120)


@contextmanager
def example(name: str, options: str, *words: str, **more: str) -> Iterator[Example]:
    """Run one of libfuse's servers with the tuned library; ``more`` is environment."""
    point, said = Path("/mnt/tuned"), Path("/tmp/said")  # noqa: S108
    point.mkdir(exist_ok=True)
    own = {"LD_LIBRARY_PATH": str(LIBRARY), "FUSETUNE_OPTIONS": options}
    command: list[str | Path] = [LIBRARY / name, "-f", *words]
    command += ["-o", f"allow_other,default_permissions,{_EXAMPLES[name]}", point]
    with said.open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | own | more, stdout=log, stderr=log)
    try:
        wait_for(lambda: bool(mounted_at(point)) or process.poll() is not None, "mount")
        assert mounted_at(point), said.read_text()
        os.stat(point)
        mount = Example(point, process, said, Counter())
        if "tuned" in options:
            mount.asked()  # from now on it is counted
        yield mount
        assert process.poll() is None, said.read_text()[-2000:]
    finally:
        unmount(point)
        wait_for_end(process)


def check_library_atomic_open_is_one_request() -> None:
    """Unmodified servers, with libfuse's high and low level, get half the requests."""
    load()
    for name in _MIRRORS:
        for files, options, there, new in (
            (50, "tuned", ("LOOKUP", "OPEN"), ("LOOKUP", "CREATE")),
            (200, "tuned,atomic_open", ("TUNED_OPEN",), ("TUNED_OPEN",)),
        ):
            make_files(files)
            with example(name, options) as mount:
                (mount.point / "file0").read_text()
                mount.asked()
                with all_open(files, mount.point):
                    assert (asked := mount.asked()) == dict.fromkeys(there, files), asked
                    open_all(files, mount.point, os.O_RDWR)
                    assert (asked := mount.asked()) == dict.fromkeys(there, files), asked
                open_all(files, mount.point, os.O_RDWR | os.O_CREAT | os.O_TRUNC, "new")
                open_all(files, mount.point, os.O_WRONLY | os.O_CREAT | os.O_EXCL, "own")
                assert (asked := mount.asked()) == dict.fromkeys(new, 2 * files), asked


def check_library_atomic_open_gives_what_stock_gives() -> None:
    """The scenarios have the same results with each server, and each lookup is counted once.

    Only on one series with the high level, which takes long because it prints what it does.
    """
    load()
    for name in _MIRRORS if KERNEL[:2] == (6, 12) else _MIRRORS[1:]:
        found = []
        for options in ("", "tuned,atomic_open"):
            fresh_source()
            words = ("-d",) if name == "passthrough" else ()
            with example(name, options, *words) as mount:
                found.append(namei_scenarios.play(mount.point, SOURCE))
                if words:
                    mount.expect_nothing_known()
                else:
                    expect_nothing_held(mount.process.pid)
                if options:
                    assert mount.asked()["TUNED_OPEN"] > 100
        expected, got = found
        assert expected.keys() == got.keys()
        # At the high level, a file that replaces a running program gets its node and ends it.
        differ = [
            f"{name} {title}: {got[title]}, not {expected[title]}\n"
            for title in expected
            if got[title] != expected[title]
            and (name != "passthrough" or "program_that_runs" not in title)
        ]
        assert not differ, "".join(differ)


def check_library_atomic_open_keeps_rules() -> None:
    """POSIX's rules for opens, by users of all kinds, hold as on stock."""
    load()
    found = []
    for options in ("", "tuned,atomic_open"):
        fresh_source()
        with served(options, "allow_other", "entry_timeout=0") as mirror:
            if options:
                statistics_file.begin(mirror)
            found.append(pjdfstest(mirror))
            if options:
                asked = statistics_file.read(mirror)
                assert "CREATE" not in asked
                assert asked["TUNED_OPEN"].count > 40, asked
    assert found[0] == found[1], found


def check_library_atomic_open_at_once() -> None:
    """Names change under many openers, and openers are killed; threads have their own devices.

    Not with the high level: such changes behind it block its path locks forever, also on stock.
    """
    load()
    fresh_source()
    with example("passthrough_ll", "tuned,atomic_open,clone_fd,direct_io") as mount:
        _disturbed_at_once(mount.point)
        assert mount.asked()["TUNED_OPEN"] > 100
        expect_nothing_held(mount.process.pid)
    options = ("entry_timeout=0", "timeout=60", "delay=100ms", "splice=off")
    with served("tuned,atomic_open,clone_fd", *options, files=100) as mirror:
        kill_openers(mirror)
        assert count(mirror, "TUNED_OPEN") == 0
        assert count(mirror, "OPEN") > 1
    unload()


def check_library_atomic_open_sanitized() -> None:
    """The address and undefined-behaviour sanitizers watch the library while it serves opens."""
    load()
    for work in (_scenarios, _disturbed_at_once):
        fresh_source()
        with example(_SANITIZED, "tuned,atomic_open,clone_fd") as mount:
            work(mount.point)
            assert mount.asked()["TUNED_OPEN"] > 100
            expect_nothing_held(mount.process.pid)
        said = mount.said.read_text(errors="replace")
        # The server never frees its inodes, so a leak counts only if our file is in its trace.
        assert not re.search(r"ERROR: AddressSanitizer|runtime error|lib/tuned/", said), said[
            -4000:
        ]


def _scenarios(point: Path) -> None:
    namei_scenarios.play(point, SOURCE)


def _disturbed_at_once(point: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(disturb, point, apart=True), range(8)))


def check_library_atomic_open_answered_by_other_threads() -> None:
    """Late replies also give the right results; a late lookup is handled as on stock."""
    load()
    preloaded = os.fspath(CHECKOUT / "build" / "async_reply.so")
    one = {"TUNED_OPEN": 1}
    for what, there, new in (
        ("xe", one | {"OPEN": 1}, one | {"LOOKUP": 1, "CREATE": 1}),
        ("oc", one, one),
    ):
        make_files(3)
        with example(
            "passthrough_ll", "tuned,atomic_open", LD_PRELOAD=preloaded, ASYNC_REPLY=what
        ) as mount:
            (mount.point / "file0").read_text()
            mount.asked()
            assert (mount.point / "file1").read_text() == "1\n"
            assert (asked := mount.asked()) == there, asked
            (mount.point / "new").write_text("new")
            assert (asked := mount.asked()) == new, asked
            assert (mount.point / "new").read_text() == "new"
            assert mount.asked() == ({"LOOKUP": 1, "OPEN": 1} if what == "xe" else one)
            expect_nothing_held(mount.process.pid)
        assert (SOURCE / "new").read_text() == "new"


def check_library_atomic_open_answered_with_the_next() -> None:
    """A thread that replies to a lookup from within another one must not continue with it."""
    load()
    fresh_source()
    # libfuse 3.14 does not allow parallel lookups in one directory.
    names = [f"{number}/file" for number in range(2)]
    for name in names:
        (SOURCE / name).parent.mkdir()
        (SOURCE / name).write_text(name)
    preloaded = os.fspath(CHECKOUT / "build" / "async_reply.so")
    options = "tuned,atomic_open"
    with (
        ThreadPoolExecutor(2) as pool,
        example("passthrough_ll", options, LD_PRELOAD=preloaded, ASYNC_REPLY="n") as mount,
    ):
        with suppress(FileNotFoundError):
            (mount.point / "none").read_text()
        mount.asked()
        read = [pool.submit((mount.point / name).read_text) for name in names]
        try:
            assert [each.result(PATIENCE) for each in read] == names
        except TimeoutError:
            mount.process.kill()
            raise AssertionError([each.done() for each in read], mount.asked()) from None
        asked = mount.asked()
        assert (asked["TUNED_OPEN"], asked["OPEN"]) == (2, 1), asked


def check_library_atomic_open_in_two_sessions() -> None:
    """Requests of a server's two mounts have the same numbers but are not mixed up."""
    load()
    points, said = [Path("/mnt/one"), Path("/mnt/two")], Path("/tmp/said")  # noqa: S108
    for point in points:
        point.mkdir(exist_ok=True)

    def asked() -> list[str]:
        """Return the numbers of the requests of TUNED_OPEN."""
        return re.findall(rf"unique: (\d+), opcode: \S+ \({0x54554E01}\)", said.read_text())

    with (
        environment("tuned,atomic_open"),
        said.open("wb") as log,
        ThreadPoolExecutor(1) as pool,
        subprocess.Popen([CHECKOUT / "build" / "two_mounts", *points], stderr=log) as server,
    ):
        try:
            wait_for(lambda: all(map(mounted_at, points)), "mounts")
            for point in points:
                os.stat(point)  # until the reply to INIT, opens are as on stock
            waiting = pool.submit((points[1] / "file").read_text)
            wait_for(lambda: len(asked()) == 1, "the lookup that is answered later")
            assert (points[0] / "file").read_text() == "1"
            assert waiting.result(PATIENCE) == "2"
            numbers = asked()
            assert len(numbers) == 2, numbers
            assert numbers[0] == numbers[1], numbers
        except TimeoutError:
            raise AssertionError(said.read_text()[-4000:]) from None
        finally:
            server.kill()
            for point in points:
                unmount(point)


def check_library_atomic_open_by_a_server_without_create() -> None:
    """From then on it gets stock requests, and programs see the same results as before."""
    load()
    found = []
    for options in ("tuned", "tuned,atomic_open"):
        with example("hello", options) as mount:
            mount.asked()
            for name, flags in (("hello", 0), ("new", os.O_CREAT), ("none", 0), ("hello", 0)):
                try:
                    with open(os.open(mount.point / name, flags)) as file:
                        found.append(file.read())
                except OSError as error:
                    found.append(error.strerror or "")
            asked = mount.asked()
    assert found[:4] == found[4:], found
    assert found[0] == found[3] == "Hello World!\n", found
    # Two of the second mount, of which the latter fails.
    assert (asked["TUNED_OPEN"], asked["OPEN"]) == (2, 1), asked
