# SPDX-License-Identifier: GPL-2.0-or-later
"""Exit codes, and the errors whose text is the one line shown to the user."""

import os
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class ExitCode(IntEnum):
    """Exit status of every command; scripts rely on the numbers. ``meaning``: for the manual."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> Self:
        code = int.__new__(cls, number)
        code._value_ = number
        code.meaning = meaning
        return code

    DONE = 0, "done"
    FAILED = 1, "failed: a line on standard error says what failed, where, and what to do"
    USAGE = 2, "usage error: invalid arguments"
    DIFFERENCE = 3, "verify found a difference, or doctor --strict found a problem"
    NOTHING_BETTER = 4, "auto, advise or remount found nothing better than the current values"


class FusetuneError(Exception):
    """Something failed; the text is one line: what, where, what to do."""

    exit_code = ExitCode.FAILED


class UsageError(FusetuneError):
    """The arguments of the command are invalid."""

    exit_code = ExitCode.USAGE


def reason(error: OSError) -> str:
    """Return the system's text for ``error``, without file name and number."""
    return error.strerror or str(error)


def as_root(error: OSError) -> str:
    """Return the remedy, to follow `reason`, if ``error`` is a lack of a user's permission."""
    return "; run fusetune as root" if isinstance(error, PermissionError) and os.geteuid() else ""


def for_each(items: Iterable[Item], act: Callable[[Item], Iterable[Result]]) -> list[Result]:
    """Return what ``act`` returns for each item, joined.

    Failures do not stop it: the first FusetuneError is raised after all items were processed.
    """
    results: list[Result] = []
    failure: FusetuneError | None = None
    for item in items:
        try:
            results += act(item)
        except FusetuneError as error:
            failure = failure or error
    if failure:
        raise failure
    return results


def do_for_each(items: Iterable[Item], act: Callable[[Item], None]) -> None:
    """Do ``act`` for each item; failures are as in `for_each`."""

    def one(item: Item) -> list[None]:
        act(item)
        return []

    for_each(items, one)
