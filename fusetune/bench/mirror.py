# SPDX-License-Identifier: GPL-2.0-or-later
"""Mounts to compare with: mirrorfs over a tmpfs, and that tmpfs itself."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.control import mount_controls, waiting
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount

_MOUNT_SECONDS = 5.0


def mirrorfs_binary() -> str:
    """Return mirrorfs's path: $FUSETUNE_MIRRORFS, this checkout's, or the installed one.

    Raises FusetuneError if there is none.
    """
    built = Path(__file__).resolve().parents[2] / "build" / "mirrorfs"
    for candidate in (os.environ.get("FUSETUNE_MIRRORFS"), built, shutil.which("mirrorfs")):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise FusetuneError(
        "mirrorfs is not installed: install the package fusetune-mirrorfs, or run 'make' in a "
        "checkout"
    )


def native(directory: Path) -> Mount:
    """Return a directory outside FUSE as a mount that can be measured."""
    number = directory.stat().st_dev
    return Mount(
        str(directory.resolve()), "tmpfs", "fusetune", f"{os.major(number)}:{os.minor(number)}"
    )


@contextmanager
def tmpfs(host: Host) -> Iterator[Path]:
    """Yield a fresh tmpfs with a directory ``source``, and remove it afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="calibrate-", dir=host.make_dir(host.run_dir)))
    try:
        command(["mount", "-t", "tmpfs", "-o", "mode=0700", "fusetune", str(directory)])
        try:
            (directory / "source").mkdir()
            yield directory
        finally:
            command(["umount", "--lazy", str(directory)])
    finally:
        directory.rmdir()


@contextmanager
def mirror(host: Host, binary: str, source: Path, point: Path, options: str) -> Iterator[Mount]:
    """Mount mirrorfs on ``point`` while the context lasts."""
    point.mkdir()
    process = subprocess.Popen(
        [binary, "-f", *(["-o", options] if options else []), str(source), str(point)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield _when_mounted(host, process, point)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_MOUNT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            command(["umount", "--lazy", str(point)])


def _when_mounted(host: Host, process: subprocess.Popen[bytes], point: Path) -> Mount:
    """Return the mount once the server has replied to INIT, which overwrites read_ahead_kb."""
    deadline = time.monotonic() + _MOUNT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(FusetuneError):
            mount_controls(host)
            mount = find(host, str(point))
            if not waiting(host, mount):
                return mount
        time.sleep(0.01)
    said = process.communicate()[1] if process.returncode is not None else b""
    raise FusetuneError(said.decode("utf-8", "replace").strip() or "mirrorfs did not mount")


def command(words: list[str]) -> None:
    """Run a program. Raises FusetuneError with its message if it fails.

    SIGINT from the terminal does not reach it, because mount(8) could end before it says that it
    has mounted something.
    """
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise FusetuneError(f"{words[0]} failed: {said[0]}")
