# SPDX-License-Identifier: GPL-2.0-or-later
"""Guards in documents of ``auto``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.report.documents.base import Interval95, KnobValues, Positive, Text
from fusetune.tuner.guards import Guarded


@dataclass(frozen=True)
class GuardRatio:
    """A workload that was not asked for, measured so that no choice makes it slower."""

    name: Annotated[Text, "Name of the workload, and of its fio job if it has several."]
    knobs: KnobValues
    ratio: Annotated[Positive, "Speed with these values divided by speed before."]
    ci95: Annotated[Interval95, "95 % interval, for all guards together; lower end first."]
    refused: Annotated[
        bool, "Whether the values were rejected because this workload became slower."
    ]


def guard_ratios(measured: Sequence[Guarded]) -> list[GuardRatio]:
    """Return measurements of guards in the form of documents."""
    return [
        GuardRatio(
            one.guard, one.setting, one.ratio.ratio, [one.ratio.low, one.ratio.high], one.refused
        )
        for one in measured
    ]
