# SPDX-License-Identifier: GPL-2.0-or-later
"""Documents about a mount's traffic, from objects made by hand: of ``profile`` and ``top``."""

from dataclasses import replace

from fusetune.mounts.bdi import DirtyPages
from fusetune.mounts.mount import Mount
from fusetune.profile.sampling import Sample
from fusetune.profile.traffic import Calls, Operation, Pattern, Traffic
from fusetune.report.documents.base import Document
from fusetune.report.documents.profile import profiled
from fusetune.report.documents.top import Top, top_frame
from tests.unit.conftest import STOCK


def traffic_documents(mount: Mount) -> list[Document]:
    """``profile`` and ``top``."""
    return [*_profiles(mount), *top_documents(mount)]


def _profiles(mount: Mount) -> list[Document]:
    """A profile of each source, the second of an empty time."""
    read = Operation("READ", 100, 100 << 17, [(50_000.0, 99), (60_000.0, 1)], 1 << 17, 12)
    calls = Calls(total=100, sequential=90, elsewhere=9, direct=2, appends=5)
    pattern = Pattern(calls, calls, streams=2, page_faults=7, paused_seconds=0.25)
    operations = [read, Operation("FSYNC", 4, 0)]
    return [
        profiled(
            mount,
            Traffic(10.0, "bpftrace", "signal", 3, operations, pattern, 0.5, unrecorded=7),
            STOCK,
            {"seq-read": 1.0},
        ),
        profiled(
            replace(mount, bdi=None, connection=None),
            Traffic(0.0, "module", "unmounted", 0, []),
            {},
            {},
        ),
    ]


def top_documents(mount: Mount) -> list[Top]:
    """A frame with a mount of each source, one of which hangs, and one without mounts."""
    read = Operation("READ", 100, 100 << 17, [(50_000.0, 99), (60_000.0, 1)], 1 << 17, 12)
    calls = Calls(total=100, sequential=50, elsewhere=49)
    counted = Traffic(
        *(2.0, "bpftrace", "time", 3, [read, Operation("FSYNC", 4, 0)]),
        pattern=Pattern(calls, page_faults=0, read_bytes=75 << 17),
        waiting=14.5,
        at_background=0.75,
        dirty=DirtyPages(1 << 20, 4 << 20, 3 << 20, 0),
        unrecorded=7,
    )
    untold = Traffic(2.0, "fusectl", "time", 0, [], waiting=1.0, at_background=0.0)
    bare = replace(mount, bdi=None, connection=None, device="0:77")
    why = f"name {mount.path}"
    return [
        top_frame(
            [
                Sample(mount, STOCK, counted, None, 13, 2048.0, 0.5),
                Sample(replace(mount, device="0:76"), STOCK, untold, why, 1, None, 61.25),
                Sample(bare, {}, Traffic(2.0, "bdi", "time", 0, []), why, None, None, 0.0),
            ],
            *(None, 1_700_000_000.5, 2.0),
        ),
        top_frame([], None, 1_700_000_002.5, 2.0),
    ]
