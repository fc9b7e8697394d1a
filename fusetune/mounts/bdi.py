# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's counts of a mount's pages: the statistics of its bdi in debugfs."""

import re
from dataclasses import dataclass

from fusetune.host import Host
from fusetune.mounts.mount import Mount

_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)
_NEEDED = (
    *("BdiReclaimable", "BdiWriteback", "BdiDirtyThresh"),
    *("DirtyThresh", "BackgroundThresh", "BdiWritten"),
)


@dataclass(frozen=True)
class DirtyPages:
    """The pages of a mount that are dirty or being written, and its limit, in bytes.

    ``pausing``: size above which the kernel throttles writers of a mount with a strict limit: half
    way between its background limit and its limit (mm/page-writeback.c,
    balance_dirty_pages()). ``written``: bytes written back since it was mounted.
    """

    dirty: int
    limit: int
    pausing: int
    written: int


def bdi_statistics(host: Host, mount: Mount) -> dict[str, int] | None:
    """Return the sizes in the bdi's statistics, in bytes by name.

    None if debugfs does not show them (mm/backing-dev.c, bdi_debug_stats_show; it needs root and a
    mounted debugfs).
    """
    try:
        text = host.read(f"sys/kernel/debug/bdi/{mount.bdi}/stats")
    except OSError:
        return None
    return {name: int(number) * 1024 for name, number in _LINE.findall(text)}


def dirty_pages(host: Host, mount: Mount) -> DirtyPages | None:
    """Return the mount's dirty pages, None if the kernel does not show them."""
    found = bdi_statistics(host, mount) or {}
    if not all(name in found for name in _NEEDED):
        return None
    dirty, writeback, limit, of_host, background, written = (found[name] for name in _NEEDED)
    share = background / of_host if of_host else 1.0
    return DirtyPages(dirty + writeback, limit, round(limit * (1 + share) / 2), written)
