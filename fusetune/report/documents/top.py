# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``top``: what each mount did within an interval."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.mounts.stack import Stacks
from fusetune.profile.sampling import Sample
from fusetune.report.documents.base import Document, Duration, joined
from fusetune.report.documents.top_mount import TopMount, top_mount
from fusetune.report.text import Table
from fusetune.report.top_rows import HEADINGS, RIGHT, limit_line, lost_lines, table_rows


@dataclass(frozen=True)
class Top(Document):
    """The activity of every FUSE mount, or of one and those below it, within an interval."""

    SCHEMA = "top"
    COMMANDS = ("top",)

    time: Annotated[Duration, "Seconds since 1970 at the end of the interval."]
    seconds: Annotated[Duration, "Length of the interval."]
    mounts: Annotated[Sequence[TopMount], "The mounts, in the order of mounting."]

    def parts(self) -> Iterator[str | Table]:
        """Yield the time, a line for each mount, a single mount's operations, and the limits."""
        return self._parts(operations=len(self.mounts) == 1)

    def plain(self, *, operations: bool) -> str:
        """Return the text; ``operations``: with a line for each operation."""
        return joined(self._parts(operations=operations))

    def _parts(self, *, operations: bool) -> Iterator[str | Table]:
        yield time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.time))
        rows = list(table_rows(self.mounts, operations=operations))
        if rows:
            yield Table(HEADINGS, [row.text_cells for row in rows], RIGHT)
        else:
            yield "no FUSE mount"
        yield from (limit_line(one) for one in self.mounts if one.limit)
        yield from lost_lines(self.mounts)
        yield ""


def top_frame(samples: Sequence[Sample], stacks: Stacks | None, at: float, seconds: float) -> Top:
    """Return the document of an interval that ended at ``at``, and took ``seconds``.

    ``stacks``: the layers below the mounts, None if unknown.
    """
    shown = {one.mount.device for one in samples}
    return Top(round(at, 3), round(seconds, 3), [top_mount(one, stacks, shown) for one in samples])
