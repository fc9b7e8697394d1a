# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --live counts the page faults of a program the same with every value of read_ahead_kb."""

import subprocess
import sys
import time

import pytest

from fusetune.host import Host
from fusetune.mounts.discover import find
from fusetune.profile.abilities import traces_faults
from fusetune.profile.waits import Waited, Waits
from fusetune.profile.waits_program import Kind
from tests.native.conftest import write_sysfs
from tests.native.mirror import PATIENCE, Mirror
from tests.native.requirements import requires

pytestmark = [
    requires("bpftrace"),
    pytest.mark.xdist_group("probes"),
]

SIZE = 16 << 20
#: Bytes that one fault maps if they are cached (mm/memory.c, fault_around_bytes).
AROUND = 64 << 10

#: Touches pages at every so many bytes, in order or not, and prints how many faults that took.
_TOUCH = """
import mmap, random, resource, sys
file, step, order = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with open(file, "rb") as stream:
    mapped = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
places = list(range(0, len(mapped), step))
if order == "random":
    random.Random(1).shuffle(places)
before = resource.getrusage(resource.RUSAGE_SELF)
for place in places:
    mapped[place]
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt)
"""


@pytest.fixture(autouse=True)
def traced(tracefs: None) -> None:
    if not traces_faults(Host()):
        pytest.skip("the kernel has no tracepoints of page faults (Linux 6.12 and later have them)")


def _touched(mirror: Mirror, step: int, order: str) -> tuple[int, Waited]:
    """Let a program touch a file; return its own number of faults, and what was counted."""
    (mirror.source / "file").write_bytes(bytes(SIZE))
    command = [sys.executable, "-c", _TOUCH, str(mirror.mountpoint / "file"), str(step), order]
    found = Waited()
    with Waits(Host(), find(Host(), str(mirror.mountpoint))) as waits:
        done = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
        end = time.monotonic()
        while (mark := waits.next()).at < end:
            found.add(mark.ended.get((Kind.FAULT, 0.0), Waited()))
        found.add(mark.ended.get((Kind.FAULT, 0.0), Waited()))
    return int(done.stdout), found


@pytest.mark.parametrize("read_ahead_kb", [16, 64, 128])
def test_each_fault_of_scattered_pages_counts_once(mirror: Mirror, read_ahead_kb: int) -> None:
    """Also if pages around it are cached, so that the kernel has mapped these in vain before."""
    write_sysfs(mirror.bdi, read_ahead_kb=read_ahead_kb)
    faults, counted = _touched(mirror, AROUND, "random")
    assert faults == pytest.approx(SIZE // AROUND, rel=0.1)  # few are on the program's own memory
    assert counted.calls == pytest.approx(faults, rel=0.1)


@pytest.mark.parametrize("read_ahead_kb", [16, 64, 128])
def test_pages_in_order_count_the_same_with_little_readahead(
    mirror: Mirror, read_ahead_kb: int
) -> None:
    """Although they take more faults. Otherwise a better value would seem worse."""
    write_sysfs(mirror.bdi, read_ahead_kb=read_ahead_kb)
    faults, counted = _touched(mirror, 4096, "in order")
    assert read_ahead_kb > 16 or faults > 3 * SIZE // AROUND
    assert counted.calls == pytest.approx(SIZE // AROUND, rel=0.05)
    assert counted.nbytes == 4096 * counted.calls
    assert counted.seconds > 0
