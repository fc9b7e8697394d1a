# SPDX-License-Identifier: GPL-2.0-or-later
"""Parametrize tests by Debian suite."""

from collections.abc import Collection, Iterable
from typing import Protocol

import pytest


class Suite(Protocol):
    """A Debian suite, and the series of the kernel or library that it is used for."""

    @property
    def name(self) -> str: ...

    @property
    def series(self) -> str: ...


def by_suite(
    suites: Iterable[Suite], seldom: Collection[str] = (), shown: str = "series"
) -> pytest.MarkDecorator:
    """Parametrize by suite; only ``make test-long`` has those whose names are in ``seldom``.

    ``shown``: what a test's ID has of the suite, "series" or "name".
    """
    params = [
        pytest.param(
            suite,
            marks=[pytest.mark.long] if suite.name in seldom else [],
            id=getattr(suite, shown),
        )
        for suite in suites
    ]
    return pytest.mark.parametrize("suite", params)
