# SPDX-License-Identifier: GPL-2.0-or-later
"""Every workload has its job file, and figures are computed from fio's output.

The JSON is fio's (fio(1), --output-format=json).
"""

import json
import math
import re
from configparser import ConfigParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.bench import workloads
from fusetune.bench.figures import bytes_per_second, operations_per_second
from fusetune.bench.fio import jobs_of
from fusetune.bench.workloads import DEFAULT, WORKLOADS, Access, Workload, chosen
from fusetune.errors import FusetuneError, UsageError
from fusetune.mounts.mount import Mount

each = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)

IDLE = {
    "io_bytes": 0,
    "bw_bytes": 0,
    "bw": 0,
    "iops": 0.0,
    "runtime": 0,
    "total_ios": 0,
    "clat_ns": {"min": 0, "max": 0, "mean": 0.0, "N": 0},
}
# Written by fio 3.33 for mixed.fio and metadata.fio, cut down to the fields of interest.
READER = {
    "io_bytes": 655360,
    "bw_bytes": 218453333,
    "bw": 213333,
    "iops": 1666.666667,
    "runtime": 3,
    "total_ios": 5,
    "clat_ns": {"min": 23684, "max": 1626789, "mean": 492737.4, "N": 5},
}
WRITER = {
    "io_bytes": 1048576,
    "bw_bytes": 349525333,
    "bw": 341333,
    "iops": 2666.666667,
    "runtime": 3,
    "total_ios": 8,
    "clat_ns": {"min": 24471, "max": 47630, "mean": 29148.25, "N": 8},
}
CREATE = READER | {"clat_ns": {"min": 1425, "max": 5366, "mean": 2338.8, "N": 5}}
UNLINK = READER | {"clat_ns": {"min": 61947, "max": 307567, "mean": 161942.2, "N": 5}}


def job(name: str = "job", read: object = IDLE, write: object = IDLE) -> dict[str, Any]:
    return {"jobname": name, "error": 0, "read": read, "write": write}


def parsed(workload: Workload) -> ConfigParser:
    parser = ConfigParser(allow_no_value=True, interpolation=None, delimiters=("=",))
    parser.read_string(workload.job)
    return parser


@each
def test_a_workload_says_what_it_measures(workload: Workload) -> None:
    assert WORKLOADS[workload.name] is workload
    assert re.fullmatch("[a-z][a-z-]*", workload.name)
    assert workload.measures == " ".join(workload.measures.split()) != ""
    assert workload.accesses
    assert workload.unit in ("bytes_per_second", "operations_per_second", "share")


@each
def test_a_job_file_uses_what_is_documented(workload: Workload) -> None:
    documented = set(re.findall(r"FUSETUNE_\w+", workloads.__doc__ or ""))
    used = set(re.findall(r"\$\{(\w+)\}", workload.job))
    assert used
    assert used <= documented
    names = set(re.findall(r"^filename=(.*)$", workload.job, re.MULTILINE))
    assert names <= {"read-data", "write-data"}


@each
def test_a_job_file_uses_what_its_entry_says(workload: Workload) -> None:
    used = set(re.findall(r"\$\{(\w+)\}", workload.job))
    assert workload.reads == bool({"FUSETUNE_READ_SIZE", "FUSETUNE_STREAM_SIZE"} & used)
    assert bool(workload.streams) == ("FUSETUNE_STREAM_SIZE" in used)
    assert workload.writes == ("FUSETUNE_WRITE_SIZE" in used)
    assert workload.makes_files == ("FUSETUNE_FILES" in used)
    assert workload.opens == ("FUSETUNE_LOOPS" in used)


@each
def test_a_job_file_ends_by_itself_and_forks_nothing(workload: Workload) -> None:
    jobs = parsed(workload)
    assert jobs.sections()[0] == "global"
    assert len(jobs.sections()) > 1
    assert "thread" in jobs["global"]
    assert jobs["global"]["fallocate"] == "none"
    for section in jobs.sections():
        # Every job is limited by a size or a number of files, not by time.
        assert "time_based" not in jobs[section]
    assert "runtime" in jobs["global"] or "nrfiles" in jobs["global"]


