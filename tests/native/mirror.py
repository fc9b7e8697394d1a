# SPDX-License-Identifier: GPL-2.0-or-later
"""A mirrorfs mount for tests, with its counters; always cleaned up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
BINARY = CHECKOUT / "build" / "mirrorfs"
MOUNTINFO = Path("/proc/self/mountinfo")
#: The control file systems of the kernel's FUSE and of the tuned module.
_CONTROL = (Path("/sys/fs/fuse/connections"), Path("/sys/fs/fusetuned/connections"))

#: Seconds after which any wait fails.
PATIENCE = 60.0


def wait_for(
    condition: Callable[[], bool], what: str | Callable[[], str], timeout: float = PATIENCE
) -> None:
    """Poll until ``condition()`` holds; raises TimeoutError naming ``what`` after ``timeout`` s.

    ``what``: a function if it tells the state at the end.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            told = what if isinstance(what, str) else what()
            raise TimeoutError(f"waited {timeout:g} s for {told}")
        time.sleep(0.005)


def state_in(stat: Path) -> str:
    """Return the state of a process or thread from its ``stat`` in /proc, such as R, S or T."""
    return stat.read_text().rpartition(")")[2].split()[0]


def unescape(field: str) -> str:
    """Undo the octal escapes of a path in mountinfo (proc(5))."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        field = field.replace(code, chr(int(code[1:], 8)))
    return field


def mounted_at(mountpoint: Path) -> str | None:
    """The ``MAJOR:MINOR`` of the mount at exactly this path, or None."""
    found = None
    for line in MOUNTINFO.read_text().splitlines():
        fields = line.split()
        if unescape(fields[4]) == str(mountpoint):
            found = fields[2]
    return found


def open_files(pid: int) -> list[str]:
    """What a process has open, according to its links in /proc/PID/fd."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed after it was listed
            found.append(os.readlink(link))
    return found


def children(pid: int) -> list[int]:
    """Return the child processes that the main thread of a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def unmount(mountpoint: Path) -> None:
    """Unmount what is mounted at this path, if anything; if busy, detach it."""
    for command in (["fusermount3", "-u"], ["umount", "-l"]):
        if mounted_at(mountpoint) is None:
            return
        subprocess.run(
            [*command, str(mountpoint)],
            check=False,
            timeout=PATIENCE,
            stderr=subprocess.DEVNULL,
        )


class Mirror:
    """A running mirrorfs; mounted when the constructor returns.

    ``options`` are ``-o`` options such as ``"delay=2ms"``. The context manager ends the server,
    unmounts and reaps, whatever happened. The mount point is created if it does not exist. After
    ``lifetime`` seconds the server is killed, so that a test that waits in the mount gets ENOTCONN
    instead of waiting forever.
    """

    lifetime = 300.0

    def __init__(
        self, source: Path, mountpoint: Path, *options: str, binary: Path | None = None
    ) -> None:
        self.source = source
        self.mountpoint = mountpoint.resolve()
        self.mountpoint.mkdir(parents=True, exist_ok=True)
        # Not beside source or mount, because both belong to the test.
        self._scratch = tempfile.TemporaryDirectory(prefix="mirrorfs-")
        self._counters = Path(self._scratch.name) / "counters.json"
        self._log = Path(self._scratch.name) / "stderr"
        command = [str(binary or BINARY), "-f", str(source), str(self.mountpoint)]
        for option in (*options, f"counters={self._counters}"):
            command += ["-o", option]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
        # A separate process: one that waits in a FUSE mount cannot be killed, and none of its
        # threads could then end the server.
        self._watchdog = subprocess.Popen(
            [
                *("sh", "-c", 'sleep "$1"; kill -KILL "$2"', "watchdog"),
                *(str(self.lifetime), str(self.process.pid)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.bdi = ""
        self._ended = False
        try:
            wait_for(self._is_ready, f"mount of {self.mountpoint}")
        except BaseException:
            self._ended = True  # the failure is reported already
            self._clean_up()
            raise

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"mirrorfs ended with {self.process.returncode}: {self.log()}")
        if not self.bdi:
            self.bdi = mounted_at(self.mountpoint) or ""
        if not (self.bdi and self._counters.exists() and self.counters()["init"]):
            return False
        # Until the reply to INIT, it is open what the kernel will send; and the server counts
        # INIT before it replies.
        connection = self.bdi.partition(":")[2]
        files = (root / connection / "waiting" for root in _CONTROL)
        return not any(file.exists() and file.read_text().strip() != "0" for file in files)

    def suspend(self) -> None:
        """Stop the server by SIGSTOP; return when none of its threads can reply any more.

        A thread stops only when it is next scheduled, and may reply before that.
        """
        self.process.send_signal(signal.SIGSTOP)
        wait_for(self._is_stopped, "the server's stop")

    def _is_stopped(self) -> bool:
        try:
            states = [
                state_in(file) for file in Path(f"/proc/{self.process.pid}/task").glob("*/stat")
            ]
        except (FileNotFoundError, ProcessLookupError):  # a thread ended meanwhile
            return False
        return bool(states) and set(states) <= {"T", "t"}

    def log(self) -> str:
        """What the server has written to stderr so far."""
        return self._log.read_text(errors="replace")

    def _read(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._counters.read_bytes())
        return document

    def _ask(self, sig: signal.Signals, key: str) -> dict[str, Any]:
        """Send a signal and return the first document in which ``key`` has grown."""
        before = self._read()[key]
        self.process.send_signal(sig)
        wait_for(
            lambda: self._read()[key] > before or self.process.poll() is not None,
            f"a counters document after {sig.name}",
        )
        document = self._read()
        if document[key] <= before:
            raise RuntimeError(f"mirrorfs ended with {self.process.returncode}: {self.log()}")
        return document

    def counters(self) -> dict[str, Any]:
        """The current counters; after the server's end, its last document."""
        if self.process.poll() is not None:
            return self._read()
        return self._ask(signal.SIGUSR1, "sequence")

    def reset_counters(self) -> None:
        """Set all counters to zero."""
        self._ask(signal.SIGUSR2, "resets")

    def stop(self) -> int:
        """End the server by SIGTERM, wait for it, and return its exit status."""
        self._ended = True
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill the server; the dead mount stays until ``unmount``."""
        self._ended = True
        self.process.kill()
        self.process.wait(PATIENCE)

    def unmount(self) -> None:
        """Unmount if anything is mounted; if busy, detach it."""
        unmount(self.mountpoint)

    def _clean_up(self) -> None:
        """End everything. Raises RuntimeError if the server fails and no test caused that."""
        asked = self._ended
        try:
            status = self.stop()
            if status and not asked:
                raise RuntimeError(f"mirrorfs ended with {status}: {self.log()}")
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            if self._watchdog.poll() is None:
                os.killpg(self._watchdog.pid, signal.SIGKILL)
                self._watchdog.wait(PATIENCE)
            self.unmount()
            self._scratch.cleanup()

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, *exception: object) -> None:
        self._clean_up()
