# SPDX-License-Identifier: GPL-2.0-or-later
"""What was seen of a mount's traffic, whichever source saw it."""

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
#: Operations whose number is above those that are counted by themselves.
OTHER = "OTHER"
#: Sources that count requests by their operation.
COUNTING = ("module", "bpftrace")


@dataclass(frozen=True)
class Operation:
    """The requests of one operation.

    ``requests``: how many were sent. ``nbytes``: data that WRITE sent, for all others what the
    replies carried. ``largest_bytes``: the most in one request. ``latency``: pairs of microseconds
    and how many requests took so long, ascending. ``most_in_flight``: with the server at once.
    None: the source cannot tell.
    """

    name: str
    requests: int
    nbytes: int
    latency: Sequence[tuple[float, int]] = ()
    largest_bytes: int | None = None
    most_in_flight: int | None = None

    @property
    def ended(self) -> int:
        """How many requests have a latency."""
        return sum(count for _, count in self.latency)

    @property
    def seconds(self) -> float:
        """The time that all its requests took together."""
        return sum(microseconds * count for microseconds, count in self.latency) / 1e6

    def percentile(self, percent: float) -> float | None:
        """Return the latency in microseconds that ``percent`` of the requests did not exceed.

        None without any request that ended.
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

    ``sequential`` began where the one before on the same open file had ended, ``elsewhere`` began
    at another place; the first on an open file, and one at the file's begin, is neither.
    ``direct`` went past the page cache (O_DIRECT). ``appends`` began at the end of the file.
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
    """Return ``part`` as a share of ``whole``, 0 to 1; None of nothing."""
    return part / whole if whole else None


@dataclass(frozen=True)
class Pattern:
    """How programs used the mount's files; None: the source cannot tell.

    ``streams``: the most files that were read in sequence within one second. ``page_faults``: of
    mapped files. ``paused_seconds``: how long the kernel paused writers, all together, because too
    many of the mount's pages were dirty. ``read_bytes``: how much programs read, with the rest of a
    first and a last page where reads did not continue each other. ``unseen``: calls that may have
    read more.
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
    """What was seen of a mount within ``seconds``.

    ``source``: module, bpftrace, or fusectl and bdi, which know no operations. ``ended``: time,
    signal or unmounted. ``lost``: requests that were counted, but whose size and latency were not
    recorded, and those that may not be counted at all. ``waiting``: how many requests waited for
    their reply or to be sent, on average (fusectl's ``waiting``). ``queued``: what is counted as
    with the server includes requests that wait for a place among max_background.
    ``at_background``: share of the looks at which as many requests as max_background waited.
    ``dirty``: the mount's dirty pages at the end. None: unknown.
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

    @property
    def tells_operations(self) -> bool:
        """Whether its source tells one request from another."""
        return self.source in COUNTING

    @property
    def unread_bytes(self) -> int | None:
        """How much of what READ fetched programs did not read in this time; None: unknown.

        It was read ahead in vain, or is read later. Data that programs read again from the page
        cache hides as much of it. Mapped files are read unseen, but not without a page fault.
        """
        one, pattern = self.operation("READ"), self.pattern
        if pattern.read_bytes is None or pattern.unseen or pattern.page_faults != 0:
            return None
        return max(0, one.nbytes - pattern.read_bytes) if one else 0

    @property
    def unread_share(self) -> float | None:
        """`unread_bytes` as a share of what READ fetched, 0 to 1; None without it, too."""
        one, unread = self.operation("READ"), self.unread_bytes
        return share(unread, one.nbytes) if one and unread is not None else None

    def operation(self, name: str) -> Operation | None:
        """Return an operation by its name; None if there was no such request."""
        return next((one for one in self.operations if one.name == name), None)