@each
def test_writes_are_not_counted_before_the_server_has_them(workload: Workload) -> None:
    jobs = parsed(workload)
    for name in jobs.sections()[1:]:
        whole = dict(jobs["global"]) | dict(jobs[name])
        if "write" in (whole.get("rw") or ""):
            # FUSE writes at close(2), and with create_on_open files are closed one by one.
            ways = ("end_fsync", "fsync", "fdatasync", "direct", "create_on_open")
            assert any(whole.get(way) == "1" for way in ways)


@each
def test_direct_jobs_are_those_that_say_so(workload: Workload) -> None:
    direct = {Access.DIRECT_READ, Access.DIRECT_WRITE}
    assert ("direct=1" in workload.job) == bool(direct & workload.accesses)


@each
def test_a_job_that_ends_all_others_begins_last(workload: Workload) -> None:
    """Otherwise it may be done before they have begun. They must not end before it either."""
    jobs = parsed(workload)
    assert workload.ends_all == ("exitall" in workload.job.split())
    if workload.ends_all:
        *others, last = jobs.sections()[1:]
        assert "exitall" in jobs[last]
        assert others
        assert all(jobs[one]["loops"] == "1000" for one in others)


def test_a_job_that_had_not_begun_is_no_failure(mounted: Mount) -> None:
    """fio's status is 128 then."""
    jobs = [job("reader"), job("writer", write=WRITER)]
    output = json.dumps({"jobs": jobs}).encode()
    assert jobs_of(mounted, "fio", 128, output, b"") == jobs
    begun = json.dumps({"jobs": jobs[1:]}).encode()
    for status, said in ((128, begun), (1, output)):
        with pytest.raises(FusetuneError, match=f"status {status}, although its jobs report no"):
            jobs_of(mounted, "fio", status, said, b"")


def test_every_job_file_has_an_entry() -> None:
    (directory,) = workloads.__path__
    from pathlib import Path

    assert {file.stem for file in Path(directory).glob("*.fio")} == set(WORKLOADS)


def test_chosen() -> None:
    assert [w.name for w in chosen([])] == [DEFAULT]
    assert [w.name for w in chosen(["metadata", "mixed", "metadata"])] == ["metadata", "mixed"]
    with pytest.raises(UsageError, match="unknown workload 'nonsense'; known are mixed, "):
        chosen(["mixed", "nonsense"])


def test_bytes_per_second_is_the_geometric_mean_of_the_jobs() -> None:
    figure = bytes_per_second([job(read=READER), job(write=WRITER)])
    assert figure == pytest.approx(math.sqrt(218453333 * 349525333))
    both = bytes_per_second([job(read=READER, write=WRITER)])
    assert both == pytest.approx(218453333 + 349525333)


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=8))
def test_bytes_per_second_lies_between_slowest_and_fastest(rates: list[int]) -> None:
    figure = bytes_per_second([job(read=IDLE | {"bw_bytes": rate}) for rate in rates])
    assert min(rates) * 0.999 <= figure <= max(rates) * 1.001


def test_operations_per_second_weighs_jobs_by_their_time() -> None:
    figure = operations_per_second([job(read=CREATE), job(read=UNLINK)])
    assert figure == pytest.approx(10 / (5 * 2338.8e-9 + 5 * 161942.2e-9))


@pytest.mark.parametrize("figure", [bytes_per_second, operations_per_second])
@pytest.mark.parametrize(
    "jobs",
    [
        [],
        [job()],
        [{}],
        [job(read={}, write={})],
        [job(read=None, write=None)],
        [job(read=READER | {"bw_bytes": None, "clat_ns": None})],
        [job(read=READER | {"bw_bytes": "x", "clat_ns": {"mean": "x", "N": 1}})],
        [job(read=READER | {"bw_bytes": -1, "clat_ns": {"mean": -1.0, "N": 1}})],
        [job(read=READER | {"bw_bytes": math.nan, "clat_ns": {"mean": math.nan, "N": 1}})],
        [job(read=READER | {"bw_bytes": math.inf, "clat_ns": {"mean": math.inf, "N": 1}})],
        ["a job"],
    ],
    ids=[
        *("none", "idle", "empty", "no-field", "null", "null-field", "word"),
        *("below-0", "nan", "inf", "no-object"),
    ],
)
def test_no_figure_without_sense(figure: Any, jobs: list[Any]) -> None:
    """fio's JSON has changed between versions; a missing field is an error, not a traceback."""
    with pytest.raises(FusetuneError, match=r"^fio "):
        figure(jobs)
