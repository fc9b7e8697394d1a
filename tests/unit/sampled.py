# SPDX-License-Identifier: GPL-2.0-or-later
"""Samples of a mount as documents, and a fake bpftrace with prepared output."""

from fusetune.errors import FusetuneError
from fusetune.profile.sampling import Sample
from fusetune.profile.totals import Reading
from fusetune.report.documents.top import Top, top_frame
from fusetune.report.documents.top_mount import TopMount
from tests import schemas


def shown_of(sample: Sample) -> TopMount:
    """Return the mount's part of the document, which must match its schema."""
    (shown,) = checked(top_frame([sample], None, 1.7e9, 2.0)).mounts
    return shown


def checked(frame: Top) -> Top:
    """Return the document, valid by its schema."""
    schemas.check(frame)
    assert frame.as_line().count("\n") == 1
    return frame


class FakeTracing:
    """A bpftrace with prepared output, or one that has ended."""

    ready, queued, streams = True, False, ()

    def __init__(self, *readings: Reading | FusetuneError | None) -> None:
        self._readings = [*readings]
        self.closed = False

    def reading(self) -> Reading | None:
        """Return the next output, and repeat the last one."""
        found = self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]
        if isinstance(found, FusetuneError):
            raise found
        return found

    def read(self, stream: object) -> None:
        """Report that it has ended."""
        raise FusetuneError("bpftrace ended")

    def close(self) -> None:
        """Record that it was ended."""
        self.closed = True
