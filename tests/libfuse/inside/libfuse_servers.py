# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers for the distribution's libfuse3, run with either library, and their requests."""

import mmap
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.native.mirror import PATIENCE, mounted_at, unmount, wait_for

OUT = Path("/out")
TUNED = next(OUT.glob("new/usr/lib/*/fusetune"))
LIBRARY = next(TUNED.glob("libfuse3.so.?"))
STOCK = Path("/") / TUNED.parent.relative_to(OUT / "new")
#: The environment may name another build of them and of mirrorfs, for the sanitizers.
EXAMPLES = Path(os.environ.get("EXAMPLES") or next(OUT.glob("source/obj-*/example")))
MIRRORFS = Path(os.environ.get("MIRRORFS") or OUT / "mirrorfs")
ENVIRONMENT = "FUSETUNE_OPTIONS"

Command = list[str | Path]


def _mirrorfs(source: Path, point: Path) -> Command:
    return [MIRRORFS, "-f", source, point]


def _sshfs(source: Path, point: Path) -> Command:
    # Instead of ssh: the protocol is the same, without a daemon or key.
    ssh = source.with_name("ssh")
    ssh.write_text("#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n")
    ssh.chmod(0o755)
    return ["sshfs", "-f", "-o", f"ssh_command={ssh}", f"localhost:{source}", point]


def gocryptfs(source: Path, point: Path) -> Command:
    """Encrypt the new directory ``source``; return the command, which does not use libfuse."""
    words: Command = ["gocryptfs", "-q", "-extpass", "echo secret"]
    init: Command = [*words, "-init", "-scryptn", "10", source]
    subprocess.run(init, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    return [*words, "-fg", "-nosyslog", source, point]


def _high_level(name: str, source: Path, point: Path) -> Command:
    # libfuse's own module: the server sees only the mirrored directory.
    return [EXAMPLES / name, "-f", "-o", f"modules=subdir,subdir={source}", point]


def command(server: str, source: Path, point: Path) -> Command:
    """Return the command of ``server`` for ``source`` at ``point``, in the foreground."""
    match server:
        case "mirrorfs":
            return _mirrorfs(source, point)
        case "sshfs":
            return _sshfs(source, point)
        case "passthrough" | "passthrough_fh":
            return _high_level(server, source, point)
        case "passthrough_ll":
            return [EXAMPLES / server, "-f", "-o", f"source={source}", point]
        case "passthrough_hp":
            options = ["--foreground", "--nosplice", "--debug-fuse"]
            options += [] if LIBRARY.suffix == ".3" else ["--nopassthrough"]
            return [EXAMPLES / server, *options, source, point]
        case _:
            return [EXAMPLES / server, "-f", point]


# A read from the device in strace's output: length and opcode in hexadecimal, then the size.
# Quietly: "Process N attached" would be written within the line of a thread that reads meanwhile.
STRACE = ("strace", "-q", "-f", "-xx", "-s", "8", "-e", "trace=read")
_READ = (
    r'read(?:\(\d+, | resumed>(?:, )?)"(?:\\x..){4}\\x(..)\\x00\\x00\\x00"\.\.\., [1-9]\d{5,}\)'
    r" += (\d+)"
)
_OPCODES = {1: "LOOKUP", 14: "OPEN", 15: "READ", 16: "WRITE", 35: "CREATE"}


@dataclass
class Served:
    """A mount and its server; ``log`` is the server's output, with requests if ``-d`` is set."""

    point: Path
    process: subprocess.Popen[bytes]
    _log: Path

    @property
    def log(self) -> str:
        """The server's output so far."""
        return self._log.read_text(errors="replace")

    def asked(self, opcode: str) -> list[int]:
        """Return the size of each request of this kind so far, its header included, in bytes."""
        log = self.log
        found = re.findall(rf"opcode: {opcode} \(\d+\), nodeid: \d+, insize: (\d+)", log)
        for number, size in re.findall(_READ, log):
            if _OPCODES.get(int(number, 16)) == opcode:
                found.append(size)
        return [int(size) for size in found]

    def answered_init(self) -> dict[str, str]:
        """Return the server's reply to INIT, by field."""
        answer = re.findall(r"^ {3}(\w+)=(\w+)$", self.log, re.M)
        return dict(answer)

    def ours(self) -> list[str]:
        """Return the library's messages about options."""
        return re.findall(r"^fuse: .*", self.log, re.M)


def write_direct(file: Path, size: int) -> bytes:
    """Write ``size`` bytes to a new file in one call, from whole pages; return them.

    An unaligned buffer needs one more page, and thus may need one more request.
    """
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with mmap.mmap(-1, size) as buffer:
            buffer.write(os.urandom(size))
            assert os.write(fd, buffer) == size
            return buffer[:]
    finally:
        os.close(fd)


def read_direct(file: Path, size: int) -> bytes:
    """Read up to ``size`` bytes in one call, into whole pages."""
    fd = os.open(file, os.O_RDONLY)
    try:
        with mmap.mmap(-1, size) as buffer:
            return buffer[: os.readv(fd, [buffer])]
    finally:
        os.close(fd)


@contextmanager
def scratch() -> Iterator[tuple[Path, Path]]:
    """Yield a directory to serve and a mount point, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="libfuse-") as name:
        source, point = Path(name) / "source", Path(name) / "mnt"
        source.mkdir()
        point.mkdir()
        for directory in (Path(name), source, point):
            directory.chmod(0o777)
        yield source, point


@contextmanager
def serve(
    words: Sequence[str | Path],
    point: Path,
    *,
    options: str = "",
    environment: str = "",
    tuned: bool = True,
    prefix: Sequence[str] = (),
) -> Iterator[Served]:
    """Run a server until the block ends; raises RuntimeError if it does not mount.

    ``options`` go to its command line, ``environment`` to our variable. If not ``tuned``, it uses
    the distribution's library. ``prefix`` is a program that starts it.
    """
    env = {"PATH": os.environ["PATH"]}
    # The examples' RUNPATH is the build's directory, and so our library.
    if tuned or Path(words[0]).is_relative_to(EXAMPLES):
        env["LD_LIBRARY_PATH"] = str(TUNED if tuned else STOCK)
    if environment:
        env[ENVIRONMENT] = environment
    log = point.with_name("log")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*prefix, *words, *(["-o", options] if options else [])],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    try:
        wait_for(
            lambda: mounted_at(point) is not None or process.poll() is not None, f"{words} to mount"
        )
        served = Served(point, process, log)
        if mounted_at(point) is None:
            raise RuntimeError(served.log)
        yield served
    finally:
        unmount(point)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)
        said = log.read_text(errors="replace")
        # libfuse never frees its modules, so a leak counts only if our code is in its trace.
        assert not re.search(r"ERROR: AddressSanitizer|runtime error|lib/tuned/", said), said


def refused(words: Sequence[str | Path], point: Path, environment: str) -> str:
    """Start a server, which must fail before or in INIT; return the library's messages."""
    try:
        with serve(words, point, environment=environment) as served:
            # A mount that fails in INIT ends by itself; nothing may be mounted then.
            wait_for(lambda: served.process.poll() is not None, "the server to end")
            said = served.log
    except RuntimeError as error:
        said = str(error)
    assert mounted_at(point) is None
    return said
