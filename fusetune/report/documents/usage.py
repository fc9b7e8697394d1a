# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's resources that a workload used, in documents of ``auto`` and ``bench``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fusetune.bench.usage import Usage, Usages
from fusetune.bench.workloads import Workload
from fusetune.report.documents.base import Count, Duration
from fusetune.report.documents.figures import WorkloadName
from fusetune.report.text import seconds_text, size_text
from fusetune.schema import Rule

#: Unit of work, by whether it is counted in operations, and its text.
WORK_UNITS = {False: "gib", True: "kilo_operations"}
_UNIT_TEXT = {"gib": "per GiB", "kilo_operations": "per 1,000 operations"}


@dataclass(frozen=True)
class WorkloadUsage:
    """Host resources that a workload used; CPU times are per unit of work.

    The client is fio after its start-up. The server is the processes that serve the mount and
    all their descendants, even if those work for other mounts as well.
    """

    unit: Annotated[
        str, "Unit of work: a GiB moved, or 1,000 operations.", Rule(enum=[*WORK_UNITS.values()])
    ]
    client_cpu_seconds: Annotated[Duration, "CPU seconds of the client per unit."]
    server_cpu_seconds: Annotated[
        Duration | None, "CPU seconds of the server per unit; null if unknown."
    ]
    kernel_cpu_seconds: Annotated[
        Duration | None,
        "How many of these seconds both spent in the kernel; null if unknown. Kernel threads are "
        "not included, because they may work for any mount.",
    ]
    server_memory_peak_bytes: Annotated[
        Count | None,
        "Sum of the peak resident memory of the server's processes; null if unknown.",
    ]
    readahead_unused_share: Annotated[
        float | None,
        "Share of the data read into the page cache for the last job that was not used: wasted "
        "readahead. Null if unknown: before Linux 6.5, on mounts without page cache, and for all "
        "workloads except seq-read, rand-read and mmap-read on scratch files.",
        Rule(minimum=0, maximum=1),
    ]


MaybeUsage = Annotated[
    WorkloadUsage | None, "Host resources that it used; null if nothing was measured."
]


def usage_shown(usage: Usage | None) -> WorkloadUsage | None:
    """Return the usage of a workload in the form of documents."""
    if not usage or not usage.work:
        return None
    client, server = usage.client, usage.server
    return WorkloadUsage(
        WORK_UNITS[usage.per_operation],
        client.seconds / usage.work,
        server.seconds / usage.work if server else None,
        (client.system + server.system) / usage.work if server else None,
        usage.memory_bytes,
        unused_share(usage),
    )


def unused_share(usage: Usage) -> float | None:
    """Return the share of data read into the page cache that was not used, None if unknown."""
    if usage.unused_bytes is None or not usage.cached_bytes:
        return None
    return usage.unused_bytes / usage.cached_bytes


@dataclass(frozen=True)
class UsageChange:
    """Host resources that a workload used with the values before and after."""

    name: WorkloadName
    before: MaybeUsage
    after: Annotated[
        WorkloadUsage | None, "The same with the new values; null if nothing was changed."
    ]

    def text(self) -> str:
        """Return it as a line."""
        return f"{self.name}: {usage_text(self.before, self.after)}"


def usage_changes(
    workloads: Sequence[Workload],
    usages: Usages,
    start: Mapping[str, int],
    setting: Mapping[str, int] | None,
) -> list[UsageChange]:
    """Return the usage of each workload at ``start`` and with ``setting``, None if unchanged.

    Empty if nothing was measured.
    """
    early, late = usages.of(start), usages.of(setting or {})
    return [
        UsageChange(w.name, usage_shown(early.get(w.name)), usage_shown(late.get(w.name)))
        for w in workloads
        if w.name in early
    ]


def usage_by_name(found: Mapping[str, Usage]) -> dict[str, WorkloadUsage]:
    """Return each workload's usage in the form of documents, by workload name."""
    shown = {name: usage_shown(usage) for name, usage in found.items()}
    return {name: one for name, one in shown.items() if one}


def usage_text(before: WorkloadUsage | None, after: WorkloadUsage | None = None) -> str:
    """Return the usage before, and after if given, as part of a line."""
    pair = [one for one in (before, after) if one]
    if not pair:
        return "its use of the host is unknown"

    def shown(name: str, text: Callable[[Any], str]) -> str:
        values = [getattr(one, name) for one in pair]
        return " -> ".join("unknown" if value is None else text(value) for value in values)

    vain = ""
    if any(one.readahead_unused_share is not None for one in pair):
        vain = f"; wasted readahead {shown('readahead_unused_share', '{:.1%}'.format)}"
    return (
        f"server {shown('server_cpu_seconds', seconds_text)}, "
        f"client {shown('client_cpu_seconds', seconds_text)} of CPU {_UNIT_TEXT[pair[0].unit]} "
        f"({shown('kernel_cpu_seconds', seconds_text)} in the kernel); "
        f"server's peak memory {shown('server_memory_peak_bytes', size_text)}{vain}"
    )
