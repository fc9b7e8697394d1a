# SPDX-License-Identifier: GPL-2.0-or-later
"""The observed traffic of a mount, from any source."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fusetune.mounts.bdi import DirtyPages

# By number, from 0; a dash where the protocol has none (uapi linux/fuse.h, enum fuse_opcode).
_BY_NUMBER = """
- LOOKUP FORGET GETATTR SETATTR READLINK SYMLINK - MKNOD MKDIR UNLINK RMDIR RENAME LINK OPEN READ
WRITE STATFS RELEASE - FSYNC SETXATTR GETXATTR LISTXATTR REMOVEXATTR FLUSH INIT OPENDIR READDIR
RELEASEDIR FSYNCDIR GETLK SETLK SETLKW ACCESS CREATE INTERRUPT BMAP DESTROY IOCTL POLL NOTIFY_REPLY
BATCH_FORGET FALLOCATE READDIRPLUS RENAME2 LSEEK COPY_FILE_RANGE SETUPMAPPING REMOVEMAPPING SYNCFS
TMPFILE STATX COPY_FILE_RANGE_64
"""
#: Names of the protocol's operations by their number, as text.
OPCODES = {str(number): name for number, name in enumerate(_BY_NUMBER.split()) if name != "-"}
#: Operations with numbers above those that are counted individually.
OTHER = "OTHER"
#: Sources that count requests by their operation.
COUNTING = ("module", "bpftrace")


@dataclass(frozen=True)
class Operation:
    """The requests of one operation.

    ``requests``: how many were sent. ``nbytes``: data sent by WRITE, for all others data in the
    replies. ``largest_bytes``: the largest request. ``latency``: pairs of microseconds and number
    of requests, ascending. ``most_in_flight``: most requests at the server at once. None if the
    source does not report it. ``unrecorded``: requests that were counted without size and latency.
    """

    name: str
    requests: int
    nbytes: int | None
    latency: Sequence[tuple[float, int]] = ()
    largest_bytes: int | None = None
    most_in_flight: int | None = None
    unrecorded: int = 0

    @property
    def ended(self) -> int:
        """How many requests have a latency."""
        return sum(count for _, count in self.latency)

    @property
    def scale(self) -> float:
        """The number of completed requests per recorded one; 1 if none was recorded."""
        return (self.ended + self.unrecorded) / self.ended if self.ended else 1.0

    @property
    def seconds(self) -> float:
        """The total time of its requests, of which unrecorded ones took as long as the others."""
        recorded = sum(microseconds * count for microseconds, count in self.latency) / 1e6
        return recorded * self.scale

    def percentile(self, percent: float) -> float | None:
        """Return the latency in microseconds that ``percent`` of the requests did not exceed.

        None without completed requests.
        """
        left = self.ended * percent / 100
        for microseconds, count in self.latency:
            left -= count
            if left <= 0:
                return microseconds
        return None


@dataclass(frozen=True)
class Calls:
    """System calls of one direction on the mount's files.

    ``sequential`` ones started where the previous one on the same open file ended, ``elsewhere``
    ones at another position; the first on an open file, and those at the start of the file, are
    neither. ``direct`` ones bypassed the page cache (O_DIRECT). ``appends`` started at the end of
    the file.
    """

    total: int = 0
    sequential: int = 0
    elsewhere: int = 0
    direct: int = 0
    appends: int = 0

    @property
    def sequential_share(self) -> float | None:
        """Return the share of sequential calls, 0 to 1; None if no call followed another."""
        return share(self.sequential, self.sequential + self.elsewhere)


def share(part: int, whole: int) -> float | None:
    """Return ``part`` as a share of ``whole``, 0 to 1; None if ``whole`` is 0."""
    return part / whole if whole else None


@dataclass(frozen=True)
class Pattern:
    """How programs used the mount's files; None if the source does not report it.

    ``streams``: how many files were read sequentially at the same time, the mean of the second in
    which it was highest. ``page_faults``: those on mapped files that sent a READ.
    ``paused_seconds``: total time for which the kernel throttled writers because too many of the
    mount's pages were dirty. ``read_bytes``: bytes that programs read, rounded up to whole pages
    except between sequential reads. ``unseen``: calls that may have read more.
    """

    reads: Calls | None = None
    writes: Calls | None = None
    streams: int | None = None
    page_faults: int | None = None
    paused_seconds: float | None = None
    read_bytes: int | None = None
    unseen: int = 0


@dataclass(frozen=True)
class Traffic:
    """The observed traffic of a mount within ``seconds``.

    ``source``: module, bpftrace, or fusectl and bdi, which do not distinguish operations.
    ``ended``: time, signal or unmounted. ``lost``: requests that may not have been counted.
    ``unrecorded``: those that were counted without size and latency. ``waiting``: how many requests
    waited for their reply or to be sent, on average (fusectl's ``waiting``). ``queued``: whether
    requests counted as at the server include those that wait for a slot among max_background.
    ``at_background``: share of the samples in which as many requests as max_background waited.
    ``dirty``: the mount's dirty pages at the end. None if unknown.
    """

    seconds: float
    source: str
    ended: str
    lost: int
    operations: Sequence[Operation]
    pattern: Pattern = field(default_factory=Pattern)
    waiting: float | None = None
    queued: bool = False
    at_background: float | None = None
    dirty: DirtyPages | None = None
    unrecorded: int = 0

    @property
    def tells_operations(self) -> bool:
        """Whether its source distinguishes operations."""
        return self.source in COUNTING

    @property
    def unread_bytes(self) -> int | None:
        """Bytes that READ fetched and programs did not read in this time; None if unknown.

        They are wasted readahead, or are read later. The figure is too small by as much as programs
        read again from the page cache. Reads of mapped files are not seen, but cause a page fault.
        """
        one, pattern = self.operation("READ"), self.pattern
        if pattern.read_bytes is None or pattern.unseen or pattern.page_faults != 0:
            return None
        if one is None:
            return 0
        return None if one.nbytes is None else max(0, one.nbytes - pattern.read_bytes)

    @property
    def unread_share(self) -> float | None:
        """`unread_bytes` as a share of what READ fetched, 0 to 1; None if unknown or no READ."""
        one, unread = self.operation("READ"), self.unread_bytes
        return share(unread, one.nbytes or 0) if one and unread is not None else None

    def operation(self, name: str) -> Operation | None:
        """Return an operation by its name; None if there was no such request."""
        return next((one for one in self.operations if one.name == name), None)
