# SPDX-License-Identifier: GPL-2.0-or-later
"""The results of the checks of guest/ on each series' Debian kernel."""

from collections.abc import Callable

import pytest

from tests.kernel.guest.__main__ import checks
from tests.kernel.machine import Results
from tests.kernel.runs import MEMORY_CHECK, RUNS
from tests.kernel.suites import SUITES, Suite

#: This many checks are listed with their durations.
SLOWEST = 12


def _marks(run: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.long] if run.endswith(" repeating") else []


@pytest.mark.parametrize(
    ("run", "name"),
    [
        pytest.param(run, name, marks=_marks(run))
        for run, machine in RUNS.items()
        for name in machine.checks
    ],
)
def test_in_machine(run: str, name: str, results: Callable[[str], Results]) -> None:
    said = results(run)
    assert name in said.checks, f"not reached; the machine said: {said.console[-4000:]}"
    assert not said.checks[name]["failure"], said.checks[name]["failure"]


@pytest.mark.parametrize("run", [pytest.param(run, marks=_marks(run)) for run in RUNS])
def test_machine_ended_by_itself(
    run: str, results: Callable[[str], Results], figure: Callable[[str], None]
) -> None:
    said = results(run)
    assert said.complete, said.console[-4000:]
    assert said.checks.keys() == {*RUNS[run].checks, "end"}
    seconds = {name: entry["seconds"] for name, entry in said.checks.items()}
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:SLOWEST]
    figure(f"{sum(seconds.values()):.0f} s; " + ", ".join(f"{n} {seconds[n]}" for n in slowest))


@pytest.mark.parametrize("run", ["6.1 roomy"])
def test_with_many_possible_processors(
    run: str, results: Callable[[str], Results], figure: Callable[[str], None]
) -> None:
    value = results(run).checks[MEMORY_CHECK]["value"]
    assert value["possible"] == 128
    figure(str(value))


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.series)
def test_every_check_runs_on_each_kernel(suite: Suite) -> None:
    run = {name for machine in RUNS.values() if machine.suite == suite for name in machine.checks}
    assert run >= checks().keys()
