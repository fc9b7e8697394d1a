# SPDX-License-Identifier: GPL-2.0-or-later
"""What the checks of guest/ said on kernels that look for faults: ``make test-debug-kernel``."""

import re
from collections.abc import Callable

import pytest

from tests.kernel.debug import run_checks
from tests.kernel.guest.__main__ import checks
from tests.kernel.machine import Results
from tests.kernel.suites import DKMS, USERLAND

#: Checks that are not run where memory is looked after, and why.
LEFT_OUT: dict[str, str] = {}
MEMORY = (
    *(name for name in checks() if name not in LEFT_OUT),
    *("check_failed_allocations", "check_nothing_leaked"),
)
#: Checks with requests from several processors at once.
RACES = (
    *("check_carries_data", "check_garbage_for_the_control_files", "check_hostile_server"),
    *("check_statistics_agree_while_requests_end", "check_fio_verify"),
)
_RACE = re.compile(r"BUG: KCSAN: data-race in (.*)")


@pytest.fixture(scope="session")
def memory() -> Results:
    """What a kernel said with KASAN, lockdep, UBSAN, kmemleak and allocations that fail."""
    return run_checks(USERLAND, "memory", *MEMORY)


@pytest.fixture(scope="session")
def races() -> Results:
    """What a kernel said with KCSAN."""
    return run_checks(USERLAND, "races", *RACES, parameters="")


@pytest.mark.parametrize("name", MEMORY)
def test_where_memory_is_looked_after(name: str, memory: Results) -> None:
    assert name in memory.checks, f"not reached; the machine said: {memory.console[-4000:]}"
    assert not memory.checks[name]["failure"], memory.checks[name]["failure"]


def _our_functions() -> set[str]:
    """Return the names of the functions in our files of the module."""
    files = (DKMS / "fusetuned" / "tuned").glob("*.c")
    definition = re.compile(r"^[a-z][\w *]*?(\w+)\(", re.MULTILINE)
    return {name for file in files for name in definition.findall(file.read_text())}


def test_no_race_in_our_files(races: Results, figure: Callable[[str], None]) -> None:
    """The kernel's own are counted, not judged: it has many, and says so of itself."""
    assert races.complete, races.console[-4000:]
    assert races.checks.keys() == {*RACES, "end"}
    failures = [entry["failure"] for entry in races.checks.values()]
    assert not any(failures), "".join(failures)
    found = _RACE.findall(races.console)
    assert found, "the checker found nothing at all, so it did not run"
    figure(f"{len(found)} races in all")
    ours = _our_functions()
    assert not [line for line in found if ours & set(re.findall(r"\w+", line))]
