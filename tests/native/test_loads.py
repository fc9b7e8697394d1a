# SPDX-License-Identifier: GPL-2.0-or-later
"""The workloads' requests, as counted by the server."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fusetune.bench import worker
from fusetune.bench.mirror import native
from fusetune.bench.runner import SAMPLES_WANTED, Bench, BudgetSpent, dirty_limit
from fusetune.bench.spending import Budget
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import WORKLOADS
from fusetune.changes.lock import Lock
from tests.native.mirror import PATIENCE, Mirror
from tests.native.program import Fusetune
from tests.native.requirements import requires

pytestmark = requires("fio", "setpriv")

_MIB = 1 << 20
_SECONDS = 0.5  # for one sample
_VALID = 3  # seconds that the server's replies are valid: longer than a sample with fio's start
_OF_NAMES = ("LOOKUP", "GETATTR", "OPEN")


@contextmanager
def benched(
    fusetune: Fusetune,
    mirror: Mirror,
    workload: str,
    size: int = 8 * _MIB,
    budget: int = 8 << 30,
) -> Iterator[Bench]:
    """Yield a bench of one workload whose scratch files have been created."""
    mount = fusetune.find(mirror.mountpoint)
    with (
        Lock(fusetune.host, mount),
        Interruption() as interruption,
        Bench(
            fusetune.host,
            mount,
            [WORKLOADS[workload]],
            Budget(30.0, budget),
            interruption,
            size,
            _SECONDS,
        ) as bench,
    ):
        yield bench


@pytest.fixture
def asked(fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path) -> Any:
    """Measure a workload once; return its figure, and the server's counters by operation."""

    def measured(workload: str, *options: str) -> tuple[float, dict[str, Any]]:
        with (
            Mirror(tmpfs_dir, tmp_path / "mnt", *options) as mirror,
            benched(fusetune, mirror, workload) as bench,
        ):
            mirror.reset_counters()
            figure = bench.measure()[workload]
            return figure, mirror.counters()["ops"]

    return measured


