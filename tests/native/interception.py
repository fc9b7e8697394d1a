# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs run by fusetune-intercept, with the kernel's own FUSE instead of the module.

Its option max_read stands for the module's: a mount with this value was intercepted.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.native.mirror import CHECKOUT, MOUNTINFO, PATIENCE, children, unescape, wait_for
from tests.native.servers import mounts_at

BINARY = CHECKOUT / "build" / "fusetune-intercept"
OPTION = "max_read=77824"
INTERCEPT = (str(BINARY), "--type", "fuse", "--options", OPTION, "--")
CASES = (sys.executable, "-m", "tests.native.intercepted")


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends, whatever its exit code."""
    return subprocess.run(
        [*words],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def mount_at(point: Path) -> tuple[str, str]:
    """Return type and options of the one mount at ``point``."""
    for line in MOUNTINFO.read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        if unescape(fields.split(" ")[4]) == str(point):
            fstype, _, options = tail.split(" ")
            return fstype, options
    raise AssertionError(f"nothing is mounted at {point}")


def alive() -> list[int]:
    """Return the processes that run fusetune-intercept."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it ended meanwhile
            if entry.name.isdigit() and os.readlink(entry / "exe") == str(BINARY):
                found.append(int(entry.name))
    return found


def parties_of(server: int) -> tuple[int, int]:
    """Return supervisor and listener of a server, once it has called execve(2)."""
    mark = f"INTERCEPTED={os.getpid()}-{server}".encode()

    def supervisors() -> list[int]:
        found = []
        now = alive()
        for pid in [] if server in now else sorted(now):
            with suppress(OSError):  # it ended meanwhile
                if mark in Path(f"/proc/{pid}/environ").read_bytes() and children(pid):
                    found.append(pid)
        return found

    wait_for(lambda: bool(supervisors()), "the listener")
    supervisor = supervisors()[0]
    return supervisor, children(supervisor)[0]


@contextmanager
def running(point: Path, name: str = "ask", *more: str) -> Iterator[subprocess.Popen[str]]:
    """Run a case; by default the one that mounts at ``point`` for each input line."""
    point.mkdir(exist_ok=True)
    # The mark distinguishes this server's listener from others.
    shell = 'INTERCEPTED="$0-$$" exec "$@"'
    process = subprocess.Popen(
        ["sh", "-c", shell, str(os.getpid()), *INTERCEPT, *CASES, name, str(point), *more],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        while mounts_at(point):
            subprocess.run(["umount", "--lazy", point], check=True, timeout=PATIENCE)


def ask(process: subprocess.Popen[str]) -> None:
    """Send a line: mount once."""
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> str:
    """Return the next line of output."""
    assert process.stdout
    assert select.select([process.stdout], [], [], PATIENCE)[0], "no answer"
    return process.stdout.readline().strip()
