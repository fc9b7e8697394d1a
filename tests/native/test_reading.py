# SPDX-License-Identifier: GPL-2.0-or-later
"""bench and auto on mounts that cannot be written, and with --files: they read existing files.

The server shows what was read: mirrorfs counts requests and bytes, and a server in raw protocol
records the range of each READ. The kernel requests whole pages, and does not request cached data
again.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import AS_NOBODY, sysfs_values
from tests.native.files_to_read import MIB, fill
from tests.native.hostile import Fault, HostileServer
from tests.native.mirror import Mirror
from tests.native.program import Fusetune
from tests.native.requirements import requires
from tests.native.servers import run_server

pytestmark = requires("fio", "mksquashfs", "setpriv", "squashfuse")
READ_ONLY = ("ro", "delay=1ms", "served=8")


def tree(source: Path) -> Mapping[str, tuple[int, ...]]:
    """Return, by path, what any write would change."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ctime_ns)
        for path in (source, *source.rglob("*"))
    }


def paths(read: Mapping[str, Any]) -> list[str]:
    return [file["path"] for file in read["files"]]


def test_a_read_only_mount_is_read_cold(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """If there is enough data for every sample, no byte is requested twice."""
    source = tmpfs_dir / "source"
    for number in range(4):
        with (source / f"model-{number}").open("wb") as file:
            file.truncate(4 << 30)
    before = tree(source)
    with Mirror(source, tmp_path / "mnt", *READ_ONLY, "bandwidth=64M") as mirror:
        words = ("bench", mirror.mountpoint, "-w", "seq-read", "--budget", "8")
        (series,) = fusetune.json(*words)["series"]
        counted = mirror.counters()["ops"]
    read, cost = series["read"], series["cost"]
    assert read["server_cache"] == "cold"
    assert sorted(paths(read)) == [f"model-{number}" for number in range(4)]
    assert not read["named"]
    assert cost["evaluations"] >= 2
    assert cost["bytes_written"] == 0
    assert cost["bytes_read"] <= counted["READ"]["bytes"]
    assert 0 < cost["requests"] <= cost["bytes_read"] / (128 << 10) + cost["evaluations"] + 2
    assert not any(counted[one]["count"] for one in ("MKDIR", "CREATE", "WRITE", "UNLINK"))
    assert tree(source) == before


def test_a_slow_server_with_little_data_is_tuned(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """The samples are short, but the largest readahead of one may reach most of the file."""
    with (tmpfs_dir / "source" / "model").open("wb") as file:
        file.truncate(512 << 20)
    options = ("ro", "delay=20ms", "served=4")
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", *options) as mirror:
        words = ("auto", mirror.mountpoint, "-w", "seq-read", "--budget", "30")
        found = fusetune.json(*words, "--no-guard", "mmap-read", "--no-guard", "rand-read")
        fusetune("reset", mirror.mountpoint)
    assert found["read"]["server_cache"] == "warm"
    assert found["ended_by"] != "ranges"
    assert found["after"]["read_ahead_kb"] > 512


#: A server without a lie.
NO_FAULT = Fault("no such file", lambda shown: shown)


def blocks(ranges: list[tuple[str, int, int]]) -> Counter[tuple[str, int]]:
    """Return how often each page was requested."""
    return Counter(
        (name, page)
        for name, offset, size in ranges
        for page in range(offset // 4096, (offset + size) // 4096)
    )


def repeated(reads: list[tuple[str, int, int]], length: int) -> list[tuple[str, int, int]]:
    """Return the requests of several pages that an earlier sample had all requested.

    ``length``: of a sample's range. The kernel may reclaim pages that a sample has not read yet and
    request them again; it may request single pages at any time.
    """
    seen: dict[tuple[str, int], int] = {}
    found, here, sample = [], ("", 0), 0
    for name, offset, size in reads:
        if (name, offset // length) != here:
            here, sample = (name, offset // length), sample + 1
        pages = list(blocks([(name, offset, size)]))
        if len(pages) >= 8 and all(seen.get(page, sample) < sample for page in pages):
            found.append((name, offset, size))
        seen |= dict.fromkeys(pages, sample)
    return found


READERS = ["seq-read", "rand-read", "large-read", "many-streams", "video"]


@pytest.mark.parametrize("workload", READERS)
def test_no_page_is_requested_twice(fusetune: Fusetune, tmp_path: Path, workload: str) -> None:
    # A file for each reader: an open of this server drops the pages of the whole file.
    sizes = {f"file-{number}": 8 << 30 for number in range(32)}
    with HostileServer(tmp_path / "mnt", NO_FAULT, tmp_path, sizes) as server:
        words = (server.point, "-w", workload, "--files", server.point, "--budget", "10")
        if workload == "seq-read":  # with everything that is set meanwhile
            done = fusetune("auto", *words, "--json")
            assert done.returncode in (0, 4), done.stderr
            found = json.loads(done.stdout)
            assert any(one.startswith("ranges of ") for one in found["reasons"])
        else:
            (found,) = fusetune.json("bench", *words)["series"]
        assert found["read"]["server_cache"] == "cold"
        assert found["cost"]["evaluations"] >= 2
        requested = blocks(server.reads)
    assert sum(requested.values()) * 4096 >= found["cost"]["bytes_read"]
    assert repeated(server.reads, found["read"]["range_bytes"]) == []
    assert sum(requested.values()) < 1.01 * len(requested)


@pytest.mark.parametrize(("workload", "readers"), [("many-streams", 32), ("video", 4)])
def test_readers_are_concurrent(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path, workload: str, readers: int
) -> None:
    """They read all files at once, and share them if there are too few."""
    source = tmpfs_dir / "source"
    for number in range(3):
        fill(source / f"file-{number}", 16 * MIB, number)
    # On a busy host, the last reader must begin before the first has its reply. Without keep_cache,
    # it would wait in open(2) for what others read of the same file (fs/fuse/file.c).
    options = ("ro", "keep_cache", "read_delay=200ms", "served=64", "max_background=64")
    with Mirror(source, tmp_path / "mnt", *options) as mirror:
        words = ("bench", mirror.mountpoint, "-w", workload, "--budget", "20")
        (series,) = fusetune.json(*words)["series"]
        ops = mirror.counters()["ops"]
    assert sorted(paths(series["read"])) == ["file-0", "file-1", "file-2"]
    samples = 1 + series["cost"]["evaluations"]  # and a warm-up
    assert ops["READ"]["most_in_flight"] >= readers
    assert ops["OPEN"]["count"] >= samples * readers
    assert ops["READ"]["bytes"] >= series["cost"]["bytes_read"] > 0


def test_few_data_are_warm_for_all(fusetune: Fusetune, tmp_path: Path) -> None:
    """Each range is read once before the first sample; then none twice before all others."""
    with HostileServer(tmp_path / "mnt", NO_FAULT, tmp_path, {"small": 6 * MIB}) as server:
        words = ("bench", server.point, "-w", "seq-read", "--files", server.point / "small")
        (series,) = fusetune.json(*words, "--budget", "6")["series"]
        requested = blocks(server.reads)
    read = series["read"]
    assert read["server_cache"] == "warm"
    assert read["range_bytes"] == MIB
    assert read["ranges"] >= 4
    assert read["named"]
    assert "the server's cache was warm for all samples" in series["read_how"]
    # Count the last page of each range, which the probe and readahead hardly affect.
    counts = [requested["small", number * 256 - 1] for number in range(1, 7)]
    used = sorted(count for count in counts if count >= 2)  # once beforehand, and for samples
    assert len(used) >= read["ranges"]
    assert used[-1] - used[0] <= 3


def test_squashfuse_is_read(fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path) -> None:
    source, image, point = tmpfs_dir / "source", tmpfs_dir / "image", tmp_path / "mnt"
    fill(source / "below" / "old", 20 * MIB)
    fill(source / "new", 20 * MIB, 1)
    fill(source / "small", MIB // 2, 2)
    os.utime(source / "below" / "old", (1e9, 1e9))
    subprocess.run(["mksquashfs", source, image, "-quiet", "-no-progress"], check=True)
    with run_server(["squashfuse", "-f", image, point], point, tmp_path / "log") as (_, bdi):
        before = sysfs_values(bdi)
        done = fusetune("auto", point, "--budget", "10", "--json")
        assert done.returncode in (0, 4), done.stderr
        found = json.loads(done.stdout)
        if done.returncode == 4:
            assert sysfs_values(bdi) == before
        refused = fusetune.fails("bench", point, "-w", "seq-write", code=2)
        fusetune("reset", point)
    assert found["workloads"] == ["seq-read", "rand-read"]
    assert paths(found["read"]) == ["new", "below/old"]
    assert found["cost"]["bytes_written"] == 0
    told = done.stderr.splitlines()[1]
    assert told.startswith("fusetune reads at most 4096 MiB (--budget-read) in at most 1000000 ")
    assert told.endswith(f" of new, below/old in {point}, and writes nothing there")
    assert "seq-write needs scratch files" in refused
    assert refused.endswith(
        "seq-read, rand-read, mmap-read, many-streams, large-read, open-storm, video"
    )


def fill_with_small(source: Path, count: int = 40) -> None:
    """Make files of 4 KiB and more in two directories, and one that is too small."""
    for number in range(count):
        fill(source / f"dir-{number % 2}" / f"file-{number}", 4096 + 100 * number, number)
    fill(source / "dir-0" / "tiny", 4095)


@pytest.mark.parametrize("owned", [False, True], ids=["root's", "a user's"])
def test_many_files_are_opened(
    fusetune: Fusetune, user_mirror: Mirror, tmpfs_dir: Path, tmp_path: Path, owned: bool
) -> None:
    """Each sample opens the same files by their paths, reads 4 KiB, and writes nothing."""
    source = user_mirror.source if owned else tmpfs_dir / "read-only"
    fill_with_small(source)
    before = tree(source)
    with ExitStack() as contexts:
        mirror = user_mirror
        if not owned:
            options = ("ro", "entry_timeout=0", "delay=1ms")
            mirror = contexts.enter_context(Mirror(source, tmp_path / "mnt", *options))
        words = ("-w", "open-storm", "--files", mirror.mountpoint / "dir-0")
        (series,) = fusetune.json("bench", mirror.mountpoint, *words, "--budget", "8")["series"]
        ops = mirror.counters()["ops"]
    read, cost = series["read"], series["cost"]
    opened = len(read["opened"])
    assert opened >= 10
    assert set(read["opened"]) <= {f"dir-0/file-{number}" for number in range(0, 40, 2)}
    assert (read["files"], read["ranges"], read["range_bytes"]) == ([], 0, 0)
    assert cost["evaluations"] >= 2
    # The first run, of at most 20 files, chose the number, and a warm-up followed. The time of a
    # sample would suffice for four times as many; a hiccup of the host may end one early. A fast
    # server gets them several times.
    opens, chosen = cost["requests"], opened * (1 + cost["evaluations"])
    assert opens > 0.8 * chosen
    if not owned:
        assert opens <= chosen + 20
    assert cost["bytes_read"] == 4096 * opens
    assert ops["READ"]["count"] >= opens
    assert ops["OPEN"]["count"] >= opens
    if not owned:  # with its entry_timeout, the kernel looks up each path
        assert ops["LOOKUP"]["count"] >= opens
    assert f"every sample opened the same {opened} files" in series["read_how"]
    assert not any(ops[one]["count"] for one in ("MKDIR", "CREATE", "WRITE", "UNLINK"))
    assert tree(source) == before


def test_a_set_reads_ranges_and_opens_files(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    source = tmpfs_dir / "source"
    fill_with_small(source)
    fill(source / "large", 64 * MIB)
    with Mirror(source, tmp_path / "mnt", *READ_ONLY) as mirror:
        words = ("bench", mirror.mountpoint, "-w", "home", "--budget", "10")
        (series,) = fusetune.json(*words)["series"]
    assert [one["name"] for one in series["workloads"]] == ["open-storm", "mmap-read"]
    assert paths(series["read"]) == ["large"]
    opened = series["read"]["opened"]
    small = {f"dir-{number % 2}/file-{number}" for number in range(40)}
    assert set(opened) <= {"large", *small}
    assert len(opened) >= 10
    assert "ranges of" in series["read_how"]
    assert f"every sample opened the same {len(opened)} files" in series["read_how"]


def test_a_store_of_models_is_tuned_by_its_own_files(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    for number in range(4):
        with (tmpfs_dir / "source" / f"model-{number}").open("wb") as file:
            file.truncate(1 << 30)
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", *READ_ONLY) as mirror:
        words = ("auto", mirror.mountpoint, "-w", "model-loading", "--budget", "30", "--json")
        done = fusetune(*words)
        assert done.returncode in (0, 4), done.stderr
        fusetune("reset", mirror.mountpoint)
    found = json.loads(done.stdout)
    assert found["workloads"] == ["mmap-read", "large-read", "many-streams"]
    assert found["cost"]["bytes_written"] == 0
    assert 0 < found["cost"]["bytes_read"] <= 4 << 30


def test_a_set_loses_what_writes(fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path) -> None:
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", "ro") as mirror:
        done = fusetune("auto", mirror.mountpoint, "-w", "media", "--dry-run")
    assert done.returncode == 0
    assert "would measure video 62%, many-streams 37%" in done.stdout
    assert done.stderr == (
        f"fusetune leaves out of media: seq-write; nothing is written because {mirror.mountpoint} "
        "is not writable\n"
    )


def test_the_budget_of_bytes_and_calls_is_kept(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    fill(tmpfs_dir / "source" / "file", 200 * MIB)
    words = ("-w", "rand-read", "--budget", "8", "--budget-read", "64M")
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", "ro") as mirror:
        (series,) = fusetune.json("bench", mirror.mountpoint, *words, "--budget-requests", "10000")[
            "series"
        ]
    assert 0 < series["cost"]["bytes_read"] <= 64 * MIB
    assert 0 < series["cost"]["requests"] <= 10_000
    for wrong in (("--budget-read", "63M"), ("--budget-requests", "9999")):
        assert "at least" in fusetune.fails("bench", "/none", *wrong, code=2)


def test_only_the_files_that_are_read_leave_the_page_cache(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    source = tmpfs_dir / "source"
    for name in ("read", "other"):
        fill(source / name, 8 * MIB)
    with Mirror(source, tmp_path / "mnt", "keep_cache") as mirror:
        (mirror.mountpoint / "other").read_bytes()
        mirror.reset_counters()
        words = ("-w", "seq-read", "--files", mirror.mountpoint / "read", "--budget", "5")
        fusetune.json("bench", mirror.mountpoint, *words)
        before = mirror.counters()["ops"]["READ"]["bytes"]
        assert before >= 8 * MIB
        (mirror.mountpoint / "other").read_bytes()
        # The kernel may have reclaimed a few pages meanwhile.
        assert mirror.counters()["ops"]["READ"]["bytes"] < before + MIB


def test_who_may_not_write_reads(fusetune: Fusetune, open_path: Path, user_mirror: Mirror) -> None:
    """A user's own mount whose top directory belongs to root, or is not writable."""
    fill(user_mirror.source / "file", 8 * MIB)
    (user_mirror.source / "file").chmod(0o444)
    user_mirror.source.chmod(0o555)
    os.chown(user_mirror.source, 0, 0)
    theirs = Fusetune(open_path)
    words = ("bench", user_mirror.mountpoint, "--budget", "5")
    for program, before in ((theirs, AS_NOBODY), (fusetune, ())):
        (series,) = program.json(*words, before=before)["series"]
        assert [one["name"] for one in series["workloads"]] == ["seq-read", "rand-read"]
        assert paths(series["read"]) == ["file"]
    (user_mirror.source / "file").chmod(0o000)
    os.chown(user_mirror.source / "file", 0, 0)
    line = fusetune.fails(*words)
    assert line.startswith(f"fusetune: cannot read file in {user_mirror.mountpoint}: permission")
