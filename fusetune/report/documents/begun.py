# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a search of ``auto`` started."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from fusetune.report.documents.base import KnobValues
from fusetune.schema import Rule


@dataclass(frozen=True)
class BegunAt:
    """The choice of an earlier run from which the search started."""

    knobs: KnobValues
    time: Annotated[float, "When that run ended, in seconds since the epoch.", Rule(minimum=0)]
    holds: Annotated[
        bool, "Whether that run's measurements still hold; if not, the search started over."
    ]

    def text(self) -> str:
        """Return it as a sentence."""
        values = " ".join(f"{name}={value}" for name, value in self.knobs.items())
        day = time.strftime("%Y-%m-%d", time.localtime(self.time))
        said = f"started from {values}, chosen on {day} for this source, server and kernel"
        if self.holds:
            return f"{said}; --cold ignores it"
        return f"{said}; this no longer holds, so the search started over"
