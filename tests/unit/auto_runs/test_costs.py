# SPDX-License-Identifier: GPL-2.0-or-later
"""What auto's choice may cost, on a tree of files, with a simulated bench."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from fusetune.tuner.costs import UNLIMITED, Limits
from tests.unit.auto_runs.simulated_bench import (
    SimulatedBench,
    run,
)
from tests.unit.conftest import STOCK, Tree


def best_at_forty(values: Mapping[str, int]) -> float:
    return 100.0 * (values["max_ratio"] if values["max_ratio"] <= 40 else 30)


def above_ten(values: Mapping[str, int]) -> float:
    return 4.0 if values["max_ratio"] > 10 else 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "chosen", "why"),
    [
        (UNLIMITED, 40, None),
        (Limits(cpu_ratio=5.0), 40, None),
        (Limits(cpu_ratio=3.0), 10, "times the CPU time, above --max-cpu-ratio 3"),
        (Limits(memory_bytes=4 << 20), 40, None),
        (
            Limits(memory_bytes=3 << 20),
            10,
            "the server needs 4.0 MiB of memory, above --max-memory",
        ),
    ],
)
def test_a_choice_keeps_the_limits_on_what_it_costs(
    tree: Tree,
    mounted: Mount,
    bench: type[SimulatedBench],
    limits: Limits,
    chosen: int,
    why: str | None,
) -> None:
    bench.worth = staticmethod(best_at_forty)
    bench.cpu = staticmethod(above_ten)
    bench.memory = staticmethod(lambda values: above_ten(values) * (1 << 20))
    outcome = run(tree, mounted, limits=limits)
    assert outcome.after["max_ratio"] == tree.values()["max_ratio"] == chosen
    told = [reason for reason in outcome.reasons if "refused" in reason]
    assert len(told) == bool(why)
    for reason in told:
        assert reason.startswith("max_ratio=")
        assert str(why) in reason


@pytest.mark.parametrize(
    ("limits", "option"),
    [(Limits(cpu_ratio=2), "--max-cpu-ratio"), (Limits(memory_bytes=1), "--max-memory")],
)
def test_a_limit_on_what_cannot_be_measured_is_an_error(
    tree: Tree, mounted: Mount, bench: type[SimulatedBench], limits: Limits, option: str
) -> None:
    bench.known = False
    with pytest.raises(FusetuneError, match=f"{option} cannot be enforced"):
        run(tree, mounted, limits=limits)
    assert run(tree, mounted).evaluations > 10  # without a limit it does not matter
    assert tree.values() == STOCK
