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
#: In rclone's command line; no output may contain it.
SECRET = "hunter2"  # noqa: S105 - of nobody


def _mirrorfs(source: Path, point: Path, scratch: Path) -> Command:
    return [BINARY, "-f", source, point]


def _sshfs(source: Path, point: Path, scratch: Path) -> Command:
    # Instead of ssh: the protocol is the same, without a daemon or key.
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


def _mergerfs(source: Path, point: Path, scratch: Path) -> Command:
    # The default is 4 GiB, which no tmpfs here has.
    return ["mergerfs", "-f", "-o", "minfreespace=0", source, point]


def _rclone(source: Path, point: Path, scratch: Path) -> Command:
    # There is no secret, so this command is not run; but nobody may see it.
    secret = ["--password-command", f"echo {SECRET}"]
    return ["rclone", "mount", source, point, "--config", "", "--cache-dir", scratch, *secret]


def _gocryptfs(source: Path, point: Path, scratch: Path) -> Command:
    passfile = scratch / "passfile"
    passfile.write_text(SECRET)
    _run("gocryptfs", "-init", "-q", "-scryptn", "10", "-passfile", passfile, source)
    return ["gocryptfs", "-fg", "-q", "-passfile", passfile, source, point]


def _ntfs_3g(source: Path, point: Path, scratch: Path) -> Command:
    image = scratch / "image"
    image.write_bytes(b"")
    os.truncate(image, 64 << 20)
    _run("mkntfs", "-F", "-Q", "-q", image)
    return ["ntfs-3g", "-o", "no_detach", image, point]


def _fuse_overlayfs(source: Path, point: Path, scratch: Path) -> Command:
    layers = {"lowerdir": source, "upperdir": scratch / "upper", "workdir": scratch / "work"}
    for path in list(layers.values())[1:]:
        path.mkdir(exist_ok=True)
    options = ",".join(f"{name}={path}" for name, path in layers.items())
    return ["fuse-overlayfs", "-f", "-o", options, point]


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)


_COMMANDS: Mapping[str, tuple[Callable[[Path, Path, Path], Command], tuple[str, ...]]] = {
    "mirrorfs": (_mirrorfs, (str(BINARY),)),
    "sshfs": (_sshfs, ("sshfs", str(_SFTP_SERVER))),  # libfuse 3, high level
    "bindfs": (_bindfs, ("bindfs",)),  # libfuse 2 on Debian 12
    "passthrough_ll": (_passthrough_ll, ("gcc", "pkg-config", str(_PASSTHROUGH))),
    "mergerfs": (_mergerfs, ("mergerfs",)),  # its own libfuse
    "rclone": (_rclone, ("rclone",)),  # bazil.org/fuse, Go
    "gocryptfs": (_gocryptfs, ("gocryptfs",)),  # go-fuse
    "ntfs-3g": (_ntfs_3g, ("ntfs-3g", "mkntfs")),  # its own libfuse 2
    "fuse-overlayfs": (_fuse_overlayfs, ("fuse-overlayfs",)),  # libfuse 3, low level
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
    """Return the devices of the mounts at exactly this path, the topmost last."""
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
    """Mount ``source`` at ``point`` by ``server``, as user ``uid``; yield its device (the bdi).

    Unmounted and ended afterwards, whatever happened.
    """
    with tempfile.TemporaryDirectory(prefix="server-") as name:
        command = command_of(server, source, point, Path(name))
        if options:
            command += ["-o", options]
        if uid:
            ids = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
            command = ["setpriv", *ids, "--", *command]
        with run_server(command, point, Path(name) / "log") as (_, bdi):
            yield bdi


def command_of(server: str, source: Path, point: Path, scratch: Path) -> Command:
    """Return the command that mounts ``source`` at ``point``; its files are in ``scratch``."""
    return _COMMANDS[server][0](source, point, scratch)


@contextmanager
def run_server(
    command: Command, point: Path, log: Path
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a command that mounts at ``point``; yield its process and the device (the bdi).

    Unmounted and ended afterwards, whatever happened.
    """
    point.mkdir(parents=True, exist_ok=True)
    before = mounts_at(point)
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        wait_for(
            lambda: mounts_at(point) != before or process.poll() is not None,
            f"{command[0]} to mount",
        )
        now = mounts_at(point)
        if now == before:
            raise RuntimeError(f"{command[0]} did not mount: {log.read_text(errors='replace')}")
        bdi = now[-1]
        # INIT is done once nothing waits; only then are written values not overwritten.
        major, minor = map(int, bdi.split(":"))
        waiting = Path(f"/sys/fs/fuse/connections/{major << 20 | minor}/waiting")
        wait_for(lambda: int(waiting.read_text()) == 0, f"{command[0]} to answer INIT")
        yield process, bdi
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
    """Make another mount, whose mount point is the last of ``words``, for the context."""
    subprocess.run(["mount", *words], check=True, timeout=PATIENCE)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", words[-1]], check=True, timeout=PATIENCE)


@contextmanager
def stopped(mirror: Mirror) -> Iterator[None]:
    """Stop the server, with a process's request in its queue, for the context."""
    mirror.suspend()
    waiting = Path(f"/sys/fs/fuse/connections/{mirror.bdi.partition(':')[2]}/waiting")
    visitor = subprocess.Popen(["stat", mirror.mountpoint / "any"], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: int(waiting.read_text()) > 0, "a request that is not answered")
        yield
    finally:
        mirror.process.send_signal(signal.SIGCONT)
        visitor.wait(PATIENCE)
