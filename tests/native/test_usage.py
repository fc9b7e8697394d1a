# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's resources that a workload uses, as bench and auto show them, and limits on these.

The server is mirrorfs with a child whose memory depends on the mount's read_ahead_kb.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fusetune.syscalls import pages_brought
from tests.native.conftest import sysfs_files
from tests.native.made_up_fio import THRESHOLD, made_up_fio
from tests.native.mirror import BINARY, Mirror
from tests.native.program import Fusetune
from tests.native.requirements import requires

pytestmark = requires("fio", "setpriv")

#: MiB of the child's memory, normally and while read_ahead_kb is above the threshold.
HELD, MORE = 40, 160
_CHILD = """
import sys, time
held, more = bytearray({held} << 20), b""
while not (file := open(sys.argv[1]).read()):
    time.sleep(0.01)
while True:
    try:
        above = int(open(file).read()) > {threshold}
    except OSError:
        break  # unmounted
    more = (more or bytearray({more} << 20)) if above else b""
    time.sleep(0.002)
"""


@contextmanager
def served(directory: Path, source: Path, *options: str) -> Iterator[Mirror]:
    """Yield a mirrorfs with a child that takes more memory above the threshold."""
    where, child, program = (directory / name for name in ("where", "child.py", "server"))
    where.touch()
    child.write_text(_CHILD.format(held=HELD, more=MORE, threshold=THRESHOLD))
    start = f"{sys.executable} {child} {where} </dev/null >/dev/null &"
    program.write_text(f'#!/bin/sh\n{start}\nexec {BINARY} "$@"\n')
    program.chmod(0o755)
    with Mirror(source, directory / "mnt", *options, binary=program) as mirror:
        where.write_text(str(sysfs_files(mirror.bdi)["read_ahead_kb"]))
        yield mirror


#: One workload, without guards, on a server that gains from readahead.
ALONE = ("-w", "seq-read", "--budget", "40", "--no-guard", "mmap-read", "--no-guard", "rand-read")
SLOW = ("delay=2ms", "served=8")


def usage(document: dict[str, Any]) -> dict[str, Any]:
    (workload,) = document["series"][0]["workloads"]
    found: dict[str, Any] = workload["usage"]
    return found


def test_bench_shows_cpu_time_and_memory_of_a_server_and_its_child(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    with served(tmp_path, tmpfs_dir) as mirror:
        words = ("bench", mirror.mountpoint, "-w", "seq-read", "--budget", "5")
        took = usage(fusetune.json(*words))
        assert took["unit"] == "gib"
        assert took["kernel_cpu_seconds"] > 0
        assert took["kernel_cpu_seconds"] <= took["server_cpu_seconds"] + took["client_cpu_seconds"]
        assert HELD << 20 < took["server_memory_peak_bytes"] < MORE << 20
        sysfs_files(mirror.bdi)["read_ahead_kb"].write_text(f"{THRESHOLD + 4}\n")
        more = usage(fusetune.json(*words))
        assert more["server_memory_peak_bytes"] > MORE << 20
        sysfs_files(mirror.bdi)["read_ahead_kb"].write_text("128\n")
        shown = fusetune(*words).stdout
        assert "of CPU per GiB" in shown
        assert usage(fusetune.json(*words))["server_memory_peak_bytes"] < MORE << 20  # set back


def _has_cachestat() -> bool:
    with open(__file__, "rb") as stream:
        try:
            return pages_brought(stream.fileno()) >= 0
        except OSError:
            return False


@pytest.mark.skipif(not _has_cachestat(), reason="needs cachestat(2), of Linux 6.5")
@pytest.mark.parametrize(
    ("options", "ahead", "known", "vain"),
    [((), 0, True, False), ((), 4096, True, True), (("direct_io",), 128, False, False)],
)
def test_bench_shows_what_readahead_brought_in_vain(
    fusetune: Fusetune,
    tmpfs_dir: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    ahead: int,
    known: bool,
    vain: bool,
) -> None:
    """Without readahead, programs read each cached page; with it, not all."""
    with Mirror(tmpfs_dir, tmp_path / "mnt", *options) as mirror:
        sysfs_files(mirror.bdi)["read_ahead_kb"].write_text(f"{ahead}\n")
        words = ("bench", mirror.mountpoint, "-w", "rand-read", "--budget", "5")
        share = usage(fusetune.json(*words))["readahead_unused_share"]
        assert (share is not None) == known
        assert bool(share) == vain
        assert not list(tmpfs_dir.glob(".fusetune-*"))


def test_tmpfs_has_no_server(fusetune: Fusetune) -> None:
    document = fusetune.json("bench", "--calibrate", "-w", "seq-read", "--budget", "8")
    found = {one["label"]: one["workloads"] for one in document["series"]}
    assert found["tmpfs itself"][0]["usage"]["server_cpu_seconds"] is None
    assert found["tmpfs itself"][0]["usage"]["server_memory_peak_bytes"] is None
    assert found["tmpfs itself"][0]["usage"]["client_cpu_seconds"] > 0
    assert found["mirrorfs, stock"][0]["usage"]["server_cpu_seconds"] > 0


def refused(document: dict[str, Any], option: str) -> list[str]:
    return [one for one in document["reasons"] if "refused, because" in one and option in one]


def test_a_choice_keeps_a_limit_on_memory(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """Readahead above the threshold is faster, but the server's child takes more memory."""
    with served(tmp_path, tmpfs_dir, *SLOW) as mirror:
        words = ("auto", mirror.mountpoint, *ALONE, "--max-memory", "150M", "--json")
        done = fusetune(*words, timeout=60)
        assert done.returncode in (0, 4), done.stderr
        document = json.loads(done.stdout)
        assert document["after"]["read_ahead_kb"] <= THRESHOLD
        assert any("above --max-memory 150.0 MiB" in one for one in refused(document, "memory"))
        (took,) = document["usage"]
        assert took["name"] == "seq-read"
        assert took["before"]["server_memory_peak_bytes"] > HELD << 20


@pytest.mark.parametrize(
    ("limit", "least", "most"),
    [
        ((), 2048, 1 << 20),
        (("--max-cpu-ratio", "3"), 256, THRESHOLD),
        (("--max-cpu-ratio", "5"), 2048, 1 << 20),
    ],
)
def test_a_choice_keeps_a_limit_on_cpu_time(
    fusetune: Fusetune,
    mirror: Mirror,
    open_path: Path,
    limit: tuple[str, ...],
    least: int,
    most: int,
) -> None:
    """Above the threshold reads are faster still, for four times the CPU time."""
    with made_up_fio(open_path, mirror, f"4.0 if ahead > {THRESHOLD} else 1.0") as environment:
        words: tuple[Path | str, ...] = ("auto", mirror.mountpoint, *ALONE, *limit)
        document = fusetune.json(*words, environment=environment)
        assert least <= document["after"]["read_ahead_kb"] <= most
        assert bool(refused(document, "--max-cpu-ratio 3")) == ("3" in limit)


@pytest.mark.xdist_group("private")
def test_options_keep_a_limit_as_well(fusetune: Fusetune, mirror: Mirror) -> None:
    """The writeback cache is much faster, but any server takes more than this."""
    words = ("auto", mirror.mountpoint, "-w", "small-write", "--try-options", "--budget", "30")
    done = fusetune(*words, "--max-memory", "1M", "--json", timeout=60)
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert document["advice"]["changes"] == []
    assert any("above --max-memory 1.0 MiB" in one for one in refused(document, "writeback"))
    assert all(one["usage"]["small-write"]["unit"] == "gib" for one in document["trials"])
