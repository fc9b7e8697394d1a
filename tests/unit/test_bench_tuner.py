# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables of the benches that deploy choices again, and that let auto --live choose."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from fusetune.bench.intervals import Interval
from fusetune.profile.waits import Mark, Waited
from fusetune.profile.waits_program import Kind
from tests.bench import traffic
from tests.bench.contest import (
    CHOICES,
    GRID,
    MORE_SERVERS,
    SERVERS,
    Result,
    choice,
    choices_in,
    speeds,
    values,
    words,
)
from tests.bench.deployed import BLOCKS, Deployed, Deployment, decided, row, verdicts
from tests.bench.page import NOT_REACHED, heading, table
from tests.bench.replay import Replay, recorded, replayed
from tests.unit.simulated_traffic import AHEAD, BACKGROUND, MIB, START, TICK, SimulatedTraffic

# What was chosen is read from the page


@pytest.mark.parametrize("setting", [{}, {"read_ahead_kb": 4096}, {"max_ratio": 5, "a": 0}])
def test_values_are_read_as_they_were_written(setting: dict[str, int]) -> None:
    assert values(words(setting)) == setting


def result(ratio: float) -> Result:
    """Return a result whose choice has this ratio to the grid's best."""
    ratios = {GRID: Interval(ratio, 0.9, 1.1), "stock": Interval(2.0, 1.5, 2.5)}
    chosen, best = {"read_ahead_kb": 512}, {"max_background": 24, "read_ahead_kb": 64}
    return Result(MORE_SERVERS[0], chosen, best, 30, 20.0, ratios)


def test_choices_are_those_on_the_page() -> None:
    rows = [choice(result(1.0)), ("another", "stock", "stock", "1", "1")]
    text = f"\ntext\n\n| other | table |\n\n{table(CHOICES, rows)}\n"
    assert text.count(heading(CHOICES)) == 1
    assert choices_in(text) == {
        MORE_SERVERS[0].name: {"auto": result(1.0).chosen, GRID: result(1.0).grid_best},
        "another": {"auto": {}, GRID: {}},
    }


@pytest.mark.parametrize(("ratio", "word"), [(0.97, "reached"), (0.96, NOT_REACHED)])
def test_a_choice_must_be_nearly_as_good_as_the_best(ratio: float, word: str) -> None:
    cells = speeds(result(ratio))
    shown = (f"{ratio:.2f} [0.90, 1.10]", word, "2.00 [1.50, 2.50]")
    assert cells == (MORE_SERVERS[0].name, MORE_SERVERS[0].workload, *shown)


# Choices deployed again


def deployed(speeds: list[float], stock: float = 1.0, noise: float = 1.0) -> Deployed:
    """Return a server whose mounts are so fast with the choice; the grid's best has 4.

    ``noise``: the width of the ratios' intervals, as a factor to each side.
    """
    mounts = []
    for speed in speeds:
        speeds_by_name = {"auto": speed, "stock": stock, GRID: 4.0}
        logs = {name: math.log(one) for name, one in speeds_by_name.items()}
        share = speed / 4.0
        mounts.append(Deployment(logs, Interval(share, share / noise, share * noise)))
    return Deployed(SERVERS[0], mounts)


def test_mounts_that_are_slower_are_counted() -> None:
    one = deployed([4.0, 3.9, 3.7, 2.7, 0.9], noise=1.1)
    cells = row(one)
    assert cells[:2] == (SERVERS[0].name, SERVERS[0].workload)
    assert cells[4:8] == ("1 of 5", "3 of 5", "2 of 5", "2 of 5")
    assert cells[9] == "0.0%"


@pytest.mark.parametrize(
    ("ratios", "ends"),
    [
        ([1.0, 1.02] * (BLOCKS // 2), True),
        ([0.9, 0.92] * (BLOCKS // 2), True),
        ([0.9, 1.0] * (BLOCKS // 2), False),
        ([1.0, 1.02] * (BLOCKS // 2) + [1.0], False),
    ],
)
def test_blocks_end_when_they_prove_something(ratios: list[float], ends: bool) -> None:
    assert decided({"auto": [math.log(one) for one in ratios], GRID: [0.0] * len(ratios)}) == ends


def test_the_spread_is_of_the_speed_over_the_mounts() -> None:
    assert deployed([1.0, 2.0, 3.0]).spread("auto") == pytest.approx(0.5)


def test_what_is_wanted_of_all_mounts() -> None:
    good, bad = deployed([4.0] * 19 + [3.0]), deployed([3.9] * 20)
    assert [(cells[1], cells[3]) for cells in verdicts([good])] == [
        ("0.0%", "reached"),
        ("5.0%", "reached"),
    ]
    assert verdicts([good, bad])[1][1:] == ("2.5%", "5%", "reached")
    slower = deployed([0.9] + [4.0] * 9)
    assert [cells[3] for cells in verdicts([slower])] == [NOT_REACHED, NOT_REACHED]


# Recorded traffic


def mark(at: float) -> Mark:
    """Return a mark with a read and a fault that ended, and a read that waits."""
    ended = {(Kind.READ, at - 0.5): Waited(0.01, 1, 4096), (Kind.FAULT, 0.0): Waited(0.02, 2, 8192)}
    return Mark(at, ended, [((Kind.READ, at - 0.2), at - 0.05)])


def test_a_replay_begins_anywhere_and_all_its_times_move() -> None:
    marks = [mark(10.0 + number) for number in range(4)]
    source = Replay(marks, 2)
    assert source.now() == pytest.approx(11.0)
    found = [source.next() for _ in range(7)]
    assert [one.at for one in found] == pytest.approx([12.0 + number for number in range(7)])
    assert source.now() == found[-1].at
    for one in found:
        (read, since), (fault, unknown) = one.ended
        assert (read, fault, unknown) == (Kind.READ, Kind.FAULT, 0.0)
        assert since == pytest.approx(one.at - 0.5)
        (((_, opened), begun),) = one.waiting
        assert (opened, begun) == pytest.approx((one.at - 0.2, one.at - 0.05))


def test_a_recording_has_the_seconds_asked_for() -> None:
    marks = recorded(SimulatedTraffic(lambda setting, second: {Kind.READ: MIB}), 5.0)
    assert marks[-1].at - marks[0].at == pytest.approx(5.0, abs=1.5 * TICK)


@pytest.mark.slow
def test_on_recorded_traffic_other_values_are_tried_and_none_is_kept() -> None:
    speeds = {Kind.READ: 10 * MIB, Kind.WRITE: 5 * MIB}
    marks = recorded(SimulatedTraffic(lambda setting, second: speeds, noise=0.4), 30.0)
    runs = replayed(marks, [AHEAD, BACKGROUND], START, 40.0, 3)
    assert len({tuple(map(str, run.found.trials)) for run in runs}) == 3
    for run in runs:
        assert len(run.found.trials) > 3
        assert not run.found.choice.changed


# Programs that use a mount


@pytest.mark.parametrize("kind", traffic.KINDS)
def test_a_program_does_so_many_files_and_says_how_long(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "FILES", 1)
    traffic.lay_out(tmp_path)
    assert 0 < traffic.timed(tmp_path, kind, 1) < 60
    assert (tmp_path / "written0").exists() == (kind == "write")


def test_a_program_changes_to_another_kind(tmp_path: Path) -> None:
    (tmp_path / "file0").write_bytes(b"")
    command = [sys.executable, traffic.__file__, "write", str(tmp_path), "--then", "read", "0"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "file1" in run.stderr  # it reads, until a file is missing
    assert not (tmp_path / "written0").exists()
