# SPDX-License-Identifier: GPL-2.0-or-later
"""mirrorfs counts each request, by kind, size and file, and injects the requested faults.

Which requests a system call becomes is the kernel's choice (fs/fuse/file.c, fs/fuse/dir.c); the
document's keys are described in mirrorfs(1).
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.native.mirror import open_files, wait_for
from tests.native.mirrorfs.calls import (
    KIB,
    MIB,
    Mount,
    direct_io,
    serving,
    write_all,
)
from tests.native.requirements import requires

pytestmark = requires()


def test_requests_are_counted(mount: Mount) -> None:
    mirror = mount("no_xattr")
    mirror.reset_counters()
    write_all(mirror.mountpoint / "file", b"x" * MIB, b"y" * 5000)
    counted = mirror.counters()
    ops = counted["ops"]
    assert ops["CREATE"]["count"] == 1
    assert ops["LOOKUP"] | {"in_flight": 0} == ops["LOOKUP"]
    assert (ops["LOOKUP"]["count"], ops["LOOKUP"]["errors"]) == (1, 1)
    assert ops["WRITE"]["count"] == 2
    assert ops["WRITE"]["bytes"] == MIB + 5000
    assert ops["WRITE"]["largest_bytes"] == MIB
    assert ops["WRITE"]["most_in_flight"] == 1
    assert ops["FLUSH"]["count"] == 1
    assert counted["write_files"] == {
        "file": {"count": 2, "bytes": MIB + 5000, "largest_bytes": MIB, "most_in_flight": 1}
    }
    (mirror.mountpoint / "directory").mkdir()
    os.rename(mirror.mountpoint / "file", mirror.mountpoint / "directory" / "moved")
    (mirror.mountpoint / "directory" / "moved").unlink()
    ops = mirror.counters()["ops"]
    for op in ("MKDIR", "RENAME", "UNLINK"):
        assert (ops[op]["count"], ops[op]["errors"]) == (1, 0), op

    def is_at_rest() -> bool:
        ops = mirror.counters()["ops"]
        return all(numbers["in_flight"] == 0 for numbers in ops.values())

    # RELEASE is sent after close(2) has returned, and is counted as done after its reply.
    wait_for(is_at_rest, "no request in flight")


def test_reads_are_counted_at_their_size(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * 4 * MIB)
    mirror = mount()
    direct_io(mirror.mountpoint / "file", 512 * KIB, 0)
    direct_io(mirror.mountpoint / "file", 64 * KIB, MIB)
    read = mirror.counters()["ops"]["READ"]
    assert (read["count"], read["bytes"]) == (2, 576 * KIB)
    assert read["largest_bytes"] == 512 * KIB


@pytest.mark.parametrize(("max_write", "requests"), [("64K", 16), ("4096", 256), ("1M", 1)])
def test_max_write(mount: Mount, max_write: str, requests: int) -> None:
    mirror = mount(f"max_write={max_write}")
    write_all(mirror.mountpoint / "file", b"x" * MIB)
    counted = mirror.counters()
    assert counted["init"]["max_write"] == MIB // requests
    assert counted["ops"]["WRITE"]["count"] == requests
    assert counted["ops"]["WRITE"]["largest_bytes"] == MIB // requests


def test_init_values_reach_the_kernel(mount: Mount) -> None:
    mirror = mount("max_background=33", "max_readahead=64K", "writeback", "splice=off")
    init = mirror.counters()["init"]
    assert (init["max_background"], init["congestion_threshold"]) == (33, 24)
    assert init["max_readahead"] == 64 * KIB
    assert (init["proto_major"], init["proto_minor"] >= 31) == (7, True)
    assert "writeback_cache" in init["want"]
    assert not [name for name in init["want"] if name.startswith("splice")]
    assert set(init["want"]) <= set(init["capable"])
    assert Path(f"/sys/class/bdi/{mirror.bdi}/read_ahead_kb").read_text() == "64\n"


def test_reset_sets_all_to_zero(mount: Mount) -> None:
    mirror = mount()
    write_all(mirror.mountpoint / "kept", b"x")
    write_all(mirror.mountpoint / "gone", b"x")
    (mirror.mountpoint / "gone").unlink()
    assert set(mirror.counters()["write_files"]) == {"kept", "gone"}

    def at_rest() -> bool:
        counted = mirror.counters()
        asked = [counted["ops"][name]["count"] for name in ("RELEASE", "FORGET")]
        return asked == [2, 1] and counted["all"]["in_flight"] == 0

    wait_for(at_rest, "what nobody waits for")
    mirror.reset_counters()
    counted = mirror.counters()
    assert counted["resets"] == 1
    assert counted["all"]["count"] == 0
    assert counted["write_files"] == {}
    assert all(not any(numbers.values()) for numbers in counted["ops"].values())


def test_files_are_counted_by_path(mount: Mount) -> None:
    mirror = mount()
    (mirror.mountpoint / "directory").mkdir()
    strange = os.fsdecode(b'directory/\xff\xc3\xa4"\\\n\xed\xa0\x80')
    write_all(mirror.mountpoint / strange, b"123")
    write_all(mirror.mountpoint / "before", b"12")
    (mirror.mountpoint / "before").rename(mirror.mountpoint / "after")
    for _ in range(3):  # three files with the same name, one after another
        write_all(mirror.mountpoint / "again", b"1234", b"5")
        (mirror.mountpoint / "again").unlink()

    def is_forgotten() -> bool:
        return f"{mirror.source}/again (deleted)" not in open_files(mirror.process.pid)

    wait_for(is_forgotten, "FORGET of the removed")
    files = mirror.counters()["write_files"]
    assert {os.fsencode(path) for path in files} == {os.fsencode(strange), b"after", b"again"}
    assert files["again"] == {
        "count": 6,
        "bytes": 15,
        "largest_bytes": 4,
        "most_in_flight": 1,
    }


def test_readers_see_whole_documents(source: Path, mountpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "counters.json"
    path.write_text("left over")
    with serving(mountpoint, "-o", f"counters={path}", source) as server:
        wait_for(lambda: path.read_text() != "left over", "the first document")
        seen = []

        def read() -> bool:
            server.send_signal(signal.SIGUSR1)
            seen.append(json.loads(path.read_bytes())["sequence"])
            return len(seen) >= 300 and seen[-1] > seen[0]

        wait_for(read, "a later document")
        assert seen == sorted(seen)
    last = json.loads(path.read_bytes())
    assert (last["final"], last["sequence"] > seen[-1]) == (True, True)
    assert [entry.name for entry in tmp_path.glob("counters*")] == ["counters.json"]


# Faults


def test_faults_of_writes(mount: Mount, source: Path) -> None:
    """The third write fails and the fifth is short; then the sixth and the tenth, and so on."""
    mirror = mount("direct_io", "fail_every=3", "short_every=5")
    done: list[int] = []
    fd = os.open(mirror.mountpoint / "file", os.O_WRONLY | os.O_CREAT)
    for number in range(10):
        done.append(0)
        with suppress(OSError):
            done[-1] = os.pwrite(fd, b"x" * 1000, number * 1000)
    os.close(fd)
    assert done == [1000, 1000, 0, 1000, 500, 0, 1000, 1000, 0, 500]
    expected = b"".join((b"x" * size).ljust(1000, b"\0") for size in done)[:-500]
    assert (source / "file").read_bytes() == expected
    assert mirror.counters()["ops"]["WRITE"]["errors"] == 3
