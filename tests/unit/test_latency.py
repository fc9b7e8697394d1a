# SPDX-License-Identifier: GPL-2.0-or-later
"""p50 and p99 of a workload's operations, and a search that minimises the p99."""

from collections import Counter
from typing import Any

import pytest

from fusetune.bench.figures import P99_UNIT
from fusetune.bench.latency import Latencies, Latency, Target, aimed_at, bins_of
from fusetune.bench.runner import Bench
from fusetune.bench.workloads import WORKLOADS, chosen
from fusetune.errors import FusetuneError
from fusetune.report.text import figure_text, latency_text


def job(**bins: dict[str, int]) -> dict[str, Any]:
    return {
        way: {"lat_ns" if way == "sync" else "clat_ns": {"bins": bins.get(way, {})}}
        for way in ("read", "write", "sync")
    }


@pytest.mark.parametrize(
    ("bins", "p50", "p99"),
    [
        ({1e6: 1}, 0.001, 0.001),
        ({1e6: 99, 1e9: 1}, 0.001, 0.001),
        ({1e6: 98, 1e9: 2}, 0.001, 1.0),
        ({3e6: 50, 1e6: 49, 2e6: 1}, 0.002, 0.003),
    ],
)
def test_percentiles_of_bins(bins: dict[float, int], p50: float, p99: float) -> None:
    assert Latency.of(Counter(bins)) == Latency(p50, p99)


def test_nothing_counted_has_no_latency() -> None:
    assert Latency.of(Counter()) is None


def test_only_what_a_workload_waits_for_is_counted() -> None:
    jobs = [job(read={"10": 1}, write={"20": 2}, sync={"30": 3}), job(read={"10": 4})]
    assert bins_of(WORKLOADS["mixed"], jobs) == {10: 5, 20: 2}
    assert bins_of(WORKLOADS["log-append"], jobs) == {30: 3}
    assert bins_of(WORKLOADS["database"], jobs) == {10: 5, 20: 2, 30: 3}


def test_latencies_are_gathered_by_setting() -> None:
    gathered = Latencies()
    for nanoseconds in (1e6, 1e6, 5e6):
        gathered.add({"a": 1, "b": 2}, {"mixed": Counter({nanoseconds: 1})})
    gathered.add({"a": 1, "b": 3}, {"mixed": Counter({9e6: 1}), "metadata": Counter()})
    assert gathered.of({"b": 2, "a": 1}) == {"mixed": Latency(0.001, 0.005)}
    assert gathered.of({"a": 1, "b": 3}) == {"mixed": Latency(0.009, 0.009)}
    assert gathered.of({"a": 7}) == {}


def test_a_search_for_the_p99_finds_a_shorter_one_better() -> None:
    (one, other) = aimed_at(Target.P99, chosen(["mixed", "log-append"]))
    assert (one.name, one.unit) == ("mixed", P99_UNIT)
    slow, fast = job(read={str(4e6): 1}), job(read={str(2e6): 1})
    assert (one.figure([slow]), one.figure([fast])) == pytest.approx((250, 500))
    assert other.figure([job(write={str(1e6): 9}, sync={str(5e6): 9})]) == pytest.approx(200)
    with pytest.raises(FusetuneError, match="fio reports no latency"):
        other.figure([slow])


def test_the_number_of_small_files_follows_from_their_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A p99 of reads and writes does not tell how long it takes to create, open and close one."""
    bench = object.__new__(Bench)
    bench.sample_seconds = 2.0
    made = job(read={"1000.0": 50}, write={"1000.0": 50})
    for way in ("read", "write"):
        made[way] |= {"total_ios": 50, "runtime": 2000}
    jobs = [made, made, {**made, "afterwards_seconds": 1.0}]
    monkeypatch.setattr(Bench, "_run_workload", lambda self, workload: jobs)
    (plain,) = chosen(["tree-copy"])
    (aimed,) = aimed_at(Target.P99, [plain])
    assert bench._affordable_files(aimed) == bench._affordable_files(plain)


def test_without_that_the_figures_are_the_workloads_own() -> None:
    workloads = chosen(["home"])
    assert aimed_at(Target.THROUGHPUT, workloads) == workloads
    assert [w.weight for w in aimed_at(Target.P99, workloads)] == [w.weight for w in workloads]


def test_times_as_people_read_them() -> None:
    assert latency_text(0.00015, 0.0123) == "p50 150 us, p99 12.3 ms"
    assert figure_text(0.5, P99_UNIT) == "p99 2 s"
