# SPDX-License-Identifier: GPL-2.0-or-later
"""A node's namespaces, as seen from the host, and the values of a mount in them."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.native.mirror import unescape, wait_for

FUSECTL = "/sys/fs/fuse/connections"
STOCK = {"read_ahead_kb": 128, "max_background": 12}
TUNED = {"read_ahead_kb": 1024, "max_background": 64}


class Namespaces:
    """The namespaces of a node; ``leader`` is its first process, ``kinds`` are those to enter."""

    kinds: tuple[str, ...] = ("--mount", "--pid")

    def __init__(self) -> None:
        self.leader = 0
        self._process: subprocess.Popen[str] | None = None

    def _start(self, *command: str | Path) -> str:
        """Start the node's program, which ends with its stdin, and return its first line."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )
        assert self._process.stdout
        return self._process.stdout.readline()

    def _end(self, patience: float) -> None:
        """End the node's program, and after so many seconds kill it."""
        assert self._process
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(patience)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.stdout.close()

    def enter(self, *kinds: str) -> list[str]:
        """Return the beginning of a command that runs in these namespaces."""
        return ["nsenter", f"--target={self.leader}", *kinds, "--"]

    def run(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the node."""
        command = [*self.enter(*self.kinds), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if check:
            assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def path(self, inside: str) -> Path:
        """Return this host's path of a file of the node. Not for what lies in a FUSE mount."""
        return Path(f"/proc/{self.leader}/root") / inside.lstrip("/")

    def device(self, point: str) -> str:
        """Return the ``MAJOR:MINOR`` of what is mounted at a path of the node, or nothing."""
        lines = Path(f"/proc/{self.leader}/mountinfo").read_text().splitlines()
        found = [fields[2] for fields in map(str.split, lines) if unescape(fields[4]) == point]
        return found[-1] if found else ""

    def values(self, bdi: str) -> dict[str, int]:
        """Return the values of a mount that tests set."""
        connection = f"{FUSECTL}/{bdi.partition(':')[2]}"
        files = {
            "read_ahead_kb": Path("/sys/class/bdi", bdi, "read_ahead_kb"),
            "max_background": self.path(f"{connection}/max_background"),
        }
        return {name: int(file.read_text()) for name, file in files.items()}

    def become(self, bdi: str, wanted: Mapping[str, int], seconds: float = 1.0) -> None:
        """Wait until a mount has these values."""
        try:
            wait_for(lambda: self.values(bdi) == wanted, "values", seconds)
        except TimeoutError as error:
            raise AssertionError(f"{self.values(bdi)}, not {wanted}") from error
