# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --live on simulated traffic: which changes it reverts, and when immediately."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from fusetune.profile.waits_program import Kind
from fusetune.tuner.blocks import LEAD
from fusetune.tuner.live import Found, Live
from tests.unit.simulated_traffic import (
    AHEAD,
    BACKGROUND,
    BLOCK,
    MIB,
    START,
    TICK,
    Setting,
    SimulatedTraffic,
    by_readahead,
    reader,
    searched,
)

pytestmark = pytest.mark.slow


def held(traffic: SimulatedTraffic, bad: int) -> list[float]:
    """Return for how many seconds each bad setting was in force."""
    ends = [when for when, _ in traffic.written[1:]] + [traffic.now()]
    return [
        end - when
        for (when, setting), end in zip(traffic.written, ends, strict=True)
        if setting["read_ahead_kb"] >= bad
    ]


def test_a_bad_block_ends_at_once_and_is_not_repeated() -> None:
    def worse(setting: Setting, second: float) -> Mapping[Kind, float]:
        good = setting["read_ahead_kb"] < 256
        return {Kind.READ: 50 * MIB if good else 10 * MIB, Kind.WRITE: 0.3 * MIB}

    traffic = SimulatedTraffic(worse)
    live = searched(traffic, 120)
    times = held(traffic, 256)
    assert 1 <= len(times) <= 3  # 256 and 512 may both be tried before 256 is known to be bad
    assert max(times) <= BLOCK + 1e-6
    assert any("read fell to 0." in reason for reason in live.found.reasons)
    for before, after in zip(traffic.written, traffic.written[1:], strict=False):
        if before[1]["read_ahead_kb"] >= 256:
            assert after[1] == START
    assert not live.found.choice.changed


def test_values_by_which_calls_fail_are_taken_back_within_a_tick() -> None:
    traffic = SimulatedTraffic(lambda setting, second: {Kind.READ: 10 * MIB})
    traffic.failing = lambda setting: 0.02 if setting["max_background"] > 12 else 0.0001
    live = searched(traffic, 120)
    ends = [when for when, _ in traffic.written[1:]] + [traffic.now()]
    times = [
        end - when
        for (when, setting), end in zip(traffic.written, ends, strict=True)
        if setting["max_background"] > 12
    ]
    assert times
    assert max(times) <= LEAD + 3 * TICK + 1e-6
    assert any("calls failed" in reason for reason in live.found.reasons)
    assert not live.found.choice.changed


def test_failures_that_are_usual_are_no_reason() -> None:
    traffic = SimulatedTraffic(reader)
    traffic.failing = lambda setting: 0.05
    live = searched(traffic, 600)
    assert not any("calls failed" in reason for reason in live.found.reasons)
    assert live.found.choice.changed


def test_values_by_which_a_call_stalls_are_taken_back() -> None:
    """If calls stall, none of them ends; only waiting calls show that."""

    def stalling(setting: Setting, second: float) -> Mapping[Kind, float]:
        stalls = setting["read_ahead_kb"] > 128
        return {Kind.WRITE: 5 * MIB} if stalls else {Kind.READ: 5 * MIB, Kind.WRITE: 5 * MIB}

    traffic = SimulatedTraffic(stalling)
    since: list[float] = []

    def waiting(setting: Setting) -> list[tuple[tuple[Kind, float], float]]:
        if setting["read_ahead_kb"] <= 128:
            since.clear()
            return []
        since[:] = since or [traffic.now()]
        return [((Kind.READ, since[0]), since[0])]

    traffic.waiting = waiting
    live = searched(traffic, 300)
    assert max(held(traffic, 256)) <= 5 + BLOCK
    assert len(held(traffic, 256)) <= 3
    assert any("a read waited for 5." in reason for reason in live.found.reasons)


@pytest.mark.parametrize("seed", range(2))
def test_a_change_of_the_traffic_is_not_blamed_on_values(seed: int) -> None:
    """Everything becomes four times slower, whatever the values; readahead still helps."""

    def slower(setting: Setting, second: float) -> Mapping[Kind, float]:
        return {Kind.READ: by_readahead(setting) / (4 if second > 12 else 1)}

    traffic = SimulatedTraffic(slower, seed)
    live = searched(traffic, 600, seed)
    assert not [r for r in live.found.reasons if "read_ahead_kb=512" in r and "skipped" in r]
    assert live.found.choice.setting["read_ahead_kb"] >= 2048


def test_values_that_were_tried_when_everything_slowed_are_tried_again() -> None:
    """From the first change on everything is slower, also with the old values."""
    slowed: list[float] = []

    def slower(setting: Setting, second: float) -> Mapping[Kind, float]:
        slowed.extend([second] if setting != START else [])
        return {Kind.READ: by_readahead(setting) / (20 if slowed else 1)}

    traffic = SimulatedTraffic(slower)
    live = searched(traffic, 120)
    first = traffic.written[1][1]
    assert traffic.written[2][1] == START
    assert first in [setting for _, setting in traffic.written[3:]]
    assert live.found.choice.changed


def test_a_gain_that_goes_before_its_proof_is_not_kept() -> None:
    """The new values make nothing worse; they only stop helping."""
    found: list[Found] = []

    def until_proof(setting: Setting, second: float) -> Mapping[Kind, float]:
        gone = found and found[0].proven and found[0].incumbent == START
        return {Kind.READ: 50 * MIB if gone else by_readahead(setting)}

    traffic = SimulatedTraffic(until_proof)
    live = Live((AHEAD, BACKGROUND), START, traffic, traffic.set, 120)
    found.append(live.found)
    live.run()
    assert any("pairs do not prove a gain" in reason for reason in live.found.reasons)
    assert not live.found.choice.changed


def test_what_is_put_back_is_not_tried_again_if_programs_wait() -> None:
    def needs_both(setting: Setting, second: float) -> Mapping[Kind, float]:
        return {Kind.READ: 50 * MIB if setting["max_background"] > 12 else 10 * MIB}

    traffic = SimulatedTraffic(needs_both)
    live = Live((AHEAD, BACKGROUND), START, traffic, traffic.set, 120)
    live.found.incumbent = {"read_ahead_kb": 256, "max_background": 32}
    assert live._look()
    assert live._put_one_back()
    assert live.found.incumbent == {"read_ahead_kb": 128, "max_background": 32}
    assert [one["max_background"] for _, one in traffic.written].count(12) == 1


def test_a_lost_proof_ends_at_once() -> None:
    """Seven tenths of the speed, which noise hides in any single block."""

    def changing(setting: Setting, second: float) -> Mapping[Kind, float]:
        worse = 35 if setting["read_ahead_kb"] > 128 else 50
        return {Kind.READ: by_readahead(setting) if second < 300 else worse * MIB}

    traffic = SimulatedTraffic(changing, noise=0.5)
    live = searched(traffic, 400)
    assert any("in 4 pairs, and the next 4 confirm it" in reason for reason in live.found.reasons)
    since = [when for when, one in traffic.written if one["read_ahead_kb"] > 128]
    assert max(since) < 1000 + 300 + 60


def test_an_interruption_ends_it_and_says_what_was_proven() -> None:
    class Stop(Exception):
        pass

    traffic = SimulatedTraffic(reader)

    def check() -> None:
        if traffic.elapsed > 100:
            raise Stop

    live = Live((AHEAD, BACKGROUND), START, traffic, traffic.set, 600, check=check)
    with pytest.raises(Stop):
        live.run()
    assert live.found.proven["read_ahead_kb"] >= 512
    assert not live.found.choice.changed
    assert math.isclose(traffic.elapsed, 100, abs_tol=0.2)
