# SPDX-License-Identifier: GPL-2.0-or-later
"""Which signals interrupt a run, and what remains of the handlers afterwards."""

import os
import signal
from collections.abc import Iterator

import pytest

from fusetune.bench.worker import Interrupted, Interruption

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """No test changes the handlers of the others."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_interrupts(number: signal.Signals) -> None:
    with Interruption() as interruption:
        interruption.check()
        os.kill(os.getpid(), number)
        with pytest.raises(Interrupted, match="everything was restored"):
            interruption.check()
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_that_was_ignored_does_not_interrupt(number: signal.Signals) -> None:
    """nohup(1) ignores SIGHUP."""
    signal.signal(number, signal.SIG_IGN)
    with Interruption() as interruption:
        os.kill(os.getpid(), number)
        interruption.check()
        assert signal.getsignal(number) is signal.SIG_IGN
    assert signal.getsignal(number) is signal.SIG_IGN
