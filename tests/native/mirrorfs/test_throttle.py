# SPDX-License-Identifier: GPL-2.0-or-later
"""mirrorfs is as slow as requested, and serves as many requests at a time.

The tests assert counts and states, never speeds; the lower bound of a delay or a bandwidth is a
state. mirrorfs(1) describes the options.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from time import monotonic

from tests.native.mirror import mounted_at, wait_for
from tests.native.mirrorfs.calls import (
    KIB,
    MIB,
    Mount,
    direct_io,
    in_parallel,
    write_all,
)
from tests.native.requirements import requires

pytestmark = requires()


def test_served_limits_what_is_served_at_once(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * MIB)
    mirror = mount("delay=20ms", "served=4", "max_background=64", "threads=1")
    in_parallel(16, lambda index: direct_io(mirror.mountpoint / "file", 4096, index * 4096))
    throttle = mirror.counters()["throttle"]
    assert throttle["most_in_service"] == 4
    assert 1 <= throttle["most_waiting"] <= 12


def test_unlimited_service_serves_all_at_once(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * MIB)
    mirror = mount("read_delay=2s", "max_background=64")
    in_parallel(16, lambda index: direct_io(mirror.mountpoint / "file", 4096, index * 4096))
    counted = mirror.counters()
    assert counted["ops"]["READ"]["most_in_flight"] == 16
    assert counted["throttle"] == {"most_in_service": 16, "most_waiting": 0}


def test_each_request_takes_its_delay(mount: Mount) -> None:
    mirror = mount("delay=2ms", "timeout=0")
    (mirror.mountpoint / "file").touch()
    mirror.reset_counters()
    begun = monotonic()
    for _ in range(100):
        os.stat(mirror.mountpoint / "file")
    elapsed = monotonic() - begun
    requests = mirror.counters()["all"]["count"]
    assert requests >= 100
    assert elapsed >= requests * 0.002


def test_served_requests_queue_for_the_whole_delay(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * MIB)
    mirror = mount("read_delay=10ms", "served=2")
    begun = monotonic()
    in_parallel(8, lambda index: direct_io(mirror.mountpoint / "file", 4096, index * 4096))
    assert monotonic() - begun >= 8 / 2 * 0.010


def test_read_delay_is_for_reads_alone(mount: Mount) -> None:
    mirror = mount("delay=0s", "read_delay=1ms")
    write_all(mirror.mountpoint / "file", b"x" * 4096)
    assert mirror.counters()["throttle"]["most_in_service"] == 0
    direct_io(mirror.mountpoint / "file", 4096, 0)
    assert mirror.counters()["throttle"]["most_in_service"] == 1


def test_bandwidth_holds_for_reads_and_writes_together(mount: Mount, source: Path) -> None:
    (source / "there").write_bytes(b"x" * 2 * MIB)
    mirror = mount("bandwidth=16M")
    begun = monotonic()
    in_parallel(
        2,
        lambda index: (
            (mirror.mountpoint / "there").read_bytes()
            if index
            else write_all(mirror.mountpoint / "here", *[b"x" * 128 * KIB] * 16)
        ),
    )
    # 4 MiB at 16 MiB/s; the link may catch up by 2 ms.
    assert monotonic() - begun >= 4 / 16 - 0.002


def test_end_does_not_wait_for_delays(mount: Mount, source: Path) -> None:
    (source / "file").write_bytes(b"x" * MIB)
    mirror = mount("read_delay=60s", "served=1")
    readers = [
        threading.Thread(target=lambda: _ignore_errors(mirror.mountpoint / "file"), daemon=True)
        for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    wait_for(lambda: mirror.counters()["ops"]["READ"]["in_flight"] >= 1, "a READ in flight")
    assert mirror.stop() == 0
    for reader in readers:
        reader.join(20)
        assert not reader.is_alive()
    assert mounted_at(mirror.mountpoint) is None


def _ignore_errors(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError:
        return
