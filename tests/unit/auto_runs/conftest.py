# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for auto: a simulated bench, and files for knobs."""

from __future__ import annotations

import pytest

from fusetune.tuner import auto as auto_module
from tests.unit.auto_runs.simulated_bench import (
    SimulatedBench,
)


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch, knob_files: None) -> type[SimulatedBench]:
    """The test's own bench instead of fio."""

    class Bench(SimulatedBench):
        pass

    monkeypatch.setattr(auto_module, "bench_of", Bench)
    return Bench
