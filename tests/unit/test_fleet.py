# SPDX-License-Identifier: GPL-2.0-or-later
"""A small version of the simulated fleet of ``make bench`` shows the same about sharing."""

from pathlib import Path

import pytest

from tests.bench.fleet import week


@pytest.mark.slow
def test_shared_values_are_there_at_once_and_wrong_ones_do_not_stay(tmp_path: Path) -> None:
    came = week(tmp_path, nodes=4)
    counts = came.counts
    assert counts["first"] == 200
    assert counts["first tuned"] > 0.85 * counts["first to be tuned"]
    assert counts["first wrong"] > 0
    assert counts["later wrong"] == 0
    assert came.exposed == 1
    assert 0 < came.most_bytes < 1 << 20