def test_no_sample_depends_on_the_one_before_it(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fio finds an empty page cache, and replies about names and attributes that are still valid.

    Otherwise its time would include dropping what the sample before left in the cache, and requests
    whose number depends on how long that sample took.
    """
    found = []
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", f"timeout={_VALID}") as mirror,
        benched(fusetune, mirror, "seq-read") as bench,
    ):
        run = worker.run

        def watched(*arguments: Any) -> tuple[int, bytes, bytes]:
            cached = bench._scratch.cached_bytes()
            mirror.reset_counters()
            ended = run(*arguments)
            ops = mirror.counters()["ops"]
            found.append((cached, {name: ops[name]["count"] for name in _OF_NAMES}))
            return ended

        bench.measure()
        time.sleep(_VALID)
        monkeypatch.setattr(worker, "run", watched)
        bench.measure()
    ((cached, asked),) = found
    assert not cached  # None before Linux 6.5
    assert asked == dict.fromkeys(_OF_NAMES, 0) | {"OPEN": 1}


def test_the_server_is_asked_again_before_its_replies_expire(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """Once for the directory and once for the file."""
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", "timeout=3600") as mirror,
        benched(fusetune, mirror, "seq-read") as bench,
    ):
        mirror.reset_counters()
        bench._scratch.prepare(PATIENCE)
        assert mirror.counters()["ops"]["LOOKUP"]["count"] == 2


def test_mmap_read_asks_by_faults(asked: Any) -> None:
    """Faults read pages; sequential reads read everything, and only once."""
    figure, ops = asked("mmap-read", "read_delay=2ms", "served=1")
    assert figure > 0
    assert ops["OPEN"]["count"] == 2
    # A random fault also reads read_ahead_kb around the page (mm/filemap.c,
    # do_sync_mmap_readahead), so 4 KiB cost far more.
    assert ops["READ"]["bytes"] > 64 << 10
    assert ops["READ"]["largest_bytes"] > 4096
    assert "WRITE" not in {name for name, one in ops.items() if one["count"]}


def test_many_streams_reads_32_files_at_once(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    # On a busy host, the last reader must begin before the first has its reply.
    options = ("read_delay=200ms", "served=64", "max_background=64")
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", *options) as mirror,
        benched(fusetune, mirror, "many-streams") as bench,
    ):
        (directory,) = tmpfs_dir.glob(".fusetune-*")
        assert len(list(directory.glob("stream.*"))) == 32
        assert bench.bytes_written == 2 * 8 * _MIB
        mirror.reset_counters()
        bench.measure()
        ops = mirror.counters()["ops"]
        assert ops["OPEN"]["count"] == ops["RELEASE"]["count"] == 32
        assert ops["READ"]["most_in_flight"] >= 32
        assert ops["READ"]["bytes"] == 8 * _MIB


def test_large_read_asks_for_large_requests(asked: Any) -> None:
    _, ops = asked("large-read", "max_write=1M")
    assert ops["READ"]["largest_bytes"] == _MIB  # direct: as large as a request may be
    assert ops["READ"]["bytes"] == 2 * 8 * _MIB  # buffered, then direct


def test_open_storm_opens_each_file_equally_often(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", "delay=1ms") as mirror,
        benched(fusetune, mirror, "open-storm") as bench,
    ):
        (directory,) = tmpfs_dir.glob(".fusetune-*")
        files = len(list(directory.glob("storm.*")))
        assert files >= 10
        mirror.reset_counters()
        bench.measure()
        ops = mirror.counters()["ops"]
        opens = files * bench._loops["open-storm"]
        assert ops["OPEN"]["count"] == ops["RELEASE"]["count"] == ops["READ"]["count"] == opens
        assert ops["READ"]["bytes"] == opens * 4096
        assert not ops["CREATE"]["count"]


def test_a_fast_server_opens_more_than_there_are_files(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """fio measures whole milliseconds, so a sample of few of them would be inexact."""
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", "no_xattr") as mirror,
        benched(fusetune, mirror, "open-storm") as bench,
    ):
        mirror.reset_counters()
        bench.sample_seconds = 2.0
        bench._files["open-storm"], bench._loops["open-storm"] = 10, 50
        bench.measure()
        assert mirror.counters()["ops"]["OPEN"]["count"] == 500


def test_metadata_creates_and_opens_each_file_once(asked: Any) -> None:
    """fio creates none of them before it takes the time."""
    _, ops = asked("metadata")
    files = ops["CREATE"]["count"]
    assert files >= 10
    for name in ("OPEN", "READ", "WRITE", "UNLINK"):
        assert ops[name]["count"] == files, name
    assert ops["READ"]["bytes"] == ops["WRITE"]["bytes"] == files * 4096
    assert not ops["FSYNC"]["count"]


def test_every_request_for_a_file_shows_in_metadata(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """A file is created by CREATE, WRITE and FLUSH, and read by OPEN, READ and FLUSH."""
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", "delay=5ms") as mirror,
        benched(fusetune, mirror, "metadata") as bench,
    ):
        (workload,) = bench.workloads
        create, opened, _, unlink = bench._run_workload(workload)
    for job, requests in ((create, 3), (opened, 3), (unlink, 1)):
        assert 0 < workload.figure([job]) < 1 / (requests * 0.0049), job["jobname"]


@pytest.mark.alone
@pytest.mark.parametrize("budget", [64, 512])
@pytest.mark.parametrize("workload", ["mixed", "database"])
def test_all_jobs_begin_on_a_fast_mount(
    fusetune: Fusetune, tmpfs_dir: Path, workload: str, budget: int
) -> None:
    """A tmpfs has read or written a small file before all of fio's threads have begun."""
    fusetune.host.make_dir(fusetune.run)
    one = WORKLOADS[workload]
    limits = Budget(30.0, budget * _MIB)
    with (
        Interruption() as interruption,
        Bench(fusetune.host, native(tmpfs_dir / "source"), [one], limits, interruption) as bench,
    ):
        assert bench.affordable() >= 4
        for _ in range(4):
            assert bench.measure()[workload] > 0
        assert bench.bytes_written <= budget * _MIB


@pytest.mark.parametrize("workload", ["tree-copy", "checkpoint"])
def test_a_stall_after_fio_ends_the_run_like_one_of_fio(
    fusetune: Fusetune, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, workload: str
) -> None:
    with benched(fusetune, mirror, workload) as bench:
        bench.measure()
        finish = bench._scratch.finish

        def stall(*how: Any) -> float:
            mirror.suspend()
            try:
                return finish(*how)
            finally:
                mirror.process.send_signal(signal.SIGCONT)

        monkeypatch.setattr(bench._scratch, "finish", stall)
        monkeypatch.setattr(Bench, "seconds_left", 1.0)
        with pytest.raises(BudgetSpent) as spent:
            bench.measure()
        assert spent.value.part == "seconds"
        assert bench.evaluations == 1


@pytest.mark.parametrize("workload", ["metadata", "tree-copy"])
def test_small_files_keep_to_the_budget_of_bytes(
    fusetune: Fusetune, mirror: Mirror, workload: str
) -> None:
    with benched(fusetune, mirror, workload, budget=64 * _MIB) as bench:
        before = bench.bytes_left
        bench.measure()
        written = before - bench.bytes_left
        assert written >= 10 * 4096
        assert bench._rest() == {"bytes_written": bench.bytes_left / written}


def test_tree_copy_does_all_with_each_file(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", "delay=1ms", "no_xattr") as mirror,
        benched(fusetune, mirror, "tree-copy") as bench,
    ):
        (directory,) = tmpfs_dir.glob(".fusetune-*")
        files = len(list(directory.glob("source.*")))
        assert files >= 10
        mirror.reset_counters()
        assert bench.measure()["tree-copy"] > 0
        ops = mirror.counters()["ops"]
        for name in ("OPEN", "READ", "CREATE", "WRITE", "SETATTR", "UNLINK"):
            assert ops[name]["count"] == files, name
        assert ops["READ"]["bytes"] == ops["WRITE"]["bytes"] == files * (16 << 10)
        assert not list(directory.glob("copy.*"))


@pytest.mark.parametrize(
    ("options", "fills"), [(("writeback", "no_xattr"), True), (("write_delay=100us",), False)]
)
def test_a_burst_fills_what_may_be_dirty(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path, options: tuple[str, ...], fills: bool
) -> None:
    """A smaller burst never waits, whatever max_ratio is; without a writeback cache none does."""
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", *options) as mirror,
        benched(fusetune, mirror, "small-write", 256 * _MIB, 2 << 30) as bench,
    ):
        limit = dirty_limit(fusetune.host, bench.mount)
        mirror.reset_counters()
        bench.measure()
        written = mirror.counters()["ops"]["WRITE"]["bytes"]
        share = bench.budget.bytes_written // SAMPLES_WANTED
        assert (written >= min(limit, share - 2 * _MIB)) is fills


