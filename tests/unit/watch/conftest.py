# SPDX-License-Identifier: GPL-2.0-or-later
"""The service in a simulated environment."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from fusetune.desired import events
from fusetune.desired.events import Events
from fusetune.signals import Signals
from tests.unit.conftest import Tree
from tests.unit.watch.stage import FakeMonitor, Stage


@pytest.fixture
def stage(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tree, monkeypatch)


@pytest.fixture
def waiter(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Events]]:
    monitors = []

    def build(signals: Signals, number: int | None = None) -> Events:
        monitors.append(FakeMonitor(number))
        fake = SimpleNamespace(from_netlink=lambda context, source: monitors[-1])
        monkeypatch.setattr(events, "pyudev", SimpleNamespace(Monitor=fake, Context=object))
        return Events(tree.host, signals)

    yield build
    for monitor in monitors:
        monitor.close()
