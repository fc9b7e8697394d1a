# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures the mounts of a stack, to find out which of them limits its speed."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fusetune.bench.limits import Limits, limits
from fusetune.bench.measure import measure
from fusetune.bench.scratch import scratch
from fusetune.bench.spending import Budget
from fusetune.bench.worker import Interrupted, Interruption, Owner
from fusetune.bench.workloads import Workload
from fusetune.changes.lock import Lock
from fusetune.changes.policy import excluded_reason
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.text import printable

_PROBE_SECONDS = 5.0


def measure_layers(
    host: Host,
    mounts: Mapping[str, Mount],
    below: Mapping[str, Sequence[str]],
    workloads: Sequence[Workload],
    budget: Budget,
    *,
    size: int | None = None,
    progress: Callable[[float, str], None] = lambda share, words: None,
) -> Limits:
    """Measure ``mounts`` (by label, from the bottom up) and return which of them limits.

    ``below``: the labels of the layers directly below each. Layers that cannot be measured are left
    out. Raises FusetuneError if the top, or everything below it cannot be measured; `Interrupted`
    after a signal.
    """
    top = list(mounts)[-1]
    left_out = {}
    for label, mount in mounts.items():
        if label != top and (why := _unmeasurable(host, mount)):
            left_out[label] = why
    wanted = {label: mount for label, mount in mounts.items() if label not in left_out}
    if len(wanted) == 1:
        whys = (f"{printable(mounts[label].path)}: {why}" for label, why in left_out.items())
        raise FusetuneError(f"no mount below it can be measured: {'; '.join(whys)}")
    measured = measure(host, wanted, workloads, budget, size=size, progress=progress)
    return replace(limits(measured, below, top), left_out=left_out)


def _unmeasurable(host: Host, mount: Mount) -> str | None:
    """Return why a mount cannot be written to, None if it can."""
    if why := excluded_reason(mount):
        return why
    if mount.read_only:
        return "it is read-only"
    program = shutil.which("fio") or "fio"
    try:
        Owner.of(mount).check()
        with Lock(host, mount), Interruption() as interruption:
            with scratch(host, mount, program, _PROBE_SECONDS, interruption):
                pass
            interruption.check()
    except Interrupted:
        raise
    except FusetuneError as error:
        return str(error)
    return None
