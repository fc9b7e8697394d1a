# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of the jobs that run for a fixed time, and of fio's latencies."""

from typing import Any

import pytest

from fusetune.bench.figures import (
    AFTERWARDS,
    bytes_in_all,
    files_in_all,
    latencies,
    operations_by_clock,
    operations_in_turn,
    share_in_time,
)
from fusetune.errors import FusetuneError

_MS = 1_000_000  # nanoseconds


def way(ios: int = 0, runtime: int = 0, bins: dict[str, int] | None = None) -> dict[str, Any]:
    latency = {"N": ios, "bins": bins} if bins else {"N": ios}
    return {
        "io_bytes": ios << 10,
        "total_ios": ios,
        "runtime": runtime,
        "clat_ns": latency,
        "lat_ns": latency,
    }


def job(read: object = None, write: object = None, **more: object) -> dict[str, Any]:
    return {"read": read or way(), "write": write or way(), "sync": way(), **more}


def test_operations_by_clock_is_the_geometric_mean_of_the_jobs() -> None:
    assert operations_by_clock([job(write=way(300, 1500))]) == pytest.approx(200)
    both = operations_by_clock([job(read=way(400, 500)), job(write=way(200, 1000))])
    assert both == pytest.approx(400)


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [(21, 0.0205), (1, 0.004)],  # no less than the operations take
)
def test_opening_and_closing_files_counts_as_well(milliseconds: int, seconds: float) -> None:
    def named(name: str, way_: str, microseconds: float, runtime: int) -> dict[str, Any]:
        found = way(100, runtime)
        found["clat_ns"]["mean"] = microseconds * 1000
        return job(**{way_: found, "jobname": name})

    jobs = [
        named("create", "write", 40, milliseconds),
        named("open", "read", 40, milliseconds),
        named("stat", "read", 10, 99),
        named("unlink", "read", 90, 99),
    ]
    assert operations_in_turn(jobs) == pytest.approx(400 / (2 * seconds + 0.01))


def test_files_in_all_counts_every_part_and_what_comes_afterwards() -> None:
    parts = [job(read=way(100, 250)), job(write=way(100, 500), **{AFTERWARDS: 0.25})]
    assert files_in_all(parts) == pytest.approx(100)


def test_bytes_in_all_counts_the_rename() -> None:
    assert bytes_in_all([job(write=way(1, 500), **{AFTERWARDS: 1.5})]) == pytest.approx(512)


@pytest.mark.parametrize(
    ("bins", "share"),
    [
        ({"1000": 60}, 1.0),
        ({str(20 * _MS): 60}, 1.0),  # just in time
        ({"1000": 59, str(21 * _MS): 1}, 58 / 60),  # the next one is late with it
        ({"1000": 90, str(100 * _MS): 10}, 0.5),  # five for each
        ({str(500 * _MS): 4}, 0.125),  # none: half a one of four
    ],
)
def test_the_share_in_time(bins: dict[str, int], share: float) -> None:
    assert share_in_time([job(read=way(sum(bins.values()), 1000, bins))]) == pytest.approx(share)


def test_latencies_of_a_way() -> None:
    assert latencies(job(write=way(3, 1, {"500": 2, "70": 1})), "write") == {500.0: 2.0, 70.0: 1.0}
    assert latencies(job(), "sync") == {}


@pytest.mark.parametrize(
    "figure",
    [operations_by_clock, operations_in_turn, files_in_all, bytes_in_all, share_in_time],
    ids=lambda figure: figure.__name__,
)
@pytest.mark.parametrize(
    "jobs",
    [
        [],
        [job(**{AFTERWARDS: 0.0})],
        [{}],
        [job(read=way(1, 0, {"x": 1}), **{AFTERWARDS: -1})],
        [job(read={"clat_ns": {"bins": 5}})],
        [job(read=way(1, 0, {"nan": 1}), **{AFTERWARDS: None})],
    ],
    ids=["none", "idle", "empty", "no-number", "no-object", "nan"],
)
def test_no_figure_without_sense(figure: Any, jobs: list[Any]) -> None:
    with pytest.raises(FusetuneError, match=r"^fio "):
        figure(jobs)


@pytest.mark.parametrize("forged", [1e308, 10**19 * 10, -1, "9" * 400])
def test_numbers_that_fio_cannot_count_are_refused(forged: object) -> None:
    """Their sum might be infinite."""
    read: dict[str, Any] = {**way(100, 500), "total_ios": forged}
    with pytest.raises(FusetuneError, match=r"no number for read\.total_ios"):
        operations_by_clock([job(read=read)])
    with pytest.raises(FusetuneError, match="fio reports no latencies of read"):
        latencies(job(read=way(bins={"1000": forged})), "read")  # type: ignore[dict-item]
