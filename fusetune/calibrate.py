# SPDX-License-Identifier: GPL-2.0-or-later
"""What FUSE can do on this host at best: mirrorfs over tmpfs, in several ways, and tmpfs itself."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fusetune.apply import enforce
from fusetune.bench import Budget
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.measure import Measurement, measure
from fusetune.mounts import Mount, find
from fusetune.workloads import Workload

NATIVE = "tmpfs itself"
# How mirrorfs is mounted in each series, and the live values that it then gets.
_SERIES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "mirrorfs, stock": ("", {}),
    "mirrorfs, tuned": (
        "writeback,no_xattr",  # with xattr on, every write asks for security.capability
        {
            "read_ahead_kb": 2048,
            "max_background": 64,
            "congestion_threshold": 48,
            "max_ratio": 100,
            "strict_limit": 0,
        },
    ),
    "mirrorfs, passthrough": ("passthrough", {}),
}
_MOUNT_SECONDS = 5.0


def mirrorfs_binary() -> str:
    """Return mirrorfs's path: $FUSETUNE_MIRRORFS, this checkout's, or the installed one.

    Raises FusetuneError where there is none.
    """
    built = Path(__file__).resolve().parent.parent / "build" / "mirrorfs"
    for candidate in (os.environ.get("FUSETUNE_MIRRORFS"), built, shutil.which("mirrorfs")):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise FusetuneError(
        "mirrorfs is not there: install the package fusetune-mirrorfs, or 'make' in a checkout"
    )


def calibrate(
    host: Host,
    mount: Mount | None,
    workloads: Sequence[Workload],
    budget: Budget,
    *,
    size: int | None = None,
    progress: Callable[[float, str], None] = lambda share, words: None,
) -> list[Measurement]:
    """Measure every series in turn, and ``mount`` among them if one is given.

    Raises FusetuneError where nothing can be mounted (not root), or a measurement fails.
    """
    if os.geteuid() != 0:
        raise FusetuneError("--calibrate mounts tmpfs and mirrorfs; run it as root")
    binary = mirrorfs_binary()
    absent: dict[str, str] = {}
    with ExitStack() as contexts:
        folder = contexts.enter_context(_tmpfs(host))
        mounts = {mount.path: mount} if mount else {}
        for number, (label, (options, values)) in enumerate(_SERIES.items()):
            point = folder / f"mount{number}"
            try:
                mounts[label] = contexts.enter_context(
                    _mirror(host, binary, folder / "source", point, options)
                )
            except FusetuneError as error:
                absent[label] = str(error)
                continue
            enforce(host, mounts[label], values)
        mounts[NATIVE] = _native(folder / "source")
        measured = measure(host, mounts, workloads, budget, size=size, progress=progress)
    return measured + [Measurement(label, None, [], absent=why) for label, why in absent.items()]


def _native(folder: Path) -> Mount:
    number = folder.stat().st_dev
    return Mount(str(folder), "tmpfs", "fusetune", f"{os.major(number)}:{os.minor(number)}")


@contextmanager
def _tmpfs(host: Host) -> Iterator[Path]:
    """Give a fresh tmpfs with a folder ``source`` in it; nothing is left of it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="calibrate-", dir=host.make_dir(host.run_dir)))
    try:
        _command(["mount", "-t", "tmpfs", "-o", "mode=0700", "fusetune", str(folder)])
        try:
            (folder / "source").mkdir()
            yield folder
        finally:
            _command(["umount", "--lazy", str(folder)])
    finally:
        folder.rmdir()


@contextmanager
def _mirror(host: Host, binary: str, source: Path, point: Path, options: str) -> Iterator[Mount]:
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
            _command(["umount", "--lazy", str(point)])


def _when_mounted(host: Host, process: subprocess.Popen[bytes], point: Path) -> Mount:
    deadline = time.monotonic() + _MOUNT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            return find(host, str(point))
        except FusetuneError:
            time.sleep(0.01)
    said = process.communicate()[1] if process.returncode is not None else b""
    raise FusetuneError(said.decode("utf-8", "replace").strip() or "mirrorfs did not mount")


def _command(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FusetuneError(f"{words[0]} failed: {done.stderr.strip()}")
