# SPDX-License-Identifier: GPL-2.0-or-later
"""FUSE servers of several libraries and kinds, each mounted for as long as a test needs it.

A new one is one more entry of ``_COMMANDS``.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.native.mirror import BINARY, MOUNTINFO, PATIENCE, Mirror, unescape, wait_for

_SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")
_PASSTHROUGH = Path("/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c")

Command = list[str | Path]


def _mirrorfs(source: Path, point: Path, scratch: Path) -> Command:
    return [BINARY, "-f", source, point]


def _sshfs(source: Path, point: Path, scratch: Path) -> Command:
    # In place of ssh: the protocol is the same, and no daemon or key is needed.
    ssh = scratch / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {_SFTP_SERVER}\n")
    ssh.chmod(0o755)
    return ["sshfs", "-f", "-o", f"ssh_command={ssh}", f"localhost:{source}", point]


def _bindfs(source: Path, point: Path, scratch: Path) -> Command:
    return ["bindfs", "-f", source, point]


def _passthrough_ll(source: Path, point: Path, scratch: Path) -> Command:
    program = scratch / "passthrough_ll"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    subprocess.run(
        ["gcc", "-D_FILE_OFFSET_BITS=64", "-o", program, _PASSTHROUGH, *flags.stdout.split()],
        check=True,
        timeout=60,
    )
    return [program, "-f", "-o", f"source={source}", point]


_COMMANDS: Mapping[str, tuple[Callable[[Path, Path, Path], Command], tuple[str, ...]]] = {
    "mirrorfs": (_mirrorfs, (str(BINARY),)),
    "sshfs": (_sshfs, ("sshfs", str(_SFTP_SERVER))),  # libfuse 3, high level
    "bindfs": (_bindfs, ("bindfs",)),  # libfuse 2 on Debian 12
    "passthrough_ll": (_passthrough_ll, ("gcc", "pkg-config", str(_PASSTHROUGH))),
}
SERVERS = tuple(_COMMANDS)


def missing(server: str) -> list[str]:
    """Return what ``server`` needs and this host lacks."""
    lacking = [] if os.geteuid() == 0 else ["root"]
    lacking += [] if os.access("/dev/fuse", os.R_OK | os.W_OK) else ["/dev/fuse"]
    for need in _COMMANDS[server][1]:
        if not (Path(need).exists() if need.startswith("/") else shutil.which(need)):
            lacking.append(need)
    return lacking


def mounts_at(point: Path) -> list[str]:
    """Return the devices of what is mounted at exactly this path, the topmost last."""
    found = []
    for line in MOUNTINFO.read_text(errors="surrogateescape").split("\n"):
        fields = line.split(" ")
        if len(fields) > 4 and unescape(fields[4]) == str(point):
            found.append(fields[2])
    return found


@contextmanager
def serve(
    server: str, source: Path, point: Path, *, uid: int = 0, options: str = ""
) -> Iterator[str]:
    """Mount ``source`` at ``point`` by ``server``, as user ``uid``; give its device (the bdi).

    Unmounted and ended afterwards, whatever happened.
    """
    point.mkdir(parents=True, exist_ok=True)
    before = mounts_at(point)
    with tempfile.TemporaryDirectory(prefix="server-") as name:
        command = _COMMANDS[server][0](source, point, Path(name))
        if options:
            command += ["-o", options]
        if uid:
            ids = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
            command = ["setpriv", *ids, "--", *command]
        log = Path(name) / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
            )
        try:
            wait_for(
                lambda: mounts_at(point) != before or process.poll() is not None,
                f"{server} to mount",
            )
            now = mounts_at(point)
            if now == before:
                raise RuntimeError(f"{server} did not mount: {log.read_text(errors='replace')}")
            bdi = now[-1]
            # INIT is settled once nothing waits: only then do values stay as they are written.
            waiting = Path(f"/sys/fs/fuse/connections/{bdi.partition(':')[2]}/waiting")
            wait_for(lambda: int(waiting.read_text()) == 0, f"{server} to answer INIT")
            yield bdi
        finally:
            _end(process, point, before)


def _end(process: subprocess.Popen[bytes], point: Path, before: list[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)
    while len(mounts_at(point)) > len(before):
        subprocess.run(["umount", "--lazy", point], check=True, timeout=PATIENCE)


@contextmanager
def also_mounted(*words: str | bytes | Path) -> Iterator[None]:
    """Mount something more, the mount point last of ``words``, while the context lasts."""
    subprocess.run(["mount", *words], check=True, timeout=PATIENCE)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", words[-1]], check=True, timeout=PATIENCE)


@contextmanager
def stopped(mirror: Mirror) -> Iterator[None]:
    """Stop the server, with a request of some process in its queue, while the context lasts."""
    mirror.process.send_signal(signal.SIGSTOP)
    waiting = Path(f"/sys/fs/fuse/connections/{mirror.bdi.partition(':')[2]}/waiting")
    visitor = subprocess.Popen(["stat", mirror.mountpoint / "any"], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: int(waiting.read_text()) > 0, "a request that is not answered")
        yield
    finally:
        mirror.process.send_signal(signal.SIGCONT)
        visitor.wait(PATIENCE)
