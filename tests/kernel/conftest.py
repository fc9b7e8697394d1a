# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for the tests of our modules; what is slow is made once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.kernel import machine
from tests.kernel.suites import MODULES, SUITES, Suite, import_module


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source of each of our modules as import.py makes it, for all series."""
    folder = tmp_path_factory.mktemp("import")
    sources = [suite.source() for suite in SUITES]
    for name in MODULES:
        done = import_module(name, folder / name, *sources)
        assert done.returncode == 0, done.stderr
    return {name: folder / name for name in MODULES}


@pytest.fixture(scope="session")
def built(
    modules: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Suite], tuple[Path, str]]:
    """Return what a suite made of the modules, and what it said: at the first call."""

    @cache
    def of(suite: Suite) -> tuple[Path, str]:
        out = tmp_path_factory.mktemp("built") / suite.name
        return out, machine.build(suite, tuple(modules.values()), out)

    return of


@pytest.fixture(scope="session")
def results(built: Callable[[Suite], tuple[Path, str]]) -> Callable[[Suite], machine.Results]:
    """Return what a suite's machine said: booted at the first call."""

    @cache
    def of(suite: Suite) -> machine.Results:
        return machine.run(suite, built(suite)[0])

    return of
