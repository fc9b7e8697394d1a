# SPDX-License-Identifier: GPL-2.0-or-later
"""The best that FUSE can reach on this host: mirrorfs over tmpfs, in several ways, and tmpfs."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from fusetune.bench.measure import Measurement, measure
from fusetune.bench.mirror import mirror, mirrorfs_binary, native, tmpfs
from fusetune.bench.spending import Budget
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import Workload
from fusetune.changes.apply import enforce
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount

NATIVE = "tmpfs itself"
# How mirrorfs is mounted in each series, and the live values that it then gets.
_SERIES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "mirrorfs, stock": ("", {}),
    "mirrorfs, tuned": (
        "writeback,no_xattr",  # with xattr on, every write requests security.capability
        {
            "read_ahead_kb": 2048,
            "max_background": 64,
            "congestion_threshold": 48,
            "max_ratio": 100,
            "strict_limit": 0,
        },
    ),
    "mirrorfs, passthrough": ("passthrough", {}),
}


def calibrate(
    host: Host,
    mount: Mount | None,
    workloads: Sequence[Workload],
    budget: Budget,
    *,
    size: int | None = None,
    progress: Callable[[float, str], None] = lambda share, words: None,
) -> list[Measurement]:
    """Measure every series in turn, and also ``mount`` if one is given.

    Raises FusetuneError if nothing can be mounted (not root), or a measurement fails; `Interrupted`
    after a signal. Then nothing remains mounted.
    """
    if os.geteuid() != 0:
        raise FusetuneError("--calibrate mounts tmpfs and mirrorfs; run fusetune as root")
    binary = mirrorfs_binary()
    absent: dict[str, str] = {}
    with ExitStack() as contexts:
        interruption = contexts.enter_context(Interruption())
        directory = contexts.enter_context(tmpfs(host))
        mounts = {mount.path: mount} if mount else {}
        for number, (label, (options, values)) in enumerate(_SERIES.items()):
            interruption.check()
            point = directory / f"mount{number}"
            try:
                mounts[label] = contexts.enter_context(
                    mirror(host, binary, directory / "source", point, options)
                )
            except FusetuneError as error:
                absent[label] = str(error)
                continue
            enforce(host, mounts[label], values)
        interruption.check()
        mounts[NATIVE] = native(directory / "source")
        how: Mapping[str, Any] = {"size": size, "progress": progress, "interruption": interruption}
        measured = measure(host, mounts, workloads, budget, **how)
    return measured + [Measurement(label, None, [], absent=why) for label, why in absent.items()]
