# SPDX-License-Identifier: GPL-2.0-or-later
"""What each mount should have: configuration and saved results, by rank and policy."""

from dataclasses import dataclass

from fusetune.desired.sections import Origin


@dataclass(frozen=True)
class Expected:
    """What a knob should be: ``value`` in its unit, and ``origin``, the file that says so.

    ``refused``: why policy forbids it all the same, None if it does not.
    """

    value: int
    origin: Origin
    refused: str | None = None
