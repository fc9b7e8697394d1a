# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers that people use: which requests the module's options spare each of them.

Some have their own libfuse (mergerfs, ntfs-3g), some Debian's (sshfs, bindfs, s3fs), some none
(rclone, gocryptfs, SeaweedFS: Go; an example of the crate fuser: Rust). Their requests are counted
by the module, with and without its options.
"""

import fcntl
import os
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from fusetune.host import Host
from fusetune.mounts.discover import find
from tests.kernel.guest.f2fs import DISK
from tests.kernel.guest.interception import PROGRAM
from tests.kernel.guest.rig import CONTROL, SOURCE, fresh_source, load, run, wait_for_end
from tests.kernel.guest.statistics_file import parse
from tests.native.mirror import CHECKOUT, MOUNTINFO, PATIENCE, mounted_at, unmount, wait_for

POINT = Path("/mnt/served")
_SFTP = Path("/srv/sftp")
_S3, _FILER = ("127.0.0.1", 9000), ("127.0.0.1", 8888)
_S3_KEYS = Path("/srv/s3-keys")
#: linux/if.h, linux/sockios.h.
_IFF_UP, _SIOCSIFFLAGS = 1, 0x8914
_CALLS, _OPENS, _BLOCK = 256, 10, 4096
_PASSWORD = ("-extpass", "echo password")


def _has_nothing() -> None:
    pass


def _has_a_cipher() -> None:
    run("gocryptfs", "-init", "-q", "-scryptn", "10", *_PASSWORD, SOURCE)


def _has_ntfs() -> None:
    run("mkntfs", "-q", "-Q", "-F", DISK)


def _has_sftp() -> None:
    _SFTP.write_text("#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n")
    _SFTP.chmod(0o755)


def _has_keys() -> None:
    _S3_KEYS.write_text("any:any\n")
    _S3_KEYS.chmod(0o600)


@dataclass(frozen=True)
class Server:
    """A server's command in the foreground, without the mount point, and its prefix."""

    command: tuple[str | Path, ...]
    #: Options of the module, and the requests that they reduce to a quarter or less.
    options: str
    fewer: tuple[str, ...]
    prepare: Callable[[], None] = _has_nothing
    #: False of a server that may wait for its own threads for ever after its mount has gone.
    ends: bool = True


SERVERS = {
    "bindfs": Server(
        ("bindfs", "-f", SOURCE), "big_writes,writeback_cache,no_file_caps", ("WRITE", "GETXATTR")
    ),
    "fuser": Server(
        (CHECKOUT / "build" / "fuser", f"--data-dir={SOURCE}", "--mount-point"),
        "writeback_cache,no_file_caps",
        ("WRITE", "GETXATTR"),
    ),
    "gocryptfs": Server(
        ("gocryptfs", "-fg", "-q", *_PASSWORD, SOURCE),
        "writeback_cache,no_file_caps",
        ("WRITE", "GETXATTR"),
        _has_a_cipher,
    ),
    "mergerfs": Server(
        ("mergerfs", "-f", "-o", "minfreespace=0", SOURCE),
        "writeback_cache,no_file_caps",
        ("WRITE", "GETXATTR"),
        # Then none of its threads is in the kernel, and they wait for each other.
        ends=False,
    ),
    "ntfs-3g": Server(
        ("ntfs-3g", "-o", "no_detach", DISK),
        "big_writes,writeback_cache,no_file_caps",
        ("WRITE", "GETXATTR"),
        _has_ntfs,
    ),
    "rclone": Server(
        ("rclone", "mount", "--vfs-cache-mode=writes", SOURCE), "keep_cache", ("READ",)
    ),
    "s3fs": Server(
        (
            *("s3fs", "-f", "-o", f"url=http://{_S3[0]}:{_S3[1]},passwd_file={_S3_KEYS}"),
            *("-o", "use_path_request_style", "bucket"),
        ),
        "big_writes,writeback_cache",
        ("WRITE",),
        _has_keys,
    ),
    "sshfs": Server(
        ("sshfs", "-f", "-o", f"ssh_command={_SFTP}", f"host:{SOURCE}"),
        "writeback_cache",
        ("WRITE",),
        _has_sftp,
    ),
}


