# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows of the advice benchmark."""

from fusetune.bench.workloads import WORKLOADS
from tests.bench.advice import Sample, job_of, row
from tests.bench.advised_mounts import KINDS


def _samples(figures: list[float], server: float) -> list[Sample]:
    return [Sample(figure, 0.5, server, 0.25) for figure in figures]


def test_a_row_has_ratios_and_what_a_gib_costs() -> None:
    found = {
        "as mounted": _samples([100, 110, 90], 2.0),
        "all": _samples([200, 220, 180], 1.0),
    }
    assert row("bindfs", "seq-write", found) == [
        *("bindfs", "seq-write", "", "2.00 [2.00, 2.00]", "", ""),
        *("4.00, 2.00", "0.50, 0.50"),
    ]


def test_a_row_without_changes_is_empty() -> None:
    found = {"as mounted": _samples([100, 110, 90], 2.0)}
    assert row("bindfs", "metadata", found) == ["bindfs", "metadata", *[""] * 6]
    assert row("bindfs", "seq-read", found)[6:] == ["4.00", "0.50"]


def test_a_read_only_server_gets_the_parts_that_read() -> None:
    metadata = WORKLOADS["metadata"]
    parts = {line for line in job_of(metadata, KINDS["squashfuse"]).splitlines() if "[" in line}
    assert parts == {"[global]", "[open]", "[stat]"}
    assert job_of(metadata, KINDS["bindfs"]) == metadata.job
