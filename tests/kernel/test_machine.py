# SPDX-License-Identifier: GPL-2.0-or-later
"""What the checks of guest/ said on each series' own Debian kernel."""

from collections.abc import Callable

import pytest

from tests.kernel.guest.__main__ import checks
from tests.kernel.machine import MEMORY_CHECK, WATCHED_CHECKS, Results
from tests.kernel.suites import SUITES

_SERIES = pytest.mark.parametrize("series", [suite.series for suite in SUITES])


@pytest.mark.parametrize("name", checks())
@_SERIES
def test_in_machine(series: str, name: str, results: Callable[[str], Results]) -> None:
    said = results(series)
    assert name in said.checks, f"not reached; the machine said: {said.console[-4000:]}"
    assert not said.checks[name]["failure"], said.checks[name]["failure"]


@_SERIES
def test_machine_ended_by_itself(series: str, results: Callable[[str], Results]) -> None:
    said = results(series)
    assert said.complete, said.console[-4000:]


def test_with_memory_watched(results: Callable[[str], Results]) -> None:
    """Once more where the kernel looks after its memory, on one series."""
    said = results("watched")
    assert said.complete, said.console[-4000:]
    assert said.checks.keys() == {*WATCHED_CHECKS, "end"}
    failures = [entry["failure"] for entry in said.checks.values()]
    assert not any(failures), "".join(failures)


def test_with_many_possible_processors(
    results: Callable[[str], Results], figure: Callable[[str], None]
) -> None:
    """A mount takes no memory for statistics on processors that are not there."""
    said = results("roomy")
    assert said.complete, said.console[-4000:]
    check = said.checks[MEMORY_CHECK]
    assert not check["failure"], check["failure"]
    assert check["value"]["possible"] == 128
    figure(str(check["value"]))
