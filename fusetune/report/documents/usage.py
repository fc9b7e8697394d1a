# SPDX-License-Identifier: GPL-2.0-or-later
"""What documents of ``auto`` and ``bench`` say of the host's resources that a workload took."""

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

#: Unit of work by whether it is counted in operations, and how people read it.
WORK_UNITS = {False: "gib", True: "kilo_operations"}
_UNIT_TEXT = {"gib": "a GiB", "kilo_operations": "per 1,000 operations"}


@dataclass(frozen=True)
class WorkloadUsage:
    """What a workload took of the host; CPU times are for each unit of work.

    The client is fio, without its start. The server is the processes that serve the mount and all
    that they have started, whoever they work for.
    """

    unit: Annotated[
        str, "Unit of work: a GiB moved, or 1,000 operations.", Rule(enum=[*WORK_UNITS.values()])
    ]
    client_cpu_seconds: Annotated[Duration, "CPU seconds of the client for each unit."]
    server_cpu_seconds: Annotated[
        Duration | None, "CPU seconds of the server for each unit; null if they are unknown."
    ]
    kernel_cpu_seconds: Annotated[
        Duration | None,
        "How many of these seconds both spent in the kernel; null if unknown. Kernel threads, "
        "which may work for any mount, are not included.",
    ]
    server_memory_peak_bytes: Annotated[
        Count | None,
        "Sum of the peaks of resident memory of the server's processes; null if unknown.",
    ]
    readahead_unused_share: Annotated[
        float | None,
        "Share of what the last job brought into the page cache that it did not read: readahead "
        "was in vain. Null if unknown: but for seq-read, rand-read and mmap-read of scratch files, "
        "before Linux 6.5, and where the mount keeps nothing in the cache.",
        Rule(minimum=0, maximum=1),
    ]


MaybeUsage = Annotated[
    WorkloadUsage | None, "What it took of the host; null if nothing was measured."
]


def usage_shown(usage: Usage | None) -> WorkloadUsage | None:
    """Return what a document says of what a workload took."""
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
    """Return which part of what was brought into the page cache was not read, None if unknown."""
    if usage.unused_bytes is None or not usage.cached_bytes:
        return None
    return usage.unused_bytes / usage.cached_bytes


@dataclass(frozen=True)
class UsageChange:
    """What a workload took of the host with the values before and after."""

    name: WorkloadName
    before: MaybeUsage
    after: Annotated[
        WorkloadUsage | None, "The same with the values after; null if nothing was changed."
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
    """Return what each workload took at ``start`` and with ``setting``, None if that is unchanged.

    Empty if nothing was measured.
    """
    early, late = usages.of(start), usages.of(setting or {})
    return [
        UsageChange(w.name, usage_shown(early.get(w.name)), usage_shown(late.get(w.name)))
        for w in workloads
        if w.name in early
    ]


def usage_by_name(found: Mapping[str, Usage]) -> dict[str, WorkloadUsage]:
    """Return what a document says of each workload's usage, by its name."""
    shown = {name: usage_shown(usage) for name, usage in found.items()}
    return {name: one for name, one in shown.items() if one}


def usage_text(before: WorkloadUsage | None, after: WorkloadUsage | None = None) -> str:
    """Return what a workload took before, and after if that is given, as a part of a line."""
    pair = [one for one in (before, after) if one]
    if not pair:
        return "what it took of the host is not known"

    def shown(name: str, text: Callable[[Any], str]) -> str:
        values = [getattr(one, name) for one in pair]
        return " -> ".join("unknown" if value is None else text(value) for value in values)

    vain = ""
    if any(one.readahead_unused_share is not None for one in pair):
        vain = f"; readahead in vain {shown('readahead_unused_share', '{:.1%}'.format)}"
    return (
        f"server {shown('server_cpu_seconds', seconds_text)}, "
        f"client {shown('client_cpu_seconds', seconds_text)} of CPU {_UNIT_TEXT[pair[0].unit]} "
        f"({shown('kernel_cpu_seconds', seconds_text)} in the kernel); "
        f"server's memory peak {shown('server_memory_peak_bytes', size_text)}{vain}"
    )
