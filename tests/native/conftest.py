# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for tests on real mounts, and a check that each test leaves the host unchanged.

Everything happens in a separate mount namespace, so other work on the host neither sees nor
disturbs these mounts, and the kernel drops them when the test run ends, however it ends.
"""

import ctypes
import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusetune.host import ADMIN_DIR, RUN_DIR, STATE_DIR
from fusetune.knobs import LIVE, SYSTEM
from fusetune.mounts.mount import FUSECTL
from fusetune.syscalls import CLONE_NEWNS, MS_PRIVATE, propagate, unshare
from tests.native.mirror import BINARY, CHECKOUT, MOUNTINFO, PATIENCE, Mirror, unescape
from tests.native.program import Fusetune
from tests.native.requirements import requires
from tests.native.servers import SERVERS, missing, serve
from tests.tmpfs import tmpfs, tracefs

#: A user other than root, with an entry in /etc/passwd for fusermount3.
NOBODY = 65534
AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")
CONNECTIONS = Path("/sys/fs/fuse/connections")
#: The live knobs of a mount of the kernel's FUSE.
_KNOBS = [knob for knob in LIVE if knob.init_line is None]
#: Their values if the server requests none.
STOCK = {knob.name: knob.stock for knob in _KNOBS if knob.stock is not None}
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER = 36
_HOST_VALUES = [Path("/", knob.file) for knob in SYSTEM]


# The values, straight from the kernel


def sysfs_files(bdi: str) -> dict[str, Path]:
    """Return the file of each live knob of the mount with this bdi (``0:43``), by knob."""
    major, minor = (int(part) for part in bdi.partition("-")[0].split(":"))
    names = {"bdi": bdi, "control": FUSECTL, "connection": str(major << 20 | minor)}
    return {knob.name: Path("/", knob.file.format(**names)) for knob in _KNOBS}


def sysfs_values(bdi: str) -> dict[str, int]:
    """Read the live knobs of the mount with this bdi, without any code under test."""
    return {name: int(file.read_text()) for name, file in sysfs_files(bdi).items()}


def write_sysfs(bdi: str, **values: int) -> None:
    """Write live knobs by hand, as an administrator does with echo."""
    for name, value in values.items():
        sysfs_files(bdi)[name].write_text(f"{value}\n")


# Nothing is left behind


def _mounts() -> list[str]:
    """Return all mounts except of the kernel's own file systems, in the order of mounting."""
    found = []
    for line in MOUNTINFO.read_text(errors="surrogateescape").split("\n"):
        fields, _, tail = line.partition(" - ")
        fstype = tail.partition(" ")[0]
        if (fstype.startswith("fuse") and fstype != "fusectl") or fstype == "tmpfs":
            words = fields.split(" ")
            found.append(f"{words[0]} {unescape(words[4])}")
    return found


def _processes() -> dict[int, str]:
    """Return this process's living descendants: pid -> command line."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if state not in "ZX":
            parents[int(entry.name)] = (
                int(parent),
                words.replace(b"\0", b" ").decode(errors="replace"),
            )
    ours: dict[int, str] = {}
    known = {os.getpid()}
    while more := {p for p, (up, _) in parents.items() if up in known and p not in known}:
        known |= more
        ours |= {pid: parents[pid][1] for pid in more}
    return ours


def _host_values() -> dict[Path, str]:
    return {file: file.read_text() for file in _HOST_VALUES if file.exists()}


def _own_files() -> set[Path]:
    return {
        file
        for directory in (RUN_DIR, STATE_DIR, ADMIN_DIR)
        if directory.exists()
        for file in (directory, *directory.rglob("*"))
    }


def _run(*words: str | Path, check: bool = True) -> None:
    subprocess.run(words, check=check, timeout=PATIENCE)


@pytest.fixture(scope="session", autouse=True)
def own_namespace() -> None:
    """Give the tests a mount namespace without other FUSE mounts, and adopt orphans.

    Programs that they start heed SIGINT and SIGHUP, even if this one was told to ignore them.
    """
    _heed_signals()
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        return
    unshare(CLONE_NEWNS)
    propagate("/", MS_PRIVATE)
    # A server that daemonises or loses its parent becomes our child, so it can be found.
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in reversed(MOUNTINFO.read_text(errors="surrogateescape").splitlines()):
        fields, _, tail = line.partition(" - ")
        if tail.startswith("fuse") and not tail.startswith("fusectl"):
            _run("umount", "--lazy", unescape(fields.split(" ")[4]))
    for directory in (RUN_DIR, STATE_DIR, ADMIN_DIR):
        if directory.exists():
            _run("mount", "-t", "tmpfs", "fusetune-test", directory)
    _open_device_to_all()
    _open_checkout_to_all()
    if not any(tail.startswith("fusectl ") for tail in _types()):
        _run("mount", "-t", "fusectl", "fusectl", CONNECTIONS)


def _heed_signals() -> None:
    """Ignore no signal that ends programs, because they would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _open_device_to_all() -> None:
    """Give /dev/fuse mode 0666, as udev does, in this mount namespace only."""
    if os.stat("/dev/fuse").st_mode & 0o666 == 0o666:
        return
    with tempfile.TemporaryDirectory() as name, tmpfs(Path(name), "size=4K"):
        node = Path(name) / "fuse"
        os.mknod(node, stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
        node.chmod(0o666)
        _run("mount", "--bind", node, "/dev/fuse")


def _open_checkout_to_all() -> None:
    """Let all users reach the checkout in this mount namespace, also from a private home."""
    private = (one for one in reversed(CHECKOUT.parents) if not one.stat().st_mode & stat.S_IXOTH)
    first = next(private, None)
    if first is None:
        return
    with tempfile.TemporaryDirectory() as name:
        _run("mount", "--bind", CHECKOUT, name)
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "fusetune-test", first)
        CHECKOUT.mkdir(parents=True)
        _run("mount", "--move", name, CHECKOUT)


