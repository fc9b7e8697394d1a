# SPDX-License-Identifier: GPL-2.0-or-later
"""Readahead costs page faults time; auto chooses no value that makes them slower."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from fusetune.bench.reading import Reading, bench_of
from fusetune.bench.runner import Bench, BudgetSpent
from fusetune.bench.spending import Budget
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import WORKLOADS, Workload, only_job
from fusetune.errors import FusetuneError
from fusetune.tuner.guards import Guards
from tests.native.conftest import sysfs_files, sysfs_values
from tests.native.files_to_read import MIB, fill
from tests.native.made_up_fio import made_up_fio
from tests.native.mirror import Mirror
from tests.native.program import Fusetune
from tests.native.requirements import requires
from tests.native.test_loads import benched

pytestmark = requires("fio", "setpriv")


@pytest.fixture
def environment(open_path: Path, mirror: Mirror) -> Iterator[dict[str, str]]:
    """A PATH with a fio whose figures depend on the mount's read_ahead_kb."""
    with made_up_fio(open_path, mirror) as found:
        yield found


def test_a_value_that_costs_page_faults_is_passed_over(
    fusetune: Fusetune, mirror: Mirror, environment: dict[str, str]
) -> None:
    words = ("auto", mirror.mountpoint, "-w", "seq-read", "--budget", "60")
    document = fusetune.json(*words, environment=environment)
    why = r"skipped, because mmap-read \(random\) seemed to fall to (\S+) times its speed"
    fell = [float(found[1]) for one in document["reasons"] if (found := re.search(why, one))]
    assert fell
    assert all(0.55 < ratio < 0.65 for ratio in fell)
    assert not any(one["refused"] for one in document["guards"])
    assert document["applied"]
    assert 128 < document["after"]["read_ahead_kb"] <= 512
    kept = [one for one in document["guards"] if one["knobs"].items() <= document["after"].items()]
    assert {one["name"] for one in kept} == {
        "mmap-read (sequential)",
        "mmap-read (random)",
        "rand-read",
    }
    assert sysfs_values(mirror.bdi) == document["after"]


def test_a_guard_that_was_left_out_refuses_nothing(
    fusetune: Fusetune, mirror: Mirror, environment: dict[str, str]
) -> None:
    words = ("auto", mirror.mountpoint, "-w", "seq-read", "--no-guard", "mmap-read")
    document = fusetune.json(*words, environment=environment)
    assert {one["name"] for one in document["guards"]} == {"rand-read"}
    assert document["after"]["read_ahead_kb"] >= 2048


def _lose_by_readahead(bench: Bench, mirror: Mirror) -> Workload:
    """The random faults, which 8 MiB of readahead make slower."""
    faults = Guards.of([WORKLOADS["seq-read"]], {"read_ahead_kb": 128}, ()).jobs[0]
    assert faults.name == "mmap-read (random)"
    ahead = sysfs_files(mirror.bdi)["read_ahead_kb"]
    speeds: dict[str, list[float]] = {"128": [], "8192": []}
    for _ in range(3):
        for value, figures in speeds.items():
            ahead.write_text(value)
            figures.append(bench.measure_reader(faults))
    assert median(speeds["8192"]) < 0.7 * median(speeds["128"])
    return faults


@pytest.mark.alone
@pytest.mark.parametrize("server", [("served=64", "bandwidth=128M"), ("served=8",)])
def test_faults_really_lose_by_readahead_on_a_slow_line(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path, server: tuple[str, ...]
) -> None:
    """A fault reads as much as read_ahead_kb around it (mm/filemap.c, do_sync_mmap_readahead).

    A few faults may so read the whole file, which later ones must not gain from.
    """
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", "read_delay=2ms", *server) as mirror,
        benched(fusetune, mirror, "seq-read", 128 << 20) as bench,
    ):
        _lose_by_readahead(bench, mirror)


@pytest.mark.alone
def test_faults_lose_in_files_that_are_only_read(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    file = fill(tmpfs_dir / "file", 128 * MIB)
    with (
        Mirror(tmpfs_dir, tmp_path / "mnt", "ro", "read_delay=2ms", "served=8") as mirror,
        Interruption() as interruption,
        bench_of(
            fusetune.host,
            fusetune.find(mirror.mountpoint),
            [WORKLOADS["seq-read"]],
            Budget(),
            interruption,
            reading=Reading(guarded=True),
        ) as bench,
    ):
        before, left = bench.bytes_read, bench._rest()["bytes_read"]
        faults = _lose_by_readahead(bench, mirror)
        assert 6 * 4096 <= bench.bytes_read - before < MIB
        for _ in range(6):
            bench.measure_reader(only_job(WORKLOADS["mmap-read"], "sequential"))
        assert bench.bytes_read - before > 6 * MIB
        assert bench._rest()["bytes_read"] > 0.5 * left  # evaluations do not cost more
        os.truncate(file, 2 * MIB)
        with pytest.raises(FusetuneError, match=f"shrank from {128 * MIB} to"):
            bench.measure_reader(faults)


@pytest.mark.parametrize(
    ("guard", "part"),
    [
        (WORKLOADS["rand-read"], "requests"),
        (only_job(WORKLOADS["mmap-read"], "sequential"), "bytes_read"),
    ],
)
def test_guards_keep_to_the_budgets_of_bytes_and_calls(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path, guard: Workload, part: str
) -> None:
    fill(tmpfs_dir / "source" / "file", 16 * MIB)
    budget = Budget(60.0, bytes_read=64 * MIB, requests=10_000)
    with (
        Mirror(tmpfs_dir / "source", tmp_path / "mnt", "ro") as mirror,
        Interruption() as interruption,
        bench_of(
            fusetune.host,
            fusetune.find(mirror.mountpoint),
            [WORKLOADS["seq-read"]],
            budget,
            interruption,
            reading=Reading(guarded=True),
        ) as bench,
    ):
        with pytest.raises(BudgetSpent, match="too little is left of --budget-re") as spent:
            _ = [bench.measure_reader(guard) for _ in range(100)]
        assert spent.value.part == part
        assert bench.bytes_read <= budget.bytes_read
        assert bench.requests <= budget.requests
        assert getattr(bench, part) > 0.8 * getattr(budget, part)


@pytest.mark.alone
def test_a_read_only_mount_is_guarded(fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path) -> None:
    """Unguarded, 2 MiB or more are chosen. Whether 256 KiB cost faults 1 % is due to chance."""
    fill(tmpfs_dir / "file", 128 * MIB)
    with Mirror(tmpfs_dir, tmp_path / "mnt", "ro", "delay=2ms", "served=8") as mirror:
        found = json.loads(fusetune("auto", mirror.mountpoint, "-w", "seq-read", "--json").stdout)
        counted = mirror.counters()["ops"]
    assert found["after"]["read_ahead_kb"] <= 512
    assert any("mmap-read (random)" in why for why in found["reasons"])
    assert not any(counted[one]["count"] for one in ("CREATE", "WRITE"))
