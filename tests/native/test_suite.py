# SPDX-License-Identifier: GPL-2.0-or-later
"""``bench --suite published`` on its own mounts and on a given one.

The workloads are from the papers that fusetune/bench/papers names.
"""

import signal
from pathlib import Path

import pytest

from fusetune.bench.papers.catalogue import PAPERS
from tests.native.mirror import MOUNTINFO, PATIENCE, Mirror, wait_for
from tests.native.program import Fusetune
from tests.native.requirements import requires

pytestmark = requires("fio", "setpriv")


@pytest.mark.alone
def test_each_work_is_measured_or_says_why_not(fusetune: Fusetune) -> None:
    before = MOUNTINFO.read_text()
    document = fusetune.json("bench", "--suite", "published", "--budget", "30", timeout=400)
    works = {work["name"]: work for work in document["works"]}
    assert list(works) == list(PAPERS)
    for work in works.values():
        assert work["cost"]["seconds"] <= 30 * 1.25  # the last sample may exceed it
        for row in work["rows"]:
            assert (row["ratio"] is None) == (row["ci95"] is None) == bool(row["absent_reason"])
    assert works["szeredi"]["rows"]
    assert all(row["ratio"] for row in works["szeredi"]["rows"])
    assert works["hayasaka"]["rows"][0]["ratio"]
    before_it = [row["ratio"] for row in works["singh-parallel"]["rows"][:6]]
    assert before_it[5] < 0.5 < before_it[0]  # alternately 32 writers, and one alone
    assert MOUNTINFO.read_text() == before
    assert not list(fusetune.run.glob("calibrate-*"))


def test_a_given_mount_shows_what_compares_jobs(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    with Mirror(tmpfs_dir, tmp_path / "mnt", "direct_io", "write_delay=1ms") as mirror:
        works = ("--only", "singh-parallel", "--only", "szeredi")
        words = ("bench", mirror.mountpoint, "--suite", "published", *works)
        for budget in ("8", "60"):  # in parallel with other tests, two rounds may take longer
            document = fusetune.json(*words, "--budget", budget, timeout=120)
            parallel, szeredi = document["works"]
            if parallel["rows"][0]["ratio"]:
                break
        assert [row["label"] for row in parallel["rows"]] == [
            f"before, {count} writers" for count in (1, 2, 4, 8, 16, 32)
        ]
        assert all(row["ratio"] for row in parallel["rows"])
        assert szeredi["rows"]
        assert all("without giving one" in row["absent_reason"] for row in szeredi["rows"])
        assert mirror.counters()["ops"]["WRITE"]["count"] > 0
        assert not list(tmpfs_dir.glob(".fusetune-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("kind", ["tmpfs fusetune", "fuse.mirrorfs"])
@pytest.mark.parametrize(
    "words", [("--calibrate", "-w", "seq-read"), ("--suite", "published", "--only", "szeredi")]
)
def test_a_signal_while_it_mounts_leaves_nothing(
    fusetune: Fusetune, words: tuple[str, ...], kind: str, number: signal.Signals
) -> None:
    """The check of each test also finds processes."""
    before = MOUNTINFO.read_text()
    process = fusetune.start("bench", *words)
    wait_for(lambda: MOUNTINFO.read_text().count(f" - {kind}") > before.count(f" - {kind}"), kind)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert stdout == ""
    assert stderr.splitlines()[-1] == "fusetune: interrupted: everything was restored"
    assert MOUNTINFO.read_text() == before
    assert not list(fusetune.run.glob("calibrate-*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "yu"), "--only needs --suite published"),
        (("--suite", "published", "--only", "ext4"), "unknown work 'ext4'; known are szeredi"),
        (("--suite", "published", "--calibrate"), "--suite cannot be combined with --calibrate"),
        (("--suite", "published", "-w", "mixed"), "--suite cannot be combined with --calibrate"),
    ],
)
def test_wrong_use(fusetune: Fusetune, words: tuple[str, ...], said: str) -> None:
    done = fusetune("bench", *words)
    assert done.returncode == 2
    assert said in done.stderr
