# SPDX-License-Identifier: GPL-2.0-or-later
"""One shared file compared with one file each, in a virtual machine with the tuned module."""

import statistics
from dataclasses import dataclass

from fusetune.bench.intervals import Interval
from tests.bench.page import Section, ratio, table
from tests.kernel.guest.shared import ROUNDS
from tests.kernel.machine import measured
from tests.kernel.suites import USERLAND

_COLUMNS = ("mount", "writers", "shared file to a file each", "in flight")


@dataclass(frozen=True)
class Shared:
    """Speed on one file relative to one file each, and the most WRITEs in flight on it."""

    mount: str
    writers: int
    ratio: Interval
    in_flight: int


def _shared_files() -> list[Shared]:
    """Return what guest/shared.py measures: median ratio, least and most.

    Raises RuntimeError if the machine did not finish.
    """
    return [
        Shared(
            one["mount"],
            one["writers"],
            Interval(statistics.median(one["ratios"]), min(one["ratios"]), max(one["ratios"])),
            one["in_flight"],
        )
        for one in measured(USERLAND.series, "measure_shared_file")
    ]


def _make() -> str:
    rows = [
        (one.mount, str(one.writers), ratio(one.ratio), str(one.in_flight))
        for one in _shared_files()
    ]
    return table(_COLUMNS, rows)


SHARED_FILE = Section(
    "One shared file",
    "Writers extend one shared file with direct writes of 4 KiB, each in its own part. The table "
    "has the speed as a ratio to the speed with one file per writer, and the largest number of "
    f"WRITEs in flight on the shared file. Linux {USERLAND.series} runs in an emulated virtual "
    "machine with two cores; the server is mirrorfs with `write_delay=1ms`; fio has one thread "
    f"per writer. Both are measured alternately {ROUNDS} times: the median, and in brackets the "
    "minimum and the maximum.",
    (_COLUMNS,),
    _make,
)
