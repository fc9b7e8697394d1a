# SPDX-License-Identifier: GPL-2.0-or-later
"""What is measured on a mount: scratch files, or existing files if none can be written."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fusetune.bench.place import Unwritable
from fusetune.bench.reading import Reading
from fusetune.bench.workloads import DEFAULT_READS, SETS, WORKLOADS, Workload, WorkloadSet, chosen
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.mounts.discover import discover, lexical
from fusetune.mounts.mount import Mount
from fusetune.text import printable

T = TypeVar("T")


def on_subject(
    host: Host,
    mount: Mount,
    names: Sequence[str],
    files: Sequence[str],
    measure: Callable[[list[Workload], Reading | None], T],
    *,
    size: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
    sets: Mapping[str, WorkloadSet] = SETS,
) -> T:
    """Return the result of ``measure`` for the workloads and the files to read, None for scratch.

    ``names``: of the workloads or ``sets``, none for the default ones; ``files``: named by the
    user. If no scratch file can be created, workloads that only read use existing files, and sets
    lose the others; ``tell``: see `Reading`. Raises UsageError for a named workload that needs
    scratch files then, and for a path that is not in the mount.
    """
    workloads = chosen(names, sets)
    if not files and not mount.read_only:
        try:
            return measure(workloads, None)
        except Unwritable as error:
            tell(f"{error}; reading existing files instead")
    why = "with --files" if files else f"because {printable(mount.path)} is not writable"
    if size is not None:
        raise UsageError(f"--size sets the size of scratch files, but none is written {why}")
    workloads = chosen(names or DEFAULT_READS, _reading_sets(names, sets, why, tell))
    for workload in workloads:
        if not workload.only_reads:
            able = ", ".join(name for name, one in WORKLOADS.items() if one.only_reads)
            raise UsageError(
                f"{workload.name} needs scratch files, but nothing is written {why}; "
                f"workloads that read existing files: {able}"
            )
    return measure(workloads, Reading([_beneath(host, mount, path) for path in files], tell))


def _reading_sets(
    names: Sequence[str],
    sets: Mapping[str, WorkloadSet],
    why: str,
    tell: Callable[[str], None],
) -> Mapping[str, WorkloadSet]:
    """Return ``sets``; the named ones without what needs scratch files, if something remains."""
    found = dict(sets)
    for one in [sets[name] for name in dict.fromkeys(names) if name in sets]:
        kept = {name: share for name, share in one.shares.items() if WORKLOADS[name].only_reads}
        out = [name for name in one.shares if name not in kept]
        if kept and out:
            tell(f"leaves out of {one.name}: {', '.join(out)}; nothing is written {why}")
            whole = sum(kept.values())
            shares = {name: share / whole for name, share in kept.items()}
            found[one.name] = replace(one, shares=shares)
    return found


def _beneath(host: Host, mount: Mount, path: str) -> str:
    """Return ``path`` relative to the mount's root, without accessing any FUSE mount.

    Raises UsageError if it is not in the mount.
    """
    points = frozenset(p for one in discover(host) for p in (one.path, *one.also_at))
    relative = os.path.relpath(lexical(path, points), mount.path)
    if relative.split("/")[0] == "..":
        raise UsageError(
            f"{printable(path)} is not in {printable(mount.path)}; --files needs files or "
            "directories in the mount"
        )
    return "" if relative == "." else relative
