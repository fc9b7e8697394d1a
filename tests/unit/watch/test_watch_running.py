# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the service runs, what wakes it, and its notifications (sd_notify(3))."""

import errno
import os
import signal
from collections.abc import Callable

import pytest

from fusetune.changes.journal import Journal
from fusetune.desired.events import Events
from fusetune.signals import Signals
from tests.unit.watch.stage import Stage

# How long it runs


def test_it_ends_when_idle(stage: Stage) -> None:
    stage.run(stage.passing(4.9), stage.passing(0.1), stage.pass_all, idle=5)
    assert stage.waits == pytest.approx([5.0, 0.1, 0.0])
    assert stage.unused == 1
    assert stage.notified == ["READY=1", "STOPPING=1"]


def test_idle_as_configured(stage: Stage) -> None:
    stage.run(stage.pass_all, config="[watch]\nidle_seconds = 7\n", idle=None)
    assert stage.waits[0] == 7.0


def test_idle_begins_after_the_last_mount(stage: Stage) -> None:
    stage.run(lambda s: stage.passing(3)(s) or stage.come(), stage.pass_all, idle=5)
    assert stage.waits == pytest.approx([5.0, 5.0, 0.0])


def test_a_mount_that_is_due_is_no_idleness(stage: Stage) -> None:
    stage.come(waiting=1)
    stage.run(stage.passing(0.5), stage.passing(20), stage.pass_all, idle=5)
    assert stage.waits[1:3] == pytest.approx([0.25, 0.25])
    assert stage.unused == 0


def test_a_mount_that_comes_as_it_ends_is_served(stage: Stage) -> None:
    stage.last = stage.come
    stage.run(stage.pass_all, stage.pass_all, idle=5)
    assert stage.background() == 64


def test_without_an_end_it_looks_once_an_hour(stage: Stage) -> None:
    stage.run(idle=0)
    assert stage.waits == [3600.0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(stage: Stage, number: signal.Signals) -> None:
    stage.run(lambda _: os.kill(os.getpid(), number), stage.pass_all)
    assert stage.unused == 1
    assert stage.notified == ["READY=1", "STOPPING=1"]


# The supervisor


def test_the_watchdog_is_pinged_on_every_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "8000000")
    stage.run(stage.pass_all, stage.pass_all)
    assert stage.notified == ["READY=1", *["WATCHDOG=1"] * 3, "STOPPING=1"]
    assert stage.waits == pytest.approx([4.0, 4.0, 4.0])  # half of what systemd allows


# What wakes it


@pytest.mark.parametrize("number", [None, errno.ENOBUFS])
def test_events_wake_it_also_where_some_were_lost(
    waiter: Callable[..., Events], number: int | None
) -> None:
    """A storm overruns the socket's buffer (netlink(7)); every mount is still handled."""
    with Signals() as signals:
        found = waiter(signals, number)
        assert found.wait(10)
        found.close()


def test_another_failure_of_the_socket_is_an_error(waiter: Callable[..., Events]) -> None:
    with Signals() as signals:
        found = waiter(signals, errno.EBADF)
        with pytest.raises(OSError, match="Bad file descriptor"):
            found.wait(10)
        found.close()


def test_a_signal_alone_tells_of_no_mount(waiter: Callable[..., Events]) -> None:
    with Signals() as signals:
        found = waiter(signals)
        found._poll.unregister(found._monitor.fileno())
        os.kill(os.getpid(), signal.SIGHUP)
        assert not found.wait(10)
        assert signals.take() == {signal.SIGHUP}
        assert signals.take() == set()
        found.close()


def test_the_journal_tells_what_the_service_wrote(stage: Stage) -> None:
    stage.come()
    stage.run()
    (record,) = Journal(stage.tree.host, stage.tree.only()).records
    assert (record.knob, record.old, record.new, record.why) == ("max_background", 12, 64, "apply")
