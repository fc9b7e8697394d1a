# SPDX-License-Identifier: GPL-2.0-or-later
"""auto on real mounts: what it chooses, sets and saves, and how that is undone.

A server that takes 2 ms for each read gains from readahead, which keeps more requests in flight
(mm/readahead.c); random reads do not. The asserted gains have no upper bound, because hosts differ.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fusetune.tuner import constants
from tests.native.conftest import sysfs_values
from tests.native.made_up_fio import made_up_fio
from tests.native.mirror import Mirror
from tests.native.program import Fusetune
from tests.native.requirements import requires
from tests.tmpfs import tmpfs

pytestmark = requires("fio", "setpriv")

#: One workload and no guard; test_guards.py shows what readahead costs others.
ALONE = ("-w", "seq-read", "--budget", "30", "--no-guard", "mmap-read", "--no-guard", "rand-read")
SLOW = ("delay=2ms", "served=8")


@pytest.mark.alone
def test_auto_raises_readahead_on_a_slow_server(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """2 ms per read, 8 at a time: stock readahead keeps one request in flight, so more helps."""
    with Mirror(tmpfs_dir, tmp_path / "mnt", *SLOW) as mirror:
        before = sysfs_values(mirror.bdi)
        document = fusetune.json("auto", mirror.mountpoint, *ALONE, timeout=60)
        after = sysfs_values(mirror.bdi)
        assert document["applied"]
        assert document["saved"]
        assert document["before"] == before
        assert document["after"] == after
        assert after["read_ahead_kb"] > before["read_ahead_kb"]
        assert document["gain"]["ci95"][0] > 1
        assert document["cost"]["seconds"] <= 30
        shown = fusetune.json("show", mirror.mountpoint)
        assert shown["saved"]["knobs"]["read_ahead_kb"] == after["read_ahead_kb"]
        assert {k["name"]: k["set_by"] for k in shown["knobs"]}["read_ahead_kb"] == "fusetune"
        assert not list(tmpfs_dir.glob(".fusetune-*"))

        fusetune.json("reset", mirror.mountpoint)
        assert sysfs_values(mirror.bdi) == before
        assert fusetune.json("show", mirror.mountpoint)["saved"] is None


@pytest.mark.alone
def test_larger_requests_reach_the_server_after_auto(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """The kernel does what auto sets: the server sees more than one READ in flight."""
    with Mirror(tmpfs_dir, tmp_path / "mnt", *SLOW) as mirror:
        (tmpfs_dir / "file").write_bytes(bytes(16 << 20))
        fusetune.json("auto", mirror.mountpoint, *ALONE, timeout=60)
        mirror.reset_counters()
        assert (mirror.mountpoint / "file").read_bytes() == bytes(16 << 20)
        read = mirror.counters()["ops"]["READ"]
        assert read["most_in_flight"] > 1
        assert read["largest_bytes"] > 128 << 10


@contextmanager
def _quick(source: Path, place: Path) -> Iterator[tuple[Mirror, dict[str, str]]]:
    """A mount of ``source``, and the environment of a fio that takes no time."""
    place.mkdir()
    with (
        Mirror(source, place / "mnt") as mirror,
        made_up_fio(place, mirror) as environment,
    ):
        yield mirror, environment


def _is_reported(fusetune: Fusetune, mirror: Mirror, document: dict[str, Any]) -> None:
    """Check that the report has and draws the curve of the value that ``auto`` chose."""
    (mount,) = fusetune.json("report", mirror.mountpoint)["mounts"]
    measured, chosen = mount["measured"], document["after"]["read_ahead_kb"]
    (curve,) = (one for one in measured["knobs"] if one["name"] == "read_ahead_kb")
    assert (curve["start"], curve["chosen"]) == (document["before"]["read_ahead_kb"], chosen)
    (point,) = (one for one in curve["points"] if one["value"] == chosen)
    assert point["ci95"][0] > 1
    (workload,) = measured["workloads"]
    assert workload["ratio"] == pytest.approx(document["gain"]["ratio"], rel=0.1)
    samples = sum(len(trial["samples"]) for trial in document["trials"])
    most = min(samples, 80)
    # Whole blocks are kept, and one that no longer fits is left out.
    assert most - constants.BLOCK < len(measured["trials"]) <= most
    drawn = fusetune("report", mirror.mountpoint, "--format", "html").stdout
    assert f">read_ahead_kb: {chosen} chosen, " in drawn


def test_a_full_disk_costs_only_the_picture(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    with _quick(tmpfs_dir, tmp_path / "place") as (mirror, environment), tmpfs(full, "size=4k"):
        with suppress(OSError):
            (full / "all").write_bytes(bytes(1 << 20))
        words = ("auto", mirror.mountpoint, *ALONE, "--budget", "5", "--plot", full / "x.svg")
        done = fusetune(*words, "--json", environment=environment)
        fusetune("reset", mirror.mountpoint)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert json.loads(done.stdout)["trials"]


def test_auto_begins_at_what_it_chose_for_this_server(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """A later mount has the kernel's values again, and the earlier choice is in the first block
    measured on it.
    """
    first_place, other_place = tmp_path / "first", tmp_path / "other"
    # The searches end long before the budget does, except on a busy host: each fio is a process.
    patient = (*ALONE, "--budget", "100")
    with _quick(tmpfs_dir, first_place) as (mirror, environment):
        drawing = tmp_path / "curves.svg"
        plotted = ("auto", mirror.mountpoint, *patient, "--plot", drawing)
        first = fusetune.json(*plotted, environment=environment)
        assert first["warm_start"] is None
        drawn = drawing.read_text()
        assert drawn.count('<path class="p"') == len(first["curves"]) > 0
        _is_reported(fusetune, mirror, first)
    with _quick(tmpfs_dir, other_place) as (mirror, environment):
        words = ("auto", mirror.mountpoint, *patient, "--seed", "1")
        again = fusetune.json(*words, environment=environment)
        begun = again["warm_start"]
        assert begun["knobs"] == {name: first["after"][name] for name in begun["knobs"]}
        assert begun["knobs"]["read_ahead_kb"] > 128
        assert begun["holds"]
        assert begun["knobs"] in [trial["knobs"] for trial in again["trials"][: constants.BLOCK]]
        assert again["before"] == first["before"]
        assert again["applied"]
        assert again["cost"]["evaluations"] < first["cost"]["evaluations"]
        fusetune.json("reset", mirror.mountpoint)
        cold = fusetune.json(*words, "--cold", environment=environment)
        assert cold["warm_start"] is None


def test_auto_does_not_raise_readahead_for_random_reads(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    with Mirror(tmpfs_dir, tmp_path / "mnt", *SLOW) as mirror:
        before = sysfs_values(mirror.bdi)
        done = fusetune("auto", mirror.mountpoint, "-w", "rand-read", "--budget", "15", timeout=40)
        assert done.returncode in (0, 4), done.stderr
        assert sysfs_values(mirror.bdi)["read_ahead_kb"] <= before["read_ahead_kb"]
        if done.returncode == 4:
            assert sysfs_values(mirror.bdi) == before
            assert "nothing was changed" in done.stdout


def test_nothing_to_tune_is_exit_4_and_measures_nothing(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """No live knob matters to file operations."""
    with Mirror(tmpfs_dir, tmp_path / "mnt") as mirror:
        mirror.reset_counters()
        document = fusetune.json("auto", mirror.mountpoint, "-w", "metadata", code=4)
        assert not document["applied"]
        assert document["before"] == document["after"] == sysfs_values(mirror.bdi)
        assert document["cost"]["evaluations"] == 0
        assert mirror.counters()["ops"]["MKDIR"]["count"] == 0


def test_writes_without_writeback_cache_name_the_remount(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    with Mirror(tmpfs_dir, tmp_path / "mnt") as mirror:
        words = ("auto", mirror.mountpoint, "-w", "small-write", "--budget", "8")
        done = fusetune(*words, "--json")
        assert done.returncode in (0, 4), done.stderr
        assert any("-o writeback" in reason for reason in json.loads(done.stdout)["reasons"])


def test_auto_dry_run_writes_nothing(fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path) -> None:
    with Mirror(tmpfs_dir, tmp_path / "mnt") as mirror:
        before = sysfs_values(mirror.bdi)
        mirror.reset_counters()
        document = fusetune.json("auto", mirror.mountpoint, "--dry-run")
        files = {knob["knob"]: knob["file"] for knob in document["knobs"]}
        assert files["read_ahead_kb"] == f"/sys/class/bdi/{mirror.bdi}/read_ahead_kb"
        assert all(Path(file).exists() for file in files.values())
        assert sysfs_values(mirror.bdi) == before
        assert not fusetune.state.exists()
        assert mirror.counters()["ops"]["MKDIR"]["count"] == 0


@pytest.mark.parametrize("workload", ["mixed", "seq-write", "rand-write", "shared-write"])
def test_bench_measures_and_leaves_nothing(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path, workload: str
) -> None:
    with Mirror(tmpfs_dir, tmp_path / "mnt", "writeback", "no_xattr") as mirror:
        before = sysfs_values(mirror.bdi)
        document = fusetune.json(
            "bench",
            mirror.mountpoint,
            "-w",
            workload,
            "--budget",
            "6",
            "--budget-bytes",
            "300M",
        )
        (series,) = document["series"]
        (measured,) = series["workloads"]
        assert measured["name"] == workload
        assert len(measured["samples"]) >= 2
        assert measured["ci95"][0] <= measured["figure"] <= measured["ci95"][1]
        assert series["cost"]["seconds"] <= 6
        assert 0 < series["cost"]["bytes_written"] <= 300 << 20
        assert not list(tmpfs_dir.glob(".fusetune-*"))
        assert sysfs_values(mirror.bdi) == before


def test_bench_metadata_counts_operations(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    """Every operation that fio reports as done reached the server."""
    with Mirror(tmpfs_dir, tmp_path / "mnt", "timeout=0") as mirror:
        document = fusetune.json("bench", mirror.mountpoint, "-w", "metadata", "--budget", "15")
        assert document["series"][0]["workloads"][0]["unit"] == "operations_per_second"
        counted = mirror.counters()["ops"]
        assert counted["CREATE"]["count"] == counted["UNLINK"]["count"] >= 20
        assert counted["OPEN"]["count"] >= 20


def test_calibrate_measures_mirrorfs_and_tmpfs(fusetune: Fusetune) -> None:
    document = fusetune.json("bench", "--calibrate", "-w", "seq-read", "--budget", "15", timeout=60)
    series = {one["label"]: one for one in document["series"]}
    assert {"mirrorfs, stock", "mirrorfs, tuned", "tmpfs itself"} <= {
        label for label, one in series.items() if one["workloads"]
    }
    passed = series["mirrorfs, passthrough"]
    assert bool(passed["workloads"]) != bool(passed["absent_reason"])
    assert not json.dumps(document).count("NaN")
