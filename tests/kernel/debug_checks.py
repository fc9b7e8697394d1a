# SPDX-License-Identifier: GPL-2.0-or-later
"""What the checks of guest/ said on a kernel that looks for faults: ``make test-debug-kernel``."""

import pytest

from tests.kernel.debug import run_checks
from tests.kernel.guest.__main__ import checks
from tests.kernel.machine import Results
from tests.kernel.suites import USERLAND

#: Those of f2fs are left out: but for a few lines, that module is the kernel's own.
CHECKS = (
    *(name for name in checks() if "f2fs" not in name),
    *("check_failed_allocations", "check_nothing_leaked"),
)


@pytest.fixture(scope="session")
def said() -> Results:
    """What a machine said with KASAN, lockdep, UBSAN, kmemleak and allocations that fail."""
    return run_checks(USERLAND, *CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_in_debug_kernel(name: str, said: Results) -> None:
    assert name in said.checks, f"not reached; the machine said: {said.console[-4000:]}"
    assert not said.checks[name]["failure"], said.checks[name]["failure"]
