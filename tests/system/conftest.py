# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for tests with a real systemd and udevd."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.system.container import Container
from tests.system.watched import SERVICE, Answering, left, serving


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    """A container for each test module; a test that needs a new one makes it."""
    with Container() as booted:
        yield booted


@pytest.fixture
def stopped(container: Container) -> Iterator[Container]:
    """The container, with the service not running and able to start."""
    container.run("udevadm", "settle")  # every bdi starts it at boot
    container.run("systemctl", "stop", SERVICE)
    container.run("systemctl", "reset-failed")
    yield container
    container.run("systemctl", "stop", SERVICE)


@pytest.fixture
def quiet(stopped: Container) -> Iterator[Container]:
    """The container with the service not running and nothing kept or configured.

    Afterwards no record of unmounted mounts may remain, and the service must not have failed.
    """
    for directory in ("/var/lib/fusetune/saved", "/etc/fusetune"):
        stopped.run("rm", "-rf", directory)
    yield stopped
    if stopped.run("systemctl", "is-active", SERVICE, check=False).stdout.strip() == "active":
        with suppress(TimeoutError):
            stopped.wait(lambda: not left(stopped), "the end of what is remembered of mounts")
    assert left(stopped) == [], stopped.journal(SERVICE)[-40:]
    assert stopped.run("systemctl", "is-failed", SERVICE, check=False).stdout.strip() != "failed"


@pytest.fixture
def server(quiet: Container) -> Iterator[Answering]:
    """A server of many mounts in that container."""
    with serving(quiet) as server:
        yield server
