# SPDX-License-Identifier: GPL-2.0-or-later
"""Exit codes and the errors whose text is the one line that the user reads."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What every command ends with; scripts rely on the numbers."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DIFFERENCE = 3
    NOTHING_BETTER = 4


class FusetuneError(Exception):
    """Something failed: the text says what, where, and what to do, in one line."""

    exit_code = ExitCode.FAILED


class UsageError(FusetuneError):
    """The command was given words or values that it cannot take."""

    exit_code = ExitCode.USAGE


def reason(error: OSError) -> str:
    """Return the system's own words for ``error``, without the file name and number."""
    return error.strerror or str(error)
