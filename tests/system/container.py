# SPDX-License-Identifier: GPL-2.0-or-later
"""A container with its own systemd and udevd, and with fusetune installed.

It shares the kernel, bdi devices, FUSE connections and sysctls with the host.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.native.mirror import unescape, wait_for
from tests.system import tree

_RIG = Path(__file__).with_name("rig.sh")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
#: Seconds; a boot takes one and a half.
PATIENCE = 30.0

Word = str | Path


def _parents() -> dict[int, tuple[int, str]]:
    """Return every process: pid -> its parent and its name (proc(5), /proc/PID/stat)."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            head, _, tail = Path(f"/proc/{entry}/stat").read_text().rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        found[int(entry)] = (int(tail.split()[1]), head.partition("(")[2])
    return found


class Inside(subprocess.Popen[str]):
    """A process in a container. Signals go to itself, not to nsenter, which then ends too."""

    def __init__(self, leader: int, words: tuple[Word, ...], **how: Any) -> None:
        enter = ["nsenter", f"--target={leader}", *("--mount", "--uts", "--ipc", "--net", "--pid")]
        super().__init__([*enter, "--", *words], env=_ENVIRONMENT, text=True, **how)

    def send_signal(self, sig: int) -> None:
        """Send ``sig`` to the program, or to nsenter if that has not started it yet."""
        if self.poll() is not None:
            return
        children = [pid for pid, (parent, _) in _parents().items() if parent == self.pid]
        for pid in children or [self.pid]:
            os.kill(pid, sig)


class Container:
    """A booted container for the duration of the context; afterwards nothing of it remains.

    Programs run as root. Files written there survive ``restart``, but not the context. ``suite``
    is its Debian release, ``packages`` are installed in it, and ``parts`` are the directories of
    the checkout whose `make install` is run for it.
    """

    def __init__(
        self,
        suite: str = "bookworm",
        packages: Sequence[str] = tree.HOST_PACKAGES,
        parts: Sequence[str] = tree.PARTS,
    ) -> None:
        self._suite, self._packages, self._parts = suite, packages, parts
        self._installed = Path()
        self._started: list[Inside] = []
        self._rig: subprocess.Popen[bytes] | None = None
        self.leader = 0

    def __enter__(self) -> Container:
        try:
            base = tree.tree(self._suite, self._packages)
            self._installed = Path(tempfile.mkdtemp(prefix="fusetune-installed-"))
            tree.install(self._installed, self._parts)
            self._console = tempfile.TemporaryFile()
            self._rig = subprocess.Popen(
                [_RIG, "boot", base, self._installed],
                stdin=subprocess.PIPE,
                stdout=self._console,
                stderr=self._console,
                start_new_session=True,
            )
            self._wait_for_boot()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._rig:
            assert self._rig.stdin
            self._rig.stdin.close()
            self._rig.wait(PATIENCE)
            self._console.close()
        for process in self._started:
            process.wait(PATIENCE)  # killed with the container
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        if self._installed.name:
            shutil.rmtree(self._installed, ignore_errors=True)  # if the rig did not start

    def _console_text(self) -> str:
        self._console.seek(0)
        return self._console.read().decode(errors="replace")

    def _find_leader(self) -> bool:
        """Find the container's systemd: nspawn's child, among the rig's descendants."""
        assert self._rig
        if self._rig.poll() is not None:
            raise RuntimeError(f"the container ended: {self._console_text()}")
        processes = _parents()
        for pid, (parent, name) in processes.items():
            if name == "systemd" and processes.get(parent, (0, ""))[1] == "systemd-nspawn":
                up = parent
                while up and up != self._rig.pid:
                    up = processes.get(up, (0, ""))[0]
                if up:
                    self.leader = pid
                    return True
        return False

    def _is_up(self) -> bool:
        if not self._find_leader():
            return False
        state = self.run("systemctl", "is-system-running", "--wait", check=False)
        return state.stdout.strip() in ("running", "degraded")

    def _wait_for_boot(self) -> None:
        try:
            wait_for(self._is_up, "the container to boot", PATIENCE)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; console: {self._console_text()}") from error
        # nspawn mounts its own boot_id over the kernel's, but units with ProtectKernelTunables= get
        # a new /proc and see the kernel's. On a host there is only one.
        self._boot = self.run("cat", _BOOT_ID).stdout.strip().replace("-", "")
        # Lazily: a program that is reading it at this moment keeps it busy.
        self.run("umount", "--lazy", _BOOT_ID)

    def start(self, *words: Word, **how: Any) -> Inside:
        """Start a program without waiting for it; it ends with the container at the latest.

        ``how`` is for Popen, such as ``stdout=subprocess.PIPE``.
        """
        how = {"stdin": subprocess.DEVNULL, **how}
        self._started.append(Inside(self.leader, words, **how))
        return self._started[-1]

    def run(
        self,
        *words: Word,
        check: bool = True,
        timeout: float = PATIENCE,
        input: str | None = None,  # noqa: A002  (as subprocess.run names it)
    ) -> subprocess.CompletedProcess[str]:
        """Run a program until it ends.

        Raises RuntimeError with its stderr if it fails and ``check``; TimeoutExpired after
        ``timeout`` seconds.
        """
        pipe = subprocess.PIPE
        stdin = subprocess.DEVNULL if input is None else pipe
        with Inside(self.leader, words, stdin=stdin, stdout=pipe, stderr=pipe) as process:
            try:
                out, err = process.communicate(input, timeout)
            except BaseException:
                process.kill()
                raise
        if check and process.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: status {process.returncode}: {err}")
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def restart(self, *, crash: bool = False) -> None:
        """Boot again with the same files, after a reboot or as after a power failure."""
        gone = os.pidfd_open(self.leader)
        try:
            if crash:
                os.kill(self.leader, signal.SIGKILL)
            else:
                self.run("systemctl", "--no-block", "reboot", check=False)
            if not select.select([gone], [], [], PATIENCE)[0]:
                raise TimeoutError(f"the container does not go down: {self._console_text()}")
        finally:
            os.close(gone)
        self._wait_for_boot()

    def path(self, inside: str) -> Path:
        """Return the host's path of a file in the running container, valid until ``restart``.

        No part of it may be an absolute symbolic link (such as /var/run), which would be followed
        on the host. For a path in a FUSE mount use ``run``, which has a timeout.
        """
        return Path(f"/proc/{self.leader}/root") / inside.lstrip("/")

    def journal(self, unit: str) -> list[str]:
        """Return what the unit, and systemd about it, have logged since boot."""
        self.run("journalctl", "--sync")
        how = (f"--boot={self._boot}", "--output=cat", "--no-pager")
        said = self.run("journalctl", "--unit", unit, *how)
        return said.stdout.splitlines()

    def mounted_at(self, point: str) -> str | None:
        """Return the ``MAJOR:MINOR`` of the mount at exactly this path, or None."""
        found = None
        for line in Path(f"/proc/{self.leader}/mountinfo").read_text().splitlines():
            fields = line.split(" ")
            if unescape(fields[4]) == point:
                found = fields[2]
        return found

    @contextmanager
    def mirror(self, point: str, *options: str, uid: int = 0) -> Iterator[str]:
        """Mount /srv at the new directory ``point``, by mirrorfs as user ``uid``; yield its bdi.

        INIT is done by then. Afterwards it is unmounted, whatever happened to the server.
        """
        self.run("install", "-d", f"--owner={uid}", point)
        user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
        chosen = [word for option in options for word in ("-o", option)]
        server = self.start(*user, "mirrorfs", "-f", *chosen, "/srv", point)
        try:
            self.wait(lambda: bool(self.mounted_at(point)), f"mount of {point}")
            bdi = self.mounted_at(point) or ""
            waiting = Path(f"/sys/fs/fuse/connections/{bdi.partition(':')[2]}/waiting")
            self.wait(lambda: int(self.run("cat", waiting).stdout) == 0, "INIT's answer")
            yield bdi
        finally:
            server.terminate()
            server.wait(PATIENCE)
            if self.mounted_at(point):
                self.run("umount", "--lazy", point)

    def wait(
        self, condition: Callable[[], bool], what: str = "", timeout: float = PATIENCE
    ) -> None:
        """Poll until ``condition()`` holds; raises TimeoutError naming ``what``."""
        wait_for(condition, what or condition.__name__, timeout)
