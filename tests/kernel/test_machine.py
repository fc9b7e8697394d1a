# SPDX-License-Identifier: GPL-2.0-or-later
"""What the checks of guest/ said on each series' own Debian kernel."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.guest.__main__ import checks
from tests.kernel.machine import Results, run
from tests.kernel.suites import SUITES, USERLAND, Suite

#: Patterns in free and around used memory, each use of it noted; and now and then its page guarded.
_WATCHED = "slub_debug=FZPU kfence.sample_interval=20"
#: Some that take long there, and bring the module's memory no more than others.
_LONG = {
    "check_rounds",
    "check_pages_a_request_by_parameter",
    "check_max_pages_in_a_user_namespace",
    "check_statistics_go_with_their_connection",
}


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


def test_with_memory_watched(built: Callable[[Suite], tuple[Path, str]]) -> None:
    """Once more where the kernel looks after its memory, on one series."""
    short = [name for name in checks() if name not in _LONG and "f2fs" not in name]
    names = (*short, "check_slabs_are_watched_and_sound")
    said = run(USERLAND, built(USERLAND)[0], *names, parameters=_WATCHED)
    assert said.complete, said.console[-4000:]
    assert said.checks.keys() == {*names, "end"}
    failures = [entry["failure"] for entry in said.checks.values()]
    assert not any(failures), "".join(failures)
