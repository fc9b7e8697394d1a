# SPDX-License-Identifier: GPL-2.0-or-later
"""What the checks of guest/ said on each series' own Debian kernel."""

from collections.abc import Callable

import pytest

from tests.kernel.guest.__main__ import checks
from tests.kernel.machine import Results
from tests.kernel.suites import SUITES, Suite


@pytest.mark.parametrize("name", checks())
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.series)
def test_in_machine(suite: Suite, name: str, results: Callable[[Suite], Results]) -> None:
    said = results(suite)
    assert name in said.checks, f"not reached; the machine said: {said.console[-4000:]}"
    assert not said.checks[name]["failure"], said.checks[name]["failure"]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.series)
def test_machine_ended_by_itself(suite: Suite, results: Callable[[Suite], Results]) -> None:
    said = results(suite)
    assert said.complete, said.console[-4000:]