def _types() -> list[str]:
    lines = MOUNTINFO.read_text(errors="surrogateescape").splitlines()
    return [line.partition(" - ")[2] for line in lines]


@pytest.fixture(autouse=True)
def nothing_left_behind(own_namespace: None) -> Iterator[None]:
    """Fail a test that leaves anything behind, and remove it for the next one."""
    mounts, processes = _mounts(), _processes()
    values, files = _host_values(), _own_files()
    yield
    deadline = time.monotonic() + 20
    # Processes that were told to end may take a moment.
    while (late := _processes().keys() - processes.keys()) and time.monotonic() < deadline:
        time.sleep(0.01)
    found = [f"process {pid}: {_processes().get(pid)}" for pid in late]
    for pid in late:
        _end(pid)
    for mount in reversed([mount for mount in _mounts() if mount not in mounts]):
        found.append(f"mount {mount}")
        _run("umount", "--lazy", mount.partition(" ")[2], check=False)
    for file, value in _host_values().items():
        if value != values[file]:
            found.append(f"{file}: {value.strip()}, was {values[file].strip()}")
            file.write_text(values[file])
    for path in sorted(_own_files() - files, reverse=True):
        found.append(f"file {path}")
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    if found:
        pytest.fail("left behind: " + "; ".join(found))


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # it has ended by itself, or another of our processes waits for it


# Fixtures that tests request


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that every user can enter and write to, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="fusetune-test-") as name:
        os.chmod(name, 0o777)  # noqa: S103
        yield Path(name)


@pytest.fixture
def fusetune(tmp_path: Path) -> Iterator[Fusetune]:
    """The command line."""
    program = Fusetune(tmp_path)
    yield program
    program.end()


@pytest.fixture
def tmpfs_dir(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs with a directory ``source``, for servers to serve."""
    directory = tmp_path / "tmpfs"
    directory.mkdir()
    with tmpfs(directory, "size=1G,mode=0755") as mounted:
        (mounted / "source").mkdir()
        yield mounted


@pytest.fixture
def mirror(tmp_path: Path, tmpfs_dir: Path) -> Iterator[Mirror]:
    """A mirrorfs mount at ``tmp_path / "mnt"``, with its default options."""
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt") as mounted:
        yield mounted


_AS_NOBODY = f"""#!/bin/sh
for word; do
    case $word in counters=*) chown {NOBODY} "$(dirname "${{word#counters=}}")" ;; esac
done
exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups -- {BINARY} "$@"
"""


@pytest.fixture
def user_mirror(open_path: Path) -> Iterator[Mirror]:
    """A mirrorfs mounted through fusermount3 by the unprivileged user ``NOBODY``."""
    program = open_path / "mirrorfs"
    program.write_text(_AS_NOBODY)
    program.chmod(0o755)
    for directory in (open_path / "source", open_path / "mnt"):
        directory.mkdir()
        os.chown(directory, NOBODY, NOBODY)
    with Mirror(open_path / "source", open_path / "mnt", binary=program) as mounted:
        yield mounted


@pytest.fixture(params=SERVERS)
def served(
    request: pytest.FixtureRequest, tmp_path: Path, tmpfs_dir: Path
) -> Iterator[tuple[Path, str]]:
    """A mount point and its bdi, for each server in turn."""
    lacking = missing(request.param)
    if lacking:
        pytest.skip(f"missing: {', '.join(lacking)}")
    with serve(request.param, tmpfs_dir / "source", tmp_path / "mnt") as bdi:
        yield tmp_path / "mnt", bdi


__all__ = [
    "AS_NOBODY",
    "NOBODY",
    "STOCK",
    "Fusetune",
    "requires",
    "sysfs_files",
    "sysfs_values",
    "write_sysfs",
]


@pytest.fixture(name="tracefs")
def _tracefs() -> Iterator[None]:
    """tracefs, in the tests' own mount namespace."""
    with tracefs():
        yield