#: `weed mount` sends to a volume server by way of `weed server`.
_WEED = CHECKOUT / "build" / "weed"
SEAWEEDFS = Server(
    (_WEED, "mount", f"-filer={_FILER[0]}:{_FILER[1]}", "-dir"),
    "writeback_cache,no_file_caps",
    ("WRITE", "GETXATTR"),
)


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def _listening(
    address: tuple[str, int], *command: str | Path, patience: float = PATIENCE
) -> Iterator[None]:
    """Run a program that serves at an address of the loopback interface, after some seconds."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("=16sh22x", b"lo", _IFF_UP))
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as server:
        try:
            wait_for(lambda: _listens(address), f"{command[0]}", patience)
            yield
        finally:
            server.terminate()
            server.wait(PATIENCE)


def _s3() -> AbstractContextManager[None]:
    """Run an S3 server that keeps its objects in memory and creates each bucket on first use."""
    words = ("-backend", "mem", "-autobucket", "-quiet", "-host", f"{_S3[0]}:{_S3[1]}")
    return _listening(_S3, CHECKOUT / "build" / "gofakes3", *words)


@contextmanager
def _seaweedfs() -> Iterator[None]:
    """Run SeaweedFS's master, volume server and filer as one process."""
    with tempfile.TemporaryDirectory(dir=SOURCE.parent) as directory:
        volumes = ("-volume.max=1", "-master.volumeSizeLimitMB=64", "-master.telemetry=false")
        words = ("server", "-filer", f"-dir={directory}", f"-ip={_FILER[0]}", *volumes)
        with _listening(_FILER, _WEED, *words, patience=600):
            yield


@contextmanager
def served(server: Server, *before: str | Path) -> Iterator[None]:
    """Mount by a server, which must end with its mount unless it is known not to."""
    POINT.mkdir(exist_ok=True)
    process = subprocess.Popen([*before, *server.command, POINT], stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: mounted_at(POINT) is not None or process.poll() is not None, "the mount")
        assert process.poll() is None, process.returncode
        yield
    finally:
        unmount(POINT)
        with nullcontext() if server.ends else suppress(subprocess.TimeoutExpired):
            wait_for_end(process)


def statistics_of(point: Path) -> Path:
    """Return the file with the counts of a mount's requests; its first read starts counting."""
    connection = find(Host(), str(point)).connection
    assert connection
    return CONTROL / connection / "statistics"


def _used(data: bytes) -> dict[str, int]:
    """Write a file with small calls, open and read it many times, and count the requests."""
    statistics = statistics_of(POINT)
    statistics.read_text()  # the module counts from here on
    fd = os.open(POINT / "file", os.O_WRONLY | os.O_CREAT, 0o644)
    for offset in range(0, len(data), _BLOCK):
        os.write(fd, data[offset : offset + _BLOCK])
    os.fsync(fd)
    os.close(fd)
    for _ in range(_OPENS):
        assert (POINT / "file").read_bytes() == data
    return {name: line.count for name, line in parse(statistics.read_text()).items()}


def _counts(server: Server, data: bytes, *options: str) -> dict[str, int]:
    """Return the requests of `_used` on a new mount by the module."""
    fresh_source()
    server.prepare()
    with served(server, PROGRAM, "--required", *options, "--"):
        assert " fusetuned" in MOUNTINFO.read_text()
        counts = _used(data)
    with served(server):  # mount by the kernel's own FUSE to look up what is stored
        assert (POINT / "file").read_bytes() == data
    return counts


def check_servers_that_people_run() -> dict[str, dict[str, list[int]]]:
    """For each server, its options reduce their requests to a quarter or less."""
    with _s3():
        return _fewer(SERVERS)


def check_seaweedfs() -> dict[str, dict[str, list[int]]]:
    """The same of SeaweedFS."""
    with _seaweedfs():
        return _fewer({"seaweedfs": SEAWEEDFS})


def _fewer(servers: Mapping[str, Server]) -> dict[str, dict[str, list[int]]]:
    load()
    data = os.urandom(_CALLS * _BLOCK)
    found: dict[str, dict[str, list[int]]] = {}
    for name, server in servers.items():
        counts = [_counts(server, data, *more) for more in ((), ("--options", server.options))]
        found[name] = {op: [each.get(op, 0) for each in counts] for op in server.fewer}
    for name, counted in found.items():
        for op, (without, overruled) in counted.items():
            assert without >= _OPENS, (name, op, found)
            assert overruled * 4 <= without, (name, op, found)
    return found
