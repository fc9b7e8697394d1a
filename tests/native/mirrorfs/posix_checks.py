# SPDX-License-Identifier: GPL-2.0-or-later
"""What a POSIX program expects of a directory.

Each check gets an empty directory on the mount. The facts are from POSIX.1-2017 and from Linux's
manual pages: rename(2), unlink(2), link(2), open(2), mmap(2).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.native.mirrorfs.calls import (
    KIB,
    MIB,
    NOBODY,
)


def check_rename_over_open_file(root: Path) -> None:
    (root / "old").write_bytes(b"old")
    (root / "new").write_bytes(b"new")
    with (root / "old").open("rb") as old:
        (root / "new").rename(root / "old")
        assert old.read() == b"old"
    assert (root / "old").read_bytes() == b"new"
    assert os.listdir(root) == ["old"]


def check_rename_flags(root: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    one, two = root / "one", root / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    at_fdcwd, noreplace, exchange = -100, 1, 2
    names = (at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(two))
    assert libc.renameat2(*names, noreplace) == -1
    assert ctypes.get_errno() == errno.EEXIST
    assert libc.renameat2(*names, exchange) == 0
    assert (one.read_bytes(), two.read_bytes()) == (b"2", b"1")


def check_unlinked_open_file(root: Path) -> None:
    with (root / "gone").open("w+b", buffering=0) as file:
        file.write(b"before")
        (root / "gone").unlink()
        file.write(b" after")
        file.truncate(9)
        os.fchmod(file.fileno(), 0o600)
        file.seek(0)
        assert file.read() == b"before af"
        assert os.fstat(file.fileno()).st_nlink == 0
        # The name can be used for another file meanwhile.
        (root / "gone").write_bytes(b"second")
        assert (root / "gone").stat().st_ino != os.fstat(file.fileno()).st_ino
    assert (root / "gone").read_bytes() == b"second"


def check_hard_links(root: Path) -> None:
    (root / "a").write_bytes(b"x")
    os.link(root / "a", root / "b")
    assert (root / "a").stat().st_ino == (root / "b").stat().st_ino
    assert (root / "b").stat().st_nlink == 2
    with (root / "b").open("ab") as file:
        file.write(b"y")
    (root / "a").unlink()
    assert (root / "b").read_bytes() == b"xy"
    assert (root / "b").stat().st_nlink == 1


def check_symlinks(root: Path) -> None:
    (root / "target").write_bytes(b"t")
    (root / "link").symlink_to("target")
    assert os.readlink(root / "link") == "target"
    assert (root / "link").read_bytes() == b"t"
    os.link(root / "link", root / "second", follow_symlinks=False)
    assert (root / "second").is_symlink()
    os.utime(root / "link", ns=(10**18, 10**18), follow_symlinks=False)
    assert (root / "link").lstat().st_mtime_ns == 10**18
    assert (root / "target").stat().st_mtime_ns != 10**18
    (root / "dangling").symlink_to("n" * 4000)
    assert len(os.readlink(root / "dangling")) == 4000


def check_append(root: Path) -> None:
    log = root / "log"
    log.write_bytes(b"0")
    with log.open("ab", buffering=0) as first, log.open("ab", buffering=0) as second:
        for _ in range(5):
            first.write(b"1")
            second.write(b"2")
    assert log.read_bytes() == b"0" + b"12" * 5


def check_truncate(root: Path) -> None:
    file = root / "file"
    file.write_bytes(b"0123456789")
    os.truncate(file, 4)
    assert file.read_bytes() == b"0123"
    with file.open("r+b") as opened:
        opened.truncate(6)
    assert file.read_bytes() == b"0123\0\0"
    os.close(os.open(file, os.O_WRONLY | os.O_TRUNC))
    assert file.stat().st_size == 0


def check_write_only_middle(root: Path) -> None:
    file = root / "file"
    file.write_bytes(b"a" * 10000)
    fd = os.open(file, os.O_WRONLY)
    os.pwrite(fd, b"BBB", 5000)
    os.close(fd)
    assert file.read_bytes() == b"a" * 5000 + b"BBB" + b"a" * 4997


def check_extended_attributes(root: Path) -> None:
    file = root / "file"
    file.touch()
    os.setxattr(file, "user.one", b"1")
    os.setxattr(file, "user.two", b"\0" * 1000)
    os.setxattr(file, "user.empty", b"")
    assert sorted(os.listxattr(file)) == ["user.empty", "user.one", "user.two"]
    assert os.getxattr(file, "user.two") == b"\0" * 1000
    assert os.getxattr(file, "user.empty") == b""
    with pytest.raises(FileExistsError):
        os.setxattr(file, "user.one", b"", os.XATTR_CREATE)
    os.removexattr(file, "user.one")
    with pytest.raises(OSError, match="No data available"):
        os.getxattr(file, "user.one")


def check_shared_mmap(root: Path) -> None:
    with (root / "mapped").open("w+b") as file:
        file.truncate(64 * KIB)
        with mmap.mmap(file.fileno(), 64 * KIB) as memory:
            memory[40000:40004] = b"mmap"
            memory.flush()
    assert (root / "mapped").read_bytes()[40000:40004] == b"mmap"


def check_many_names(root: Path) -> None:
    names = {f"{'n' * 60}-{number}" for number in range(1000)}
    for name in names:
        (root / name).touch()
    assert set(os.listdir(root)) == names
    assert {entry.name for entry in os.scandir(root) if entry.stat().st_size == 0} == names
    directory = os.open(root, os.O_RDONLY)
    try:
        assert len(os.listdir(directory)) == len(os.listdir(directory)) == 1000
        os.fsync(directory)
    finally:
        os.close(directory)
    for name in names:
        (root / name).unlink()
    assert os.listdir(root) == []


def check_sparse_file(root: Path) -> None:
    with (root / "sparse").open("w+b", buffering=0) as file:
        file.truncate(4 * MIB)
        os.pwrite(file.fileno(), b"data", 2 * MIB)
        os.fsync(file.fileno())
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) == 2 * MIB
        assert 2 * MIB < os.lseek(file.fileno(), 2 * MIB, os.SEEK_HOLE) <= 2 * MIB + 64 * KIB
        os.posix_fallocate(file.fileno(), 0, 5 * MIB)
        assert os.fstat(file.fileno()).st_size == 5 * MIB


def check_copy_file_range(root: Path) -> None:
    (root / "from").write_bytes(os.urandom(100000))
    with (root / "from").open("rb") as there, (root / "to").open("w+b") as here:
        copied = 0
        while copied < 100000:
            copied += os.copy_file_range(there.fileno(), here.fileno(), 100000 - copied)
        os.fdatasync(here.fileno())
    assert (root / "to").read_bytes() == (root / "from").read_bytes()


def check_attributes(root: Path) -> None:
    file = root / "file"
    file.touch()
    os.chown(file, 1234, 4321)
    file.chmod(0o6711)
    os.utime(file, ns=(1_000_000_001, 2_000_000_002))
    found = file.stat()
    assert (found.st_uid, found.st_gid) == (1234, 4321)
    assert stat.S_IMODE(found.st_mode) == 0o6711
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    os.utime(file)
    assert file.stat().st_mtime_ns > 10**18
    assert os.statvfs(root).f_blocks > 0


def check_set_id_bits_end_with_a_write(root: Path) -> None:
    program = root / "program"
    program.touch()
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o4755)
    root.chmod(0o777)
    # Root's own writes keep the bit; it has CAP_FSETID.
    subprocess.run(["/bin/sh", "-c", f"echo x >> '{program}'"], check=True, user=NOBODY, timeout=20)
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


def check_special_files(root: Path) -> None:
    os.mkfifo(root / "fifo", 0o640)
    assert stat.S_ISFIFO((root / "fifo").stat().st_mode)
    os.mknod(root / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    assert (root / "null").stat().st_rdev == os.makedev(1, 3)
    (root / "directory").mkdir(0o1770)
    assert stat.S_IMODE((root / "directory").stat().st_mode) == 0o1750
    (root / "directory" / "full").touch()
    with pytest.raises(OSError, match="not empty"):
        (root / "directory").rmdir()
    (root / "directory" / "full").unlink()
    (root / "directory").rmdir()
    with pytest.raises(FileNotFoundError):
        (root / "directory").stat()


def check_exclusive_create(root: Path) -> None:
    os.close(os.open(root / "lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    with pytest.raises(FileExistsError):
        os.open(root / "lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


POSIX_CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]