@pytest.mark.parametrize("options", [(), ("writeback", "no_xattr")])
def test_log_append_syncs_each_append(asked: Any, options: tuple[str, ...]) -> None:
    """The end of the file follows the last write, not an fdatasync (fio's io_u.c)."""
    _, ops = asked("log-append", *options, "delay=2ms")
    assert ops["WRITE"]["count"] >= 10
    assert abs(ops["FSYNC"]["count"] - ops["WRITE"]["count"]) <= 1
    assert ops["CREATE"]["count"] == ops["UNLINK"]["count"] == 1


def test_database_syncs_each_write(asked: Any) -> None:
    _, ops = asked("database", "delay=1ms", "no_xattr")
    assert ops["WRITE"]["count"] >= 10
    assert abs(ops["FSYNC"]["count"] - ops["WRITE"]["count"]) <= 1
    assert ops["WRITE"]["largest_bytes"] == 8192
    assert ops["READ"]["count"] >= 10
    assert not ops["CREATE"]["count"]  # in place


def test_checkpoint_is_synced_and_renamed(asked: Any) -> None:
    figure, ops = asked("checkpoint", "no_xattr")
    assert figure > 0
    assert ops["FSYNC"]["count"] == ops["CREATE"]["count"] == 1
    assert ops["RENAME"]["count"] + ops.get("RENAME2", {"count": 0})["count"] == 1
    assert ops["WRITE"]["bytes"] >= _MIB


@pytest.mark.alone
def test_video_is_in_time_on_a_fast_server_alone(asked: Any) -> None:
    """A request of 100 ms lasts five blocks of 20 ms, and readahead reads few of them ahead."""
    # The best of three, because the host may be busy.
    assert max(asked("video")[0] for _ in range(3)) == 1.0
    slow, ops = asked("video", "read_delay=100ms", "served=2")
    assert ops["READ"]["count"] >= 4
    assert 0 < slow < 0.5


def test_a_set_is_shown_with_its_shares(fusetune: Fusetune, mirror: Mirror) -> None:
    document = fusetune.json("auto", mirror.mountpoint, "-w", "media", "--dry-run")
    assert document["workloads"] == ["video", "many-streams", "seq-write"]
    assert document["weights"] == pytest.approx(
        {"video": 0.5, "many-streams": 0.3, "seq-write": 0.2}
    )
    text = fusetune("auto", mirror.mountpoint, "-w", "media", "--dry-run").stdout
    assert "would measure video 50%, many-streams 30%, seq-write 20%" in text


@pytest.mark.alone
def test_latencies_are_those_of_the_server(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """No read is faster than the server, so neither the median nor the p99 is."""
    with Mirror(tmpfs_dir, tmp_path / "mnt", "read_delay=20ms") as mirror:
        words = (mirror.mountpoint, "-w", "rand-read", "--budget", "6")
        document = fusetune.json("bench", *words)
        took = document["series"][0]["workloads"][0]["latency"]
        assert 0.019 < took["p50_seconds"] <= took["p99_seconds"]
        shown = fusetune("bench", *words).stdout
        assert "p50 2" in shown
        assert " ms, p99 " in shown


def test_auto_aims_at_the_p99(fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path) -> None:
    """Each sample is 1 divided by the p99, which is never shorter than the server's delay."""
    with Mirror(tmpfs_dir, tmp_path / "mnt", "read_delay=20ms") as mirror:
        words = ("auto", mirror.mountpoint, "-w", "rand-read", "--target", "p99", "--budget", "20")
        done = fusetune(*words, "--no-guard", "mmap-read", "--json")
        assert done.returncode in (0, 4), done.stderr
        trials = json.loads(done.stdout)["trials"]
        assert trials
        for trial in trials:
            assert all(0 < sample["rand-read"] < 52 for sample in trial["samples"])
            assert trial["latency"]["rand-read"]["p99_seconds"] > 0.019
