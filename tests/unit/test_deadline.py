# SPDX-License-Identifier: GPL-2.0-or-later
"""The deadline of a call in a child starts when the child runs.

A busy host may delay a child after fork(2). Here the child sleeps when it closes inherited
descriptors, before it calls anything.
"""

import os
import time

import pytest

from fusetune import deadline


def start_late(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    def closerange(low: int, high: int) -> None:
        if low == 0:
            time.sleep(seconds)

    monkeypatch.setattr(os, "closerange", closerange)


@pytest.mark.slow
def test_a_child_that_starts_late_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    start_late(monkeypatch, 1.5)
    assert deadline.each_in_time(str.upper, ["a", "b"], 1.0, 60.0) == {"a": "A", "b": "B"}


def test_a_child_that_never_starts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    start_late(monkeypatch, 20.0)
    assert deadline.each_in_time(str.upper, ["a", "b"], 60.0, 0.1) == {}
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.slow
def test_a_name_that_takes_too_long_is_left_out() -> None:
    def work(name: str) -> str:
        if name == "slow":
            time.sleep(20)
        return name

    names = ["a", "slow", "b"]
    assert deadline.each_in_time(work, names, 1.0, 60.0) == {"a": "a", "b": "b"}
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
