# SPDX-License-Identifier: GPL-2.0-or-later
"""A running service, its notifications (sd_notify(3)), and what it leaves behind."""

import os
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.native.conftest import STOCK, sysfs_values
from tests.native.mirror import CHECKOUT, PATIENCE, wait_for
from tests.native.program import Fusetune

KEPT = {
    "read_ahead_kb": 4096,
    "max_background": 64,
    "congestion_threshold": 48,
    "max_ratio": 20,
    "strict_limit": 1,
}
PIPE = Path("/proc/sys/fs/pipe-max-size")
LIMIT = Path("/proc/sys/fs/fuse/max_pages_limit")
SECTION = "[[mount]]\n" + "".join(
    f"{name} = {value}\n" for name, value in KEPT.items() if name != "strict_limit"
)


class Watching:
    """A running ``fusetune watch``, ready once constructed; killed at the end of the context."""

    def __init__(self, fusetune: Fusetune, idle: float = 600.0) -> None:
        self._stack = ExitStack()
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="watch-")))
        self._log = directory / "stderr"
        self._socket = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._socket.bind(str(directory / "notify"))
        self.notified: list[str] = []
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                fusetune.command("watch", "--idle", f"{idle}"),
                cwd=CHECKOUT,
                env={**os.environ, "NOTIFY_SOCKET": str(directory / "notify")},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            wait_for(lambda: self.told("READY=1") or self.process.poll() is not None, "it")
        except BaseException:
            self.__exit__()
            raise

    def told(self, word: str) -> bool:
        """Whether it has notified its supervisor of ``word``."""
        try:
            while True:
                text = self._socket.recv(4096, socket.MSG_DONTWAIT).decode()
                self.notified += text.split()
        except BlockingIOError:
            return word in self.notified

    def said(self, text: str = "") -> list[str]:
        """Return the lines on stderr that contain ``text``."""
        return [line for line in self._log.read_text().splitlines() if text in line]

    def saying(self, text: str, timeout: float = PATIENCE) -> None:
        """Wait for such a line."""
        wait_for(lambda: bool(self.said(text)), lambda: f"{text!r} in {self.said()}", timeout)

    def saying_lines(self, count: int, text: str = "") -> list[str]:
        """Wait for ``count`` such lines and return them; values are set before they are logged."""
        wait_for(lambda: len(self.said(text)) >= count, lambda: f"{count} lines in {self.said()}")
        assert len(self.said(text)) == count
        return self.said(text)

    def reload(self) -> None:
        """Send SIGHUP and wait until it has taken effect."""
        count = self.notified.count("READY=1")
        self.process.send_signal(signal.SIGHUP)
        wait_for(
            lambda: self.told("READY=1") and self.notified.count("READY=1") > count, "a reload"
        )

    def end(self, number: signal.Signals | None = None) -> None:
        """Let it end, because it is idle or by signal ``number``; it must end cleanly."""
        if number:
            self.process.send_signal(number)
        assert self.process.wait(60) == 0, "\n".join(self.said()[-20:])
        assert self.told("STOPPING=1")
        assert not self.said("Traceback")

    def __enter__(self) -> "Watching":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(PATIENCE)
        self._stack.close()


def has(bdi: str, **values: int) -> None:
    """Wait until the mount has these values, and stock's for the others."""
    wanted = STOCK | values
    wait_for(lambda: sysfs_values(bdi) == wanted, lambda: f"{wanted}, not {sysfs_values(bdi)}")


def _left(fusetune: Fusetune) -> list[Path]:
    directories = (fusetune.run, fusetune.state / "undo")
    return [file for directory in directories if directory.exists() for file in directory.iterdir()]


def nothing_left(fusetune: Fusetune) -> None:
    assert _left(fusetune) == []


def cleared(fusetune: Fusetune) -> None:
    """Wait until the service has forgotten the mounts that are gone, or has ended."""
    wait_for(lambda: not _left(fusetune), "the end of what is remembered")
