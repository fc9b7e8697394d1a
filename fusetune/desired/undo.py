# SPDX-License-Identifier: GPL-2.0-or-later
"""All that ``reset`` puts back and removes."""

from fusetune.bench.scratch import remove_left_behind
from fusetune.changes.apply import Change
from fusetune.desired.host_limits import release
from fusetune.desired.reset import reset, reset_all
from fusetune.desired.sysctl import Line, forget_persisted
from fusetune.host import Host
from fusetune.mounts.mount import Mount

# A hung server must not keep `reset` from putting values back.
_REMOVING_SECONDS = 0.5


def reset_mount(host: Host, mount: Mount, *, dry_run: bool) -> list[Change]:
    """Put back a mount's values, and the host's limits that were raised for it alone."""
    changes = reset(host, mount, dry_run=dry_run)
    if not dry_run:
        remove_left_behind(host, mount, _REMOVING_SECONDS)
    return changes + release(host, mount, dry_run=dry_run)


def reset_host(host: Host, *, dry_run: bool) -> list[Change | Line]:
    """Put back the host's values, also those for later boots."""
    changes = reset(host, None, dry_run=dry_run)
    return [*changes, *forget_persisted(host, dry_run=dry_run)]


def reset_everything(host: Host, *, dry_run: bool) -> list[Change | Line]:
    """Put back the values of every mount and of the host, also those for later boots."""
    changes = reset_all(host, dry_run=dry_run)
    return [*changes, *forget_persisted(host, dry_run=dry_run)]
