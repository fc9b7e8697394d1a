# SPDX-License-Identifier: GPL-2.0-or-later
"""A run's measurements as curves: the search's estimates, whatever the host's drift."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import pytest

from fusetune.bench.intervals import Interval, ratio_interval
from fusetune.desired.curve import BeforeAfter
from fusetune.desired.results import Conditions, Run
from fusetune.report.documents.base import joined
from fusetune.report.documents.measured import measured, measured_knobs
from fusetune.tuner.curves import before_and_after, curves
from fusetune.tuner.search import Search
from fusetune.tuner.space import SEARCHED, Dimension
from tests.unit.sample_run import RUN

START = {"read_ahead_kb": 128, "max_ratio": 1, "strict_limit": 1}
UNITS = {"mixed": "bytes_per_second", "seq-read": "bytes_per_second"}


def worth(setting: Mapping[str, int]) -> float:
    """Readahead up to 2 MiB gains half; nothing else matters."""
    return 1 + 0.5 * math.log2(min(setting["read_ahead_kb"], 2048) / 128 + 1) / math.log2(17)


def searched(seed: int) -> Search:
    """Search with 45 evaluations and 2 % noise, on a host that drifts."""
    dimensions = [
        Dimension(
            name,
            tuple(value for value in SEARCHED[name].candidates if value or name == "strict_limit"),
            start,
            SEARCHED[name].ordered,
            SEARCHED[name].interacts,
        )
        for name, start in START.items()
    ]
    made, draw, drift = Search(dimensions, START, list(UNITS), seed), random.Random(seed), 1e6
    for left in range(45, 0, -1):
        setting = made.ask(left)
        if setting is None:
            break
        drift *= math.exp(draw.gauss(0, 0.03))
        made.tell({name: drift * worth(setting) * math.exp(draw.gauss(0, 0.02)) for name in UNITS})
    return made


def as_run(search: Search) -> Run:
    conditions = Conditions("/usr/bin/x", None, "6.12", 0, UNITS)
    return Run(conditions, search.blocks, START, search.choice().setting, {})


@pytest.fixture(scope="module")
def search() -> Search:
    return searched(1)


@pytest.fixture(scope="module")
def run(search: Search) -> Run:
    return as_run(search)


def test_curves_are_what_the_search_found(search: Search, run: Run) -> None:
    assert search.choice().changed
    for curve in curves(run):
        reason = next(one for one in search.choice().reasons if one.startswith(curve.knob))
        if curve.chosen == curve.start:
            continue
        said = re.search(r"-> (\d+), (\S+) \[(\S+), (\S+)\]", reason)
        assert said
        point = next(one for one in curve.points if one.value == int(said[1]))
        found = (point.ratio.ratio, point.ratio.low, point.ratio.high)
        assert found == pytest.approx([float(number) for number in said.groups()[1:]], abs=0.03)


def test_curves_are_of_what_was_measured(run: Run) -> None:
    by_knob = {curve.knob: curve for curve in curves(run)}
    assert list(by_knob) == list(START)
    ahead = by_knob["read_ahead_kb"]
    assert (ahead.start, ahead.chosen) == (128, run.chosen["read_ahead_kb"])
    assert [one.value for one in ahead.points] == sorted({one.value for one in ahead.points})
    assert [one.ratio for one in ahead.points if one.value == 128] == [Interval(1.0, 1.0, 1.0)]
    trials = sum(len(block) for block in run.blocks)
    assert {sum(one.samples for one in curve.points) for curve in by_knob.values()} == {trials}
    assert [curve.ordered for curve in by_knob.values()] == [True, True, False]


@pytest.mark.slow
def test_intervals_of_curves_are_true() -> None:
    """To within 3 %, of 95 in 100 points."""
    hits = []
    for seed in range(30):
        for curve in curves(as_run(searched(seed))):
            if curve.knob == "read_ahead_kb":
                for point in curve.points:
                    true = worth({"read_ahead_kb": point.value}) / worth(START)
                    hits.append(point.ratio.low * 0.97 < true < point.ratio.high * 1.03)
    assert fmean(hits) >= 0.95


def test_blocks_of_other_days_are_not_compared() -> None:
    """With another host speed in each block, the curves are the same."""
    drifted = [
        [(setting, {"mixed": figures["mixed"] * 3.0**number}) for setting, figures in block]
        for number, block in enumerate(RUN.blocks)
    ]
    for curve, again in zip(curves(RUN), curves(replace(RUN, blocks=drifted)), strict=True):
        for point, other in zip(curve.points, again.points, strict=True):
            assert other.ratio.ratio == pytest.approx(point.ratio.ratio, rel=0.02)


def test_the_weights_of_workloads_count() -> None:
    """One workload gains from max_ratio, the other loses as much."""
    blocks = [
        [({"max_ratio": v}, {"mixed": f * v, "metadata": f / v}) for v in (1, 2)]
        for f in (1.0, 2.0, 3.0)
    ]
    units = {"mixed": "bytes_per_second", "metadata": "operations_per_second"}
    run = Run(replace(RUN.conditions, units=units), blocks, {"max_ratio": 1}, {"max_ratio": 2})
    for weights, expected in (({}, 1.0), ({"mixed": 3.0, "metadata": 1.0}, 2**0.5)):
        (curve,) = curves(replace(run, weights=weights))
        assert curve.points[1].ratio.ratio == pytest.approx(expected, rel=0.05)


def test_the_other_knobs_are_as_chosen() -> None:
    """max_ratio doubles the speed without the strict limit, and does nothing with it."""
    settings = [
        {"max_ratio": ratio, "strict_limit": strict} for ratio in (1, 20) for strict in (0, 1)
    ]
    speeds = [2.0 if one == {"max_ratio": 20, "strict_limit": 0} else 1.0 for one in settings]
    block = [(one, {"mixed": speed}) for one, speed in zip(settings, speeds, strict=True)]
    start = {"max_ratio": 1, "strict_limit": 1}
    for chosen, expected in ((settings[2], 2.0), (settings[3], 1.0)):
        run = Run(RUN.conditions, [block] * 4, start, chosen)
        ratio = curves(run)[0].points[1].ratio
        assert ratio.ratio == pytest.approx(expected, rel=0.1)


def test_what_is_not_on_record_is_not_made_up() -> None:
    assert curves(replace(RUN, start={}, chosen={})) == []
    assert curves(replace(RUN, blocks=[])) == []
    assert curves(replace(RUN, blocks=[block[:1] for block in RUN.blocks])) == []
    assert curves(replace(RUN, start={"max_ratio": 1}, chosen={"max_ratio": 5})) == []
    assert before_and_after(replace(RUN, start={}, chosen={})) == []
    assert before_and_after(replace(RUN, blocks=RUN.blocks[:2])) == []
    assert before_and_after(replace(RUN, chosen=RUN.start)) == []
    only = [[pair for pair in block if pair[0]["strict_limit"] == 1] for block in RUN.blocks]
    assert [curve.knob for curve in curves(replace(RUN, blocks=only))] == ["max_ratio"]


def test_what_is_saved_is_not_modelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = replace(RUN, curves=curves(RUN))
    expected = measured_knobs(RUN)
    monkeypatch.setattr("fusetune.tuner.curves.curves", None)
    assert measured_knobs(saved) == expected


def test_before_and_after_are_of_the_blocks_that_prove() -> None:
    (found,) = before_and_after(RUN)
    # Not of the first block, which explores.
    pairs = [(1.01 * 1.5e6, 1.52 * 1.5e6), (0.99 * 1.1e6, 1.49 * 1.1e6)]
    assert found.workload == "mixed"
    assert found.before == pytest.approx(math.sqrt(pairs[0][0] * pairs[1][0]))
    assert found.after == pytest.approx(math.sqrt(pairs[0][1] * pairs[1][1]))
    differences = [math.log(after / before) for before, after in pairs]
    expected = ratio_interval(differences, 0.05, math.inf)
    assert found.ratio.ratio == pytest.approx(expected.ratio)
    assert found.ratio.high == pytest.approx(expected.high)


def test_a_proof_on_record_is_not_made_from_blocks() -> None:
    """Small blocks of the exploration, or of an earlier run, look like confirming ones."""
    proof = [BeforeAfter("mixed", 100.0, 250.0, Interval(2.5, 2.0, 3.0))]
    (shown,) = measured(replace(RUN, proof=proof)).workloads
    assert (shown.before, shown.after, shown.ratio) == (100.0, 250.0, 2.5)
    (shown,) = measured(replace(RUN, proof=[])).workloads
    assert shown.ratio is None


def test_a_curve_in_characters_is_as_long_as_its_ratios() -> None:
    knob = next(one for one in measured_knobs(RUN) if one.name == "max_ratio")
    heading, *rows = joined(knob.parts()).splitlines()
    assert "max_ratio  speed / speed with 1 percent" in heading
    bars = {int(row.split()[0]): row.count("#") for row in rows}
    ratios = {point.value: point.ratio for point in knob.points}
    assert bars == {value: round(32 * ratio / ratios[5]) for value, ratio in ratios.items()}
    assert [row.split()[0] for row in rows if row.endswith("# chosen")] == ["5"]
