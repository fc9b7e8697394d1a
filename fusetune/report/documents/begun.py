# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a search of ``auto`` began."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from fusetune.report.documents.base import KnobValues
from fusetune.schema import Rule


@dataclass(frozen=True)
class BegunAt:
    """What an earlier run chose, at which the search began."""

    knobs: KnobValues
    time: Annotated[float, "When that run ended: seconds since the epoch.", Rule(minimum=0)]
    holds: Annotated[
        bool, "Whether what that run measured is still so; if not, the search began anew."
    ]

    def text(self) -> str:
        """Return a sentence on it."""
        values = " ".join(f"{name}={value}" for name, value in self.knobs.items())
        day = time.strftime("%Y-%m-%d", time.localtime(self.time))
        said = f"began at {values}, chosen on {day} for this source, server and kernel"
        if self.holds:
            return f"{said}; --cold begins without it"
        return f"{said}; that does not hold any more, so the search began anew"
