# SPDX-License-Identifier: GPL-2.0-or-later
"""Budgets: what a run may cost, and which part of it is spent first."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from fusetune.errors import UsageError

MIB = 1 << 20
#: The least that a run needs: seconds, bytes to write or to read, and calls to read them.
LEAST_SECONDS, LEAST_BYTES, LEAST_REQUESTS = 5.0, 64 * MIB, 10_000
#: Bytes that a run may write unless it is told otherwise. A tmpfs takes about as much in the 60
#: seconds of the default; slower mounts are bounded by time.
MOST_WRITTEN = 8 << 30
#: The option that gives each part of a budget.
OPTIONS = {
    "seconds": "--budget",
    "bytes_written": "--budget-bytes",
    "bytes_read": "--budget-read",
    "requests": "--budget-requests",
}
#: What else may end a run: every range of the files was read, or nothing more is asked for.
RANGES, NOTHING = "ranges", "search"

#: How many evaluations each part of a budget still pays for, by its name in `OPTIONS` or `RANGES`.
Left = Mapping[str, float]


@dataclass(frozen=True)
class Budget:
    """What a whole run may cost: ``seconds`` by the clock, ``bytes_written`` to the mount.

    ``bytes_read`` and ``requests``: what its workloads may read of files that are there, and in how
    many calls of read(2). Remote reads cost money.
    """

    seconds: float = 60.0
    bytes_written: int = MOST_WRITTEN
    bytes_read: int = 4 << 30
    requests: int = 1_000_000

    def __post_init__(self) -> None:
        """Raise UsageError for a budget that could not be kept."""
        if self.seconds < LEAST_SECONDS or self.bytes_written < LEAST_BYTES:
            raise UsageError(
                f"a run needs a --budget of at least {LEAST_SECONDS:.0f}s and --budget-bytes of "
                f"at least {LEAST_BYTES // MIB}M"
            )
        if self.bytes_read < LEAST_BYTES or self.requests < LEAST_REQUESTS:
            raise UsageError(
                f"a run needs a --budget-read of at least {LEAST_BYTES // MIB}M and "
                f"--budget-requests of at least {LEAST_REQUESTS}"
            )


def affordable(left: Left) -> int:
    """Return how many evaluations all parts pay for."""
    return max(0, int(min(left.values()))) if left else 0


def scarcest(left: Left) -> str:
    """Return the part that pays for the fewest."""
    return min(left, key=lambda part: left[part])


class Account:
    """What a run has spent of its budget; ``bytes_read`` and ``requests`` of files that were there.

    The time begins with it.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.bytes_written = self.bytes_read = self.requests = self.evaluations = 0
        self._cost: list[float] = []  # seconds of each evaluation
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def seconds_left(self) -> float:
        """Seconds of the budget that are left for measuring; some are kept for cleaning up."""
        return self.budget.seconds - min(2.0, self.budget.seconds / 10) - self.seconds

    @property
    def bytes_left(self) -> int:
        """Bytes of the budget that may still be written."""
        return self.budget.bytes_written - self.bytes_written

    def affordable(self, kept: float = 0.0) -> int:
        """Return how many more evaluations the budget pays for, by the cost of the last ones.

        It is one less than that, because the last may take longer. ``kept``: seconds of the budget
        that are for something else.
        """
        return affordable(self._left(kept))

    def scarcest(self, kept: float = 0.0) -> str:
        """Return the part of the budget that pays for the fewest; ``kept`` as for `affordable`."""
        return scarcest(self._left(kept))

    def _left(self, kept: float) -> Left:
        if not self._cost:
            return {}
        recent = self._cost[-8:]
        seconds = (self.seconds_left - kept) / (sum(recent) / len(recent)) - 1
        return {"seconds": seconds, **self._rest()}

    def _rest(self) -> Left:
        """Return how many evaluations are left by everything but time."""
        return {}
