# SPDX-License-Identifier: GPL-2.0-or-later
"""One shared file beside a file each, measured in a virtual machine with the tuned module."""

import statistics
from dataclasses import dataclass

from fusetune.bench.intervals import Interval
from tests.kernel.machine import made_and_run
from tests.kernel.suites import USERLAND


@dataclass(frozen=True)
class Shared:
    """Speed on one file as a ratio to that on a file each, and the most WRITEs in flight on it."""

    mount: str
    writers: int
    ratio: Interval
    in_flight: int


def shared_files() -> list[Shared]:
    """Return what guest/shared.py measures: median ratio, least and most.

    Raises RuntimeError where the machine did not get so far.
    """
    said = made_and_run(USERLAND.series, "measure_shared_file")
    entry = said.checks.get("measure_shared_file", {})
    if not entry.get("value"):
        raise RuntimeError(entry.get("failure") or said.console[-4000:])
    return [
        Shared(
            one["mount"],
            one["writers"],
            Interval(statistics.median(one["ratios"]), min(one["ratios"]), max(one["ratios"])),
            one["in_flight"],
        )
        for one in entry["value"]
    ]
