# SPDX-License-Identifier: GPL-2.0-or-later
"""Few starts of the service set many mounts that appear at once.

udev asks systemd for the service at each event (SYSTEMD_WANTS=, systemd.device(5)); a running
service is not started again.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping

import pytest

from tests.native.requirements import requires
from tests.system.container import Container
from tests.system.watched import (
    SERVICE,
    Answering,
    catch_up,
    has,
    keep,
    left,
    peak_memory,
    show,
    state,
)

pytestmark = requires("systemd-nspawn", "mmdebstrap")

COUNT = 500
#: The most bytes of resident memory, and seconds of CPU per mount.
MEMORY, CPU = 64 << 20, 0.010

#: The values for each mount, by mount point; all are different.
KEPT: Mapping[str, Mapping[str, int]] = {
    f"/mnt/storm/{number}": {"max_background": 20 + number, "read_ahead_kb": 256}
    for number in range(COUNT)
}


@pytest.fixture
def kept(quiet: Container) -> Iterable[str]:
    """The mount points, with values saved for each."""
    for point, values in KEPT.items():
        keep(quiet, point, values)
    return KEPT


def _wait_for_values(container: Container, bdis: Mapping[str, str]) -> None:
    missing = dict(bdis)

    def all_there() -> bool:
        for point in list(missing):
            if not has(container, missing[point], KEPT[point]):
                return False
            del missing[point]
        return True

    container.wait(all_there, "values of every mount")


def _starts(container: Container) -> int:
    return sum(line.startswith("Starting ") for line in container.journal(SERVICE))


def _repeated(container: Container) -> int:
    """Return how often systemd has repeated a start because it could not make its namespace.

    Now and then this fails with EBUSY while mounts appear (seen with systemd 252). systemd then
    starts the service again, after RestartSec=.
    """
    return sum("Failed at step NAMESPACE" in line for line in container.journal(SERVICE))


def test_a_storm(
    quiet: Container, kept: Iterable[str], server: Answering, figure: Callable[[str], None]
) -> None:
    starts, repeated = _starts(quiet), _repeated(quiet)
    began = time.monotonic()
    bdis = dict(zip(kept, server.mount(*kept), strict=True))
    mounted = time.monotonic() - began
    _wait_for_values(quiet, bdis)
    took = time.monotonic() - began
    assert all(has(quiet, bdis[point], KEPT[point]) for point in kept)
    pid = show(quiet, "MainPID")
    server.unmount(*kept)
    quiet.wait(lambda: left(quiet) == [], "the end of what is remembered")
    cpu = int(show(quiet, "CPUUsageNSec")) / 1e9
    memory = peak_memory(quiet, pid)
    figure(
        f"{COUNT} mounts made in {mounted:.2f} s, all set after {took:.2f} s; "
        f"{1000 * cpu / COUNT:.2f} ms of CPU a mount, {memory >> 20} MiB, one process"
    )
    again = _repeated(quiet) - repeated
    expected = ("active", pid, str(again))
    assert (state(quiet), show(quiet, "MainPID"), show(quiet, "NRestarts")) == expected
    group = show(quiet, "ControlGroup")
    processes = quiet.run("cat", f"/sys/fs/cgroup{group}/cgroup.procs").stdout.split()
    assert processes == [pid]
    assert _starts(quiet) == starts + 1 + again
    assert memory <= MEMORY
    assert cpu <= CPU * COUNT


def test_killed_in_a_storm_the_next_start_finishes(
    quiet: Container, kept: Iterable[str], server: Answering
) -> None:
    """A lock that is left shows at which mount it was killed."""
    repeated = _repeated(quiet)
    bdis = dict(zip(kept, server.mount(*kept), strict=True))
    journals = quiet.path("/var/lib/fusetune/undo")
    processes = quiet.path(f"/sys/fs/cgroup/system.slice/{SERVICE}/cgroup.procs")
    quiet.wait(lambda: journals.exists() and len(os.listdir(journals)) > 50, "its work")
    os.kill(int(processes.read_text()), signal.SIGKILL)  # systemd may take too long
    done = sum(has(quiet, bdis[point], KEPT[point]) for point in kept)
    assert 50 <= done < COUNT
    _wait_for_values(quiet, bdis)
    said = "\n".join(quiet.journal(SERVICE))
    assert show(quiet, "NRestarts") == str(1 + _repeated(quiet) - repeated), said
    assert all(has(quiet, bdis[point], KEPT[point]) for point in kept)
    assert "left alone" not in said
    # The original values of each are known, also of the one that was half changed.
    quiet.run("systemctl", "stop", SERVICE)
    quiet.run("fusetune", "reset", "--all")
    assert all(has(quiet, bdis[point], {}) for point in kept)
    server.unmount(*kept)
    catch_up(quiet, server)  # and a later start removes records of unmounted mounts
