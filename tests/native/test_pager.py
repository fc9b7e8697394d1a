# SPDX-License-Identifier: GPL-2.0-or-later
"""Long output goes through a pager, which under sudo and its like starts nothing as root.

The terminal is a pseudoterminal (pty(7)). ``!`` in less runs a shell command (less(1)), unless
LESSSECURE is set.
"""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.native.mirror import CHECKOUT, PATIENCE
from tests.native.program import Fusetune
from tests.native.requirements import requires

pytestmark = requires("less")

_PROMPT = re.compile(r"(:|\(END\)|RETURN\))(\x1b\[(27m|K))*$")
_MARKED = "sed s/^/paged:/"


def on_terminal(
    fusetune: Fusetune,
    rows: int,
    *words: str,
    keys: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run a command on a terminal; return its exit code and output.

    ``keys`` are typed one after another, each when less waits for input, and then q.
    """
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", rows, 80, 0, 0))
        os.chdir(CHECKOUT)
        given = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(CHECKOUT), "TERM": "xterm"}
        line = [str(word) for word in fusetune.command(*words)]
        os.execve(line[0], line, {**given, **(environment or {})})  # noqa: S606
    shown, left = "", list(keys)
    end = time.monotonic() + PATIENCE
    try:
        while select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                shown += os.read(terminal, 65536).decode()
            except OSError:  # EIO: nobody has the other end open any more
                break
            if _PROMPT.search(shown):
                os.write(terminal, left.pop(0).encode() if left else b"q")
    finally:
        os.close(terminal)  # which sends a hangup to all remaining processes
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), shown


@pytest.mark.parametrize(
    ("rows", "words", "pager", "is_paged"),
    [
        (5, ["show", "host"], _MARKED, True),
        (200, ["show", "host"], _MARKED, False),
        (5, ["--no-pager", "show", "host"], _MARKED, False),
        (2, ["set", "host", "--dry-run", "fs.pipe-max-size=2M"], _MARKED, False),
        (5, ["show", "host"], "no-such-pager", False),
        (5, ["show", "host"], " ", False),
    ],
    ids=["long", "short", "unwanted", "a change", "no pager", "a blank"],
)
def test_what_is_longer_than_the_terminal_goes_through_the_pager(
    fusetune: Fusetune, rows: int, words: list[str], pager: str, is_paged: bool
) -> None:
    code, shown = on_terminal(fusetune, rows, *words, environment={"PAGER": pager})
    assert code == 0
    assert ("paged:" in shown) == is_paged
    assert shown.count("pipe-max-size") == 1


def test_a_pager_can_start_what_the_user_may(fusetune: Fusetune, tmp_path: Path) -> None:
    made = tmp_path / "made"
    code, _ = on_terminal(fusetune, 5, "show", "host", keys=[f"!touch {made}\r", "\r"])
    assert code == 0
    assert made.exists()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SUDO_UID", "1000"), ("DOAS_USER", "somebody"), ("PKEXEC_UID", "1000")],
    ids=["sudo", "doas", "pkexec"],
)
def test_for_another_user_the_pager_is_less_and_starts_nothing(
    fusetune: Fusetune, tmp_path: Path, variable: str, value: str
) -> None:
    made = tmp_path / "made"
    environment = {variable: value, "PAGER": f"touch {made}; cat"}
    words = ("show", "host")
    code, shown = on_terminal(fusetune, 5, *words, keys=["!", "\r"], environment=environment)
    assert code == 0
    assert "Command not available" in shown
    assert not made.exists()
