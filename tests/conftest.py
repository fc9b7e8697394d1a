# SPDX-License-Identifier: GPL-2.0-or-later
"""What all tests share."""

import os
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(hookwrapper=True)  # type: ignore[misc]
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    """On CI everything that tests need is there: a skipped test hides something."""
    outcome = yield
    report = outcome.get_result()
    if os.environ.get("CI") and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped on CI: {report.longrepr}"
