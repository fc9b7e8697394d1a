# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for tests with a real systemd and udevd."""

from collections.abc import Iterator

import pytest

from tests.system.container import Container


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    """A container of the module's own; a test that needs a fresh one makes it."""
    with Container() as booted:
        yield booted
