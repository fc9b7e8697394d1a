# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for the tests of the module fusetuned; what is slow is made once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.kernel import machine
from tests.kernel.suites import SUITES, Suite, import_module


@pytest.fixture(scope="session")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module's source as import.py makes it, for all series."""
    output = tmp_path_factory.mktemp("import") / "fusetuned"
    done = import_module(output, *(suite.source() for suite in SUITES))
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="session")
def results(
    module: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Suite], machine.Results]:
    """Return what a suite's machine said: built and booted at the first call."""

    @cache
    def of(suite: Suite) -> machine.Results:
        built = tmp_path_factory.mktemp("built") / suite.name
        machine.build(suite, module, built)
        return machine.run(suite, built)

    return of
