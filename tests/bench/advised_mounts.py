# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers known to `fusetune advise`, each mounted several times over equal new trees."""

import base64
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.native.advised import changed
from tests.native.mirror import CHECKOUT, PATIENCE, wait_for
from tests.native.servers import Command, command_of

#: Bytes of the file to read, and of the file to write.
SIZE = 64 << 20
FILES = 200
READ, SMALL = "read-data", "small.{}"
S3_SERVER = CHECKOUT / "build" / "gofakes3"
#: sshd's directory for privilege separation, which systemd creates for sshd's service.
_SEPARATION = Path("/run/sshd")
_KEY = "fusetune"  # of the S3 server, which takes any
_READS = ("seq-read", "rand-read", "metadata")
WORKLOADS = ("seq-read", "seq-write", "small-write", "rand-read", "metadata")


@dataclass(frozen=True)
class Services:
    """A service that all instances of a server use; its ``pids``, once it is started."""

    directory: Path
    stack: ExitStack
    pids: list[int] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)

    def port(self, name: str, start: Callable[[Path, int], Command]) -> int:
        """Return the port of a service on 127.0.0.1, which the first call starts."""
        if name not in self.ports:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            log = self.stack.enter_context((self.directory / f"{name}.log").open("wb"))
            process = subprocess.Popen(start(self.directory, port), stdout=log, stderr=log)
            self.stack.callback(_end, process)
            wait_for(lambda: _listens(port), name)
            self.pids.append(process.pid)
            self.ports[name] = port
        return self.ports[name]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(PATIENCE)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)


# The servers. Each function creates a new tree in a directory and returns the command to mount it.


def _native(server: str) -> Callable[[Services, Path], Command]:
    def command(services: Services, directory: Path) -> Command:
        return command_of(server, directory / "source", directory / "mnt", directory / "scratch")

    return command


def _rclone(services: Services, directory: Path) -> Command:
    command = command_of("rclone", directory / "source", directory / "mnt", directory / "scratch")
    return changed("rclone", command, {"vfs-cache-mode": "writes"})


def _sshd(directory: Path, port: int) -> Command:
    for name in ("host", "key"):
        _run("ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", directory / name)
    config = directory / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nPidFile none\n"
        f"AuthorizedKeysFile {directory}/key.pub\nStrictModes no\nPermitRootLogin yes\n"
        "Subsystem sftp /usr/lib/openssh/sftp-server\n"
    )
    return ["/usr/sbin/sshd", "-D", "-e", "-f", config]


def _sshfs(services: Services, directory: Path) -> Command:
    if not _SEPARATION.exists():
        _SEPARATION.mkdir()
        services.stack.callback(_SEPARATION.rmdir)
    options = (
        f"port={services.port('sshd', _sshd)}",
        f"IdentityFile={services.directory}/key",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
    )
    source = f"root@127.0.0.1:{directory}/source"
    return ["sshfs", "-f", "-o", ",".join(options), source, directory / "mnt"]


def _s3(directory: Path, port: int) -> Command:
    return [S3_SERVER, "-backend", "mem", "-autobucket", "-host", f"127.0.0.1:{port}"]


def _bucket(services: Services, directory: Path) -> str:
    """Return rclone's name of a new bucket, filled from the directory's source."""
    where = f"http://127.0.0.1:{services.port('S3', _s3)}"
    keys = f"access_key_id={_KEY},secret_access_key={_KEY}"
    remote = f":s3,provider=Other,endpoint='{where}',{keys},force_path_style=true:{directory.name}"
    _run("rclone", "--config", "", "copy", directory / "source", remote)
    return remote


def _rclone_s3(services: Services, directory: Path) -> Command:
    remote = _bucket(services, directory)
    cache = ("--cache-dir", directory / "scratch", "--vfs-cache-mode", "writes")
    return ["rclone", "mount", remote, directory / "mnt", "--config", "", *cache]


def _s3fs(services: Services, directory: Path) -> Command:
    _bucket(services, directory)
    passwords = directory / "passwords"
    passwords.write_text(f"{_KEY}:{_KEY}\n")
    passwords.chmod(0o600)
    options = (
        f"url=http://127.0.0.1:{services.ports['S3']}",
        f"passwd_file={passwords}",
        "use_path_request_style",
    )
    return ["s3fs", "-f", "-o", ",".join(options), directory.name, directory / "mnt"]


def _ntfs_3g(services: Services, directory: Path) -> Command:
    image = directory / "image"
    with image.open("wb") as stream:
        stream.truncate(8 * SIZE)
    _run("mkntfs", "-F", "-Q", "-q", image)
    return ["ntfs-3g", "-o", "no_detach", image, directory / "mnt"]


def _squashfuse(services: Services, directory: Path) -> Command:
    for number in range(FILES):
        (directory / "source" / SMALL.format(number)).write_bytes(os.urandom(4096))
    image = directory / "image"
    _run("mksquashfs", directory / "source", image, "-quiet", "-no-progress")
    return ["squashfuse", "-f", image, directory / "mnt"]


@dataclass(frozen=True)
class Kind:
    """A row of the table.

    ``recipe``: the server's. ``through``: the file to be read is written through the mount.
    """

    recipe: str
    command: Callable[[Services, Path], Command]
    needs: Sequence[str] = ()
    workloads: Sequence[str] = WORKLOADS
    through: bool = False


KINDS: Mapping[str, Kind] = {
    "mergerfs": Kind("mergerfs", _native("mergerfs")),
    "bindfs": Kind("bindfs", _native("bindfs")),
    "rclone": Kind("rclone", _rclone),
    "rclone, S3": Kind("rclone", _rclone_s3),
    "sshfs": Kind("sshfs", _sshfs),
    "gocryptfs": Kind("gocryptfs", _native("gocryptfs"), through=True),
    "ntfs-3g": Kind("ntfs-3g", _ntfs_3g, through=True),
    "squashfuse": Kind("squashfuse", _squashfuse, workloads=_READS),
    "s3fs": Kind("s3fs", _s3fs),
    "fuse-overlayfs": Kind("fuse-overlayfs", _native("fuse-overlayfs")),
    "mirrorfs": Kind("mirrorfs", _native("mirrorfs")),
}


@contextmanager
def services(directory: Path) -> Iterator[Services]:
    """Yield services whose files are in ``directory``; they end with the context.

    Environment variables for AWS are unset, because the S3 server is on this host.
    """
    directory.mkdir()
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        del os.environ[name]
    with ExitStack() as stack:
        yield Services(directory, stack)


def tree(kind: Kind, running: Services, directory: Path) -> Command:
    """Create a new tree in ``directory``, and return the command to mount it."""
    for name in ("source", "mnt", "scratch"):
        (directory / name).mkdir(parents=True)
    if not kind.through:
        write_data(directory / "source")
    return kind.command(running, directory)


def write_data(directory: Path) -> None:
    """Write the file to read: text that squashfs can compress to three quarters."""
    with (directory / READ).open("wb") as stream:
        for _ in range(SIZE >> 20):
            stream.write(base64.b64encode(os.urandom((1 << 20) // 4 * 3)))
