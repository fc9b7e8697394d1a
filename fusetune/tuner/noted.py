# SPDX-License-Identifier: GPL-2.0-or-later
"""A run of ``auto`` in the history of its mount."""

from collections.abc import Mapping, Sequence

from fusetune.bench.workloads import Workload
from fusetune.desired.history import record
from fusetune.desired.results import Run
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.tuner.search import Choice


def note_run(
    host: Host,
    mount: Mount,
    command: str,
    workloads: Sequence[Workload],
    choice: Choice,
    reasons: Sequence[str],
    changes: Mapping[str, Sequence[int]],
    run: Run | None = None,
) -> None:
    """Add the result of a run and its reasons to the history.

    ``changes``: value before and after of each knob that was changed permanently; ``run``: all
    measurements, None if they cannot be compared with those of a later run.
    """
    gain = choice.gain if choice.changed else None
    record(
        host,
        mount,
        command,
        changes,
        gain=gain and gain.ratio,
        ci95=gain and (gain.low, gain.high),
        workloads=[workload.name for workload in workloads],
        reasons=list(reasons),
        run=run,
    )


def changed(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the value before and after of each knob that differs."""
    return {name: (old, after[name]) for name, old in before.items() if old != after[name]}
