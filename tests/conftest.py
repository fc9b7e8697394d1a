# SPDX-License-Identifier: GPL-2.0-or-later
"""What all tests share."""

import os
from collections.abc import Callable, Generator
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

_FIGURES = pytest.StashKey[list[str]]()


@pytest.hookimpl(hookwrapper=True)  # type: ignore[misc]
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    """CI has everything that tests need, so a skipped test is an error."""
    outcome = yield
    report = outcome.get_result()
    if os.environ.get("CI") and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped on CI: {report.longrepr}"


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Show measured figures and counts at the end of the run."""
    figures = request.config.stash.setdefault(_FIGURES, [])
    return lambda text: figures.append(f"{request.node.name}: {text}")


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Print the figures."""
    if figures := config.stash.get(_FIGURES, []):
        terminalreporter.section("measured")
        for line in figures:
            terminalreporter.write_line(line)
