# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel caches and what it requests with each caching option of mirrorfs.

The server's requests show it: see fuse(4) on the INIT flags, and fs/fuse/file.c.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.native.mirror import Mirror
from tests.native.mirrorfs.calls import (
    KIB,
    MIB,
    Mount,
    direct_io,
    in_parallel,
    libfuse_version,
    refused,
    write_all,
)
from tests.native.requirements import requires

pytestmark = requires()


def test_writeback_gathers_small_writes(mount: Mount) -> None:
    mirror = mount("writeback")
    fd = os.open(mirror.mountpoint / "file", os.O_WRONLY | os.O_CREAT)
    for _ in range(256):
        os.write(fd, b"x" * KIB)
    os.fsync(fd)
    os.close(fd)
    write = mirror.counters()["ops"]["WRITE"]
    assert write["bytes"] >= 256 * KIB
    assert write["count"] < 16


@pytest.mark.parametrize(("options", "reads_again"), [([], True), (["keep_cache"], False)])
def test_keep_cache(mount: Mount, source: Path, options: list[str], reads_again: bool) -> None:
    (source / "file").write_bytes(b"x" * 64 * KIB)
    mirror = mount("timeout=60", *options)
    (mirror.mountpoint / "file").read_bytes()
    mirror.reset_counters()
    (mirror.mountpoint / "file").read_bytes()
    assert (mirror.counters()["ops"]["READ"]["count"] > 0) == reads_again


def test_direct_io_reads_each_time(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * 64 * KIB)
    mirror = mount("direct_io")
    fd = os.open(mirror.mountpoint / "file", os.O_RDONLY)
    for _ in range(5):
        assert os.pread(fd, 1000, 500) == b"x" * 1000
    os.close(fd)
    read = mirror.counters()["ops"]["READ"]
    assert (read["count"], read["largest_bytes"]) == (5, 1000)


@pytest.mark.parametrize(("timeout", "asks"), [("0", True), ("0.02", True), ("60", False)])
def test_timeout(mount: Mount, source: Path, timeout: str, asks: bool) -> None:
    (source / "file").touch()
    mirror = mount(f"timeout={timeout}")
    os.stat(mirror.mountpoint / "file")
    mirror.reset_counters()
    for _ in range(3):
        sleep(0.05)
        os.stat(mirror.mountpoint / "file")
    ops = mirror.counters()["ops"]
    assert (ops["LOOKUP"]["count"] + ops["GETATTR"]["count"] >= 3) == asks


def test_entry_timeout_is_for_names_alone(mount: Mount, source: Path) -> None:
    (source / "file").touch()
    mirror = mount("timeout=60", "entry_timeout=0")
    os.stat(mirror.mountpoint / "file")
    mirror.reset_counters()
    for _ in range(3):
        os.stat(mirror.mountpoint / "file")
    ops = mirror.counters()["ops"]
    assert (ops["LOOKUP"]["count"], ops["GETATTR"]["count"]) == (3, 0)


@pytest.mark.parametrize(("options", "asked"), [((), 3), (("negative_timeout=60",), 1)])
def test_negative_timeout(mount: Mount, options: tuple[str, ...], asked: int) -> None:
    mirror = mount("timeout=60", *options)
    os.stat(mirror.mountpoint)
    mirror.reset_counters()
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            os.stat(mirror.mountpoint / "none")
    assert mirror.counters()["ops"]["LOOKUP"]["count"] == asked
    (mirror.mountpoint / "none").touch()
    assert (mirror.mountpoint / "none").exists()


def test_no_xattr_asks_once(mount: Mount) -> None:
    mirror = mount("no_xattr")
    for _ in range(10):
        write_all(mirror.mountpoint / "file", b"x")
    assert mirror.counters()["ops"]["GETXATTR"]["count"] == 1


def two_direct_writers(mirror: Mirror) -> dict[str, Any]:
    """The counters after two parallel writers of one file, within its size."""
    (mirror.source / "file").write_bytes(b"x" * MIB)

    def work(index: int) -> None:
        for step in range(4):
            offset = index * 512 * KIB + step * 4096
            direct_io(mirror.mountpoint / "file", 4096, offset, write=True)

    in_parallel(2, work)
    return mirror.counters()


def test_direct_writes_to_one_file_are_serial(mount: Mount) -> None:
    counted = two_direct_writers(mount("write_delay=30ms"))
    assert counted["write_files"]["file"]["count"] == 8
    assert counted["write_files"]["file"]["most_in_flight"] == 1


def test_parallel_direct_writes(mount: Mount, source: Path, mountpoint: Path) -> None:
    if libfuse_version() < (3, 15):
        refused(1, "libfuse 3.15", "-o", "parallel_direct_writes", source, mountpoint)
        return
    counted = two_direct_writers(mount("parallel_direct_writes", "write_delay=30ms"))
    assert counted["write_files"]["file"]["most_in_flight"] == 2


def test_passthrough(mount: Mount, source: Path, mountpoint: Path) -> None:
    if libfuse_version() < (3, 17):
        refused(1, "libfuse 3.17", "-o", "passthrough", source, mountpoint)
        return
    mirror = mount("passthrough")
    write_all(mirror.mountpoint / "file", b"x" * MIB)
    assert (mirror.mountpoint / "file").read_bytes() == b"x" * MIB
    ops = mirror.counters()["ops"]
    assert (ops["CREATE"]["count"], ops["READ"]["count"], ops["WRITE"]["count"]) == (1, 0, 0)
