# SPDX-License-Identifier: GPL-2.0-or-later
"""top compared with the server's counters, with a stopped server, and in a real terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from fusetune.host import Host
from fusetune.top.screen import rendered
from fusetune.top.watching import Watching
from tests import schemas
from tests.native.conftest import AS_NOBODY
from tests.native.mirror import CHECKOUT, PATIENCE, Mirror, wait_for
from tests.native.program import Fusetune, Started
from tests.native.raw import RawMounts
from tests.native.requirements import requires
from tests.native.traced import BLOCK, fill, ops, programs, read_direct, served

pytestmark = [requires(), pytest.mark.xdist_group("probes")]


def _frame(process: Started) -> dict[str, Any]:
    """Return the next frame."""
    assert process.stdout
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    return schemas.validate(json.loads(line))


def _at(frame: dict[str, Any], mirror: Mirror) -> dict[str, Any]:
    (found,) = (one for one in frame["mounts"] if one["path"] == str(mirror.mountpoint))
    return dict(found)


def _end(process: Started, number: signal.Signals) -> float:
    """End it by a signal; return how many seconds it took."""
    begun = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return time.monotonic() - begun


@requires("bpftrace", "bpftool")
@pytest.mark.usefixtures("tracefs")
def test_counts_are_the_servers(fusetune: Fusetune, mirror: Mirror) -> None:
    file = fill(mirror, 1024)
    process = fusetune.start("top", mirror.mountpoint, "-i", "0.5s", "--json")
    assert _frame(process)["mounts"][0]["counted_by"] == "bpftrace"
    assert len(programs()) == 2
    mirror.reset_counters()
    read_direct(file, 0, 5000, 1024)
    wait_for(lambda: not any(one["in_flight"] for one in ops(mirror).values()), "rest")
    counts: Counter[str] = Counter()
    nbytes = unrecorded = 0
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        shown = _at(_frame(process), mirror)
        if counts and not shown["operations"]:
            break
        for one in shown["operations"]:
            counts[one["operation"]] += one["requests"]
            if one["operation"] == "READ":
                nbytes += one["bytes"]
                assert 0 < one["latency_us"]["p50"] <= one["latency_us"]["p99"]
                assert one["requests_per_second"] * shown["seconds"] == pytest.approx(
                    one["requests"], rel=0.01
                )
        assert shown["lost"] == 0
        unrecorded += shown["unrecorded"]
    assert counts == served(mirror)
    # Unrecorded requests are estimated from the others, which have the same size.
    assert nbytes == pytest.approx(5000 * BLOCK, rel=0.001)
    assert unrecorded < 5000
    # The kernel takes a while to remove each probe.
    assert _end(process, signal.SIGINT) < 3
    assert programs() == []


@contextmanager
def _stopped(mirror: Mirror, callers: int) -> Iterator[None]:
    """A server that is stopped, and programs that wait for it."""
    mirror.suspend()
    waiting = [
        subprocess.Popen(
            ["stat", mirror.mountpoint / str(number)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(callers)
    ]
    try:
        yield
    finally:
        mirror.process.send_signal(signal.SIGCONT)
        for one in waiting:
            one.wait(PATIENCE)


def test_a_stopped_server_is_marked_and_hangs_nothing(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path, tmpfs_dir: Path
) -> None:
    (tmpfs_dir / "other").mkdir()
    with Mirror(tmpfs_dir / "other", tmp_path / "other") as other, _stopped(mirror, 3):
        process = fusetune.start("top", "-i", "0.5s", "--json")
        begun = time.monotonic()
        while (shown := _at(frame := _frame(process), mirror))["unanswered_seconds"] < 2:
            assert time.monotonic() < begun + PATIENCE
        assert (shown["counted_by"], shown["in_flight"], shown["mean_in_flight"]) == (
            *("fusectl", 3),
            3,
        )
        assert shown["background_limit_share"] == 0
        assert _at(frame, other)["unanswered_seconds"] == 0
        assert "by" in fusetune("top", "-i", "0.1s", "-n", "1").stdout
        assert _end(process, signal.SIGTERM) < 1


def test_a_named_mount_lies_on_others(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path, tmpfs_dir: Path
) -> None:
    (tmpfs_dir / "other").mkdir()
    (mirror.mountpoint / "inner").mkdir()
    with (
        Mirror(mirror.mountpoint / "inner", tmp_path / "upper") as upper,
        Mirror(tmpfs_dir / "other", tmp_path / "other"),
    ):
        # Without rights it traces nothing, and says so.
        words = ("top", upper.mountpoint, "-i", "0.2s", "-n", "1", "--json")
        done = fusetune(*words, before=AS_NOBODY)
        assert done.returncode == 0, done.stderr
        shown = schemas.validate(json.loads(done.stdout))["mounts"]
        assert shown[0]["why"] == "only root may trace the kernel; run fusetune as root"
        assert [one["path"] for one in shown] == [str(upper.mountpoint), str(mirror.mountpoint)]
        assert [one["path"] for one in shown[0]["below"]] == [str(mirror.mountpoint)]


def test_a_mount_that_goes_ends_it(fusetune: Fusetune, mirror: Mirror) -> None:
    hide = 'mount --bind /dev/null "$(command -v bpftrace)"; exec "$@"'
    hidden = ("unshare", "--mount", "--propagation", "unchanged", "sh", "-c", hide, "sh")
    done = fusetune("top", mirror.mountpoint, "-i", "0.2s", "-n", "1", before=hidden)
    assert "are not counted: bpftrace is not installed: apt install bpftrace" in done.stdout
    process = fusetune.start("top", mirror.mountpoint, "-i", "0.2s", "--json")
    _frame(process)
    mirror.unmount()
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, f"fusetune: {mirror.mountpoint} was unmounted\n")


@pytest.mark.parametrize("words", ["-i 0.01s", "-i 0", "-n 0", "host"])
def test_wrong_use(fusetune: Fusetune, words: str) -> None:
    fusetune.fails("top", *words.split(), code=2)


@pytest.mark.parametrize(("count", "most"), [(20, 0.01), (1000, 0.2)])
def test_what_a_frame_costs(
    tmp_path: Path, count: int, most: float, figure: Callable[[str], None]
) -> None:
    """Under 1 % of a core for 20 mounts and one frame per second, and 0.2 s for 1,000 mounts."""
    with (
        RawMounts(count, tmp_path),
        closing(Watching(Host(), None, 1.0, trace=False)) as watching,
    ):
        seconds = []
        for _ in range(5):
            begun = time.process_time()
            for _ in range(round(1 / watching.look_every)):
                watching.look()
            frame = watching.frame()
            rendered(frame, 80, 24, 1.0)
            seconds.append(time.process_time() - begun)
        assert len(frame.mounts) == count
        assert min(seconds) < most
        figure(f"{count} mounts: {min(seconds) * 1000:.1f} ms a frame")


# A terminal


class Terminal:
    """A terminal on which top runs without a mount's name."""

    def __init__(self, fusetune: Fusetune, columns: int, lines: int) -> None:
        self._ours, self._its = pty.openpty()
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            fusetune.command("top", "-i", "3s"),
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "TERM": "xterm"},
            stdin=self._its,
            stdout=self._its,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one thread
        )
        self._drawn = ""

    def resize(self, columns: int, lines: int) -> None:
        """Change its size, which the kernel signals to the program."""
        fcntl.ioctl(self._its, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def screen(self, *, has: str, within: float = PATIENCE) -> list[str]:
        """Return the lines of the next screen with these words, within this many seconds."""
        self._drawn = ""
        end = time.monotonic() + within
        while time.monotonic() < end:
            self._read()
            for one in self._drawn.split("\x1b[H")[1:]:
                if has in one and one.endswith("\x1b[J"):  # it is complete
                    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", one).split("\r\r\n")
        raise TimeoutError(f"no screen had {has!r}: {self._drawn!r}")

    def _read(self) -> None:
        if select.select([self._ours], [], [], 0.1)[0]:
            self._drawn += os.read(self._ours, 65536).decode()

    def rest(self) -> str:
        """Return its last output after it has ended."""
        self.process.wait(PATIENCE)
        self._drawn = ""
        self._read()
        return self._drawn

    def modes(self) -> list[Any]:
        """Return the terminal's input modes."""
        return termios.tcgetattr(self._its)

    def close(self) -> None:
        """End the program and the terminal."""
        self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._ours)
        os.close(self._its)


def test_in_a_terminal(fusetune: Fusetune, mirror: Mirror) -> None:
    terminal = Terminal(fusetune, 80, 24)
    try:
        modes = terminal.modes()
        row = str(mirror.mountpoint)[-20:]
        lines = terminal.screen(has=row)
        assert len(lines) <= 24
        assert max(map(cell_len, lines)) <= 80
        assert row in lines[3]
        assert terminal.modes() != modes
        terminal.resize(200, 50)
        lines = terminal.screen(has=str(mirror.mountpoint), within=2)  # before the next interval
        assert max(map(cell_len, lines)) <= 200
        assert lines[3].startswith(f"{mirror.mountpoint} ctl ")
        terminal.type(b"s")
        assert "s sort: requests" in terminal.screen(has="sort: requests", within=2)[1]
        begun = time.monotonic()
        terminal.type(b"q")
        assert terminal.rest().endswith("\x1b[?25h\x1b[?1049l")
        assert terminal.process.returncode == 0
        assert time.monotonic() - begun < 1
        assert terminal.modes() == modes
    finally:
        terminal.close()
