# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of the system, run with a time limit and without a terminal."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from fusetune.errors import FusetuneError, reason

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_TEXT = 1 << 16
_REAPED = 1.0
#: Is called again and again while something is waited for, with the seconds that it may still take.
Waits = Callable[[float], None]


def _silent(left: float) -> None:
    pass


class Running:
    """A running program. On an error it is killed, and left behind if even that fails.

    Its output goes to a file, because a server that it starts keeps standard error open.
    """

    def __init__(self, words: Sequence[str], **variables: str) -> None:
        """Start it in its own process group. Raises FusetuneError if it is not installed."""
        path = shutil.which(words[0], path=_PATH)
        if path is None:
            raise FusetuneError(f"{words[0]} is not installed")
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - __exit__ closes it
        try:
            self._process = subprocess.Popen(
                [path, *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env={**os.environ, "PATH": _PATH, "LC_ALL": "C.UTF-8", **variables},
                start_new_session=True,
            )
        except OSError as error:
            self._output.close()
            raise FusetuneError(f"cannot run {path}: {reason(error)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_REAPED)
        self._output.close()

    def status(self, seconds: float = 0.0, waits: Waits = _silent) -> int | None:
        """Return the exit status, waiting up to ``seconds``; None if it still runs."""
        end = time.monotonic() + seconds
        while (status := self._process.poll()) is None and time.monotonic() < end:
            waits(end - time.monotonic())
            time.sleep(0.01)
        return status

    def output(self) -> str:
        """Return its output so far, at most 64 KiB."""
        return os.pread(self._output.fileno(), _MOST_TEXT, 0).decode("utf-8", "replace").strip()


def run(
    words: Sequence[str], seconds: float, waits: Waits = _silent, **variables: str
) -> tuple[int, str]:
    """Run a program to its end; return its exit status and output.

    Raises FusetuneError if it is not installed or does not end in time.
    """
    with Running(words, **variables) as program:
        status = program.status(seconds, waits)
        if status is None:
            raise FusetuneError(
                f"{words[0]} did not finish within {seconds:.0f} s; check for a hung mount"
            )
        return status, program.output()
