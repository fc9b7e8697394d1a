# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for tests with a real systemd and udevd."""

from collections.abc import Callable, Iterator

import pytest
from _pytest.terminal import TerminalReporter

from tests.system.container import Container
from tests.system.watched import SERVICE, Answering, left, serving

_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    """A container of the module's own; a test that needs a fresh one makes it."""
    with Container() as booted:
        yield booted


@pytest.fixture
def stopped(container: Container) -> Iterator[Container]:
    """The container, with the service not running and able to start."""
    container.run("udevadm", "settle")  # at boot every bdi starts it
    container.run("systemctl", "stop", SERVICE)
    container.run("systemctl", "reset-failed")
    yield container
    container.run("systemctl", "stop", SERVICE)


@pytest.fixture
def quiet(stopped: Container) -> Iterator[Container]:
    """The container with the service not running and nothing kept or configured.

    Afterwards nothing is remembered of mounts that are gone, and the service did not fail.
    """
    for folder in ("/var/lib/fusetune/saved", "/etc/fusetune"):
        stopped.run("rm", "-rf", folder)
    yield stopped
    if stopped.run("systemctl", "is-active", SERVICE, check=False).stdout.strip() == "active":
        stopped.wait(lambda: not left(stopped), "the end of what is remembered of mounts")
    assert left(stopped) == []
    assert stopped.run("systemctl", "is-failed", SERVICE, check=False).stdout.strip() != "failed"


@pytest.fixture
def server(quiet: Container) -> Iterator[Answering]:
    """A server of many mounts in that container."""
    with serving(quiet) as answering:
        yield answering


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Show what was measured at the end of the run."""
    figures = request.config.stash.setdefault(_FIGURES, [])
    return lambda text: figures.append(f"{request.node.name}: {text}")


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    if figures := config.stash.get(_FIGURES, []):
        terminalreporter.section("measured")
        for line in figures:
            terminalreporter.write_line(line)
