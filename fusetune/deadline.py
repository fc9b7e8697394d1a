# SPDX-License-Identifier: GPL-2.0-or-later
"""Functions that other processes may delay, run in a child that is killed at a deadline."""

import json
import math
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

#: Seconds for one name, and for all of them.
_EACH, _ALL = 0.5, 3.0
_REAPED = 1.0


def each_in_time(
    work: Callable[[str], Any], names: Sequence[str], each: float = _EACH, every: float = _ALL
) -> dict[str, Any]:
    """Run ``work`` for each of ``names`` in a child process; return the results (JSON types).

    A name is missing from the result if ``work`` raises OSError for it, takes longer than ``each``
    seconds, or is not done within ``every`` seconds of the call. ``each`` does not include the time
    until the child runs, which does not depend on the name.
    """
    found: dict[str, Any] = {}
    todo, end = list(names), time.monotonic() + every
    while todo and time.monotonic() < end:
        done = _begin(work, todo, each, end)
        found.update((name, one[0]) for name, one in zip(todo, done, strict=False) if one)
        todo = todo[len(done) + 1 :]  # the child hung on the next name
    return found


def _begin(work: Callable[[str], Any], names: list[str], each: float, end: float) -> list[Any]:
    """Return [result], or [] for an OSError, for each name before the first that hangs."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        _in_child(work, names, writable)
    os.close(writable)
    text, allowed = b"", math.inf
    try:
        while select.select([readable], [], [], max(0.0, min(allowed, end - time.monotonic())))[0]:
            part = os.read(readable, 65536)
            if not part:
                break
            text += part
            allowed = each
    finally:
        os.close(readable)
        _kill(pid)
    return [json.loads(line) for line in text.split(b"\n")[1:-1]]


def _in_child(work: Callable[[str], Any], names: list[str], writable: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        # The child must not hold pipes or locks of the caller: others may wait for those.
        os.closerange(0, writable)
        os.closerange(writable + 1, os.sysconf("SC_OPEN_MAX"))
        os.write(writable, b"\n")  # it runs now: on a loaded host, it may have had to wait
        for name in names:
            try:
                result = [work(name)]
            except OSError:
                result = []
            os.write(writable, json.dumps(result).encode() + b"\n")
    finally:
        os._exit(0)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    ended = os.pidfd_open(pid)
    try:
        if select.select([ended], [], [], _REAPED)[0]:
            os.waitpid(pid, 0)
    finally:
        os.close(ended)
