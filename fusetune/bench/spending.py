# SPDX-License-Identifier: GPL-2.0-or-later
"""Budgets: the cost limits of a run, and which of them is reached first."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from fusetune.errors import UsageError

MIB = 1 << 20
#: The minimum of a run: seconds, bytes to write or to read, and calls to read them.
LEAST_SECONDS, LEAST_BYTES, LEAST_REQUESTS = 5.0, 64 * MIB, 10_000
#: Default limit of bytes to write. A tmpfs accepts about as much in the 60
#: seconds of the default; slower mounts are bounded by time.
MOST_WRITTEN = 8 << 30
#: The option for each part of a budget.
OPTIONS = {
    "seconds": "--budget",
    "bytes_written": "--budget-bytes",
    "bytes_read": "--budget-read",
    "requests": "--budget-requests",
}
#: Other reasons for the end of a run: all ranges were read, or nothing more is to be measured.
RANGES, NOTHING = "ranges", "search"
#: When all ranges were read.
ALL_READ = "every range of the files was read, or may have been read ahead"

#: Remaining evaluations by each part of a budget, by its name in `OPTIONS` or `RANGES`.
Left = Mapping[str, float]


@dataclass(frozen=True)
class Budget:
    """Limits of a whole run: ``seconds`` of wall-clock time, ``bytes_written`` to the mount.

    ``bytes_read`` and ``requests``: limits of bytes and read(2) calls for existing files, because
    remote reads cost money.
    """

    seconds: float = 60.0
    bytes_written: int = MOST_WRITTEN
    bytes_read: int = 4 << 30
    requests: int = 1_000_000

    def __post_init__(self) -> None:
        """Raise UsageError for a budget that is too small."""
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
    """Return how many evaluations fit into all parts."""
    return max(0, int(min(left.values()))) if left else 0


def scarcest(left: Left) -> str:
    """Return the part that allows the fewest."""
    return min(left, key=lambda part: left[part])


class Account:
    """What a run has spent of its budget; ``bytes_read`` and ``requests`` are of existing files.

    The time starts with its construction.
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
        """Remaining seconds for measuring; some are reserved for cleanup."""
        return self.budget.seconds - min(2.0, self.budget.seconds / 10) - self.seconds

    @property
    def bytes_left(self) -> int:
        """Bytes of the budget that may still be written."""
        return self.budget.bytes_written - self.bytes_written

    def affordable(self, kept: float = 0.0) -> int:
        """Return how many more evaluations fit into the budget.

        They are expected to take as long as the last ones on average, or as all if that is more,
        because a proof measures the start again, which may be slower than what was explored last.
        One is subtracted, because the last may take longer. ``kept``: the share of time, bytes to
        read and calls to read them that is reserved for something else.
        """
        return affordable(self._left(kept))

    def scarcest(self, kept: float = 0.0) -> str:
        """Return the part of the budget that allows the fewest; ``kept``: see `affordable`."""
        return scarcest(self._left(kept))

    def _left(self, kept: float) -> Left:
        if not self._cost:
            return {}
        each = max(fmean(self._cost[-8:]), fmean(self._cost))
        seconds = (self.seconds_left - kept * self.budget.seconds) / each - 1
        return {"seconds": seconds, **self._rest(kept)}

    def _rest(self, kept: float = 0.0) -> Left:
        """Return how many evaluations remain by all parts except time; ``kept``: as above."""
        return {}
