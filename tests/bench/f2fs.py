# SPDX-License-Identifier: GPL-2.0-or-later
"""Parallel writers on the kernel's f2fs and on ours, in a virtual machine of each series."""

from tests.bench.page import Section, table
from tests.kernel.machine import measured
from tests.kernel.suites import SUITES

_CHECK = "check_f2fs_keeps_a_writes_blocks_together"
_COLUMNS = ("Linux", "writers", "the kernel's f2fs", "f2fs-tuned")


def _make() -> str:
    rows = []
    for suite in SUITES:
        rows += [(suite.series, *map(str, counts)) for counts in measured(suite.series, _CHECK)]
    return table(_COLUMNS, rows)


F2FS = Section(
    "Writers at once on f2fs",
    "Several writers make direct writes of 2 MiB at once, 16 MiB each (16 writers: 64 MiB each), "
    "to a new f2fs in an emulated virtual machine with Debian's kernel. The table counts, using "
    "FIEMAP, the places at which the blocks of one write are not contiguous, except at the end "
    "of a segment. Each count is from one run; a run with the kernel's f2fs is repeated up to 5 "
    "times while all of its writes are contiguous.",
    (_COLUMNS,),
    _make,
)
