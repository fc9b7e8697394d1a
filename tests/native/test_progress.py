# SPDX-License-Identifier: GPL-2.0-or-later
"""Progress with and without a terminal; stdout has only the result.

The terminal is a pseudoterminal (pty(7)); with stderr on it, isatty(3) is true.
"""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from tests import schemas
from tests.native.mirror import CHECKOUT, PATIENCE, Mirror
from tests.native.program import Fusetune
from tests.native.requirements import requires

pytestmark = requires("fio", "setpriv")

_COLUMNS = 80


def on_terminal(fusetune: Fusetune, *words: str | Path) -> tuple[str, str]:
    """Run a command with stderr on a terminal; return the output on stdout and terminal."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 24, _COLUMNS, 0, 0))
    shown = b""
    try:
        process = subprocess.Popen(
            fusetune.command(*words),
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=end,
        )
    finally:
        os.close(end)
    try:
        while True:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # EIO: nobody has the other end open any more
                break
        told, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(terminal)
    assert process.returncode == 0, shown
    return told.decode(), shown.decode()


@pytest.mark.alone
def test_on_a_terminal_a_bar_shows_the_time_left_and_goes(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    # On a fast server five equal samples may end the run within a second. The path is wider than
    # the terminal.
    point = tmp_path / ("x" * _COLUMNS)
    with Mirror(tmpfs_dir, point, "delay=2ms", "served=1") as mirror:
        words = ("bench", mirror.mountpoint, "-w", "seq-read", "--budget", "6s", "--json")
        told, shown = on_terminal(fusetune, *words)
    schemas.validate(json.loads(told))
    left = [int(number) for number in re.findall(r"(\d+) s left", shown)]
    assert left[0] >= 5
    assert left == sorted(left, reverse=True)
    assert left[-1] < left[0]
    assert str(point)[:10] in shown
    assert str(point) not in shown
    # It overwrites itself, is erased at the end (EL, ECMA-48), and the cursor is shown again.
    assert "\x1b[2K" in shown
    assert " of the budget used" not in shown
    assert "\x1b[?25l" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("s left")
    assert shown.rindex("\x1b[2K") > shown.rindex("s left")


def test_without_a_terminal_there_are_plain_lines(fusetune: Fusetune, mirror: Mirror) -> None:
    done = fusetune("bench", mirror.mountpoint, "-w", "seq-read", "--budget", "6s", "--json")
    assert done.returncode == 0
    schemas.validate(json.loads(done.stdout))
    lines = done.stderr.splitlines()
    assert lines
    assert all(re.search(r"\d+ s of the budget used, |% of the budget used, ", x) for x in lines)
    assert "\x1b" not in done.stderr
