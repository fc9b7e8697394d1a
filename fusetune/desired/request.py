# SPDX-License-Identifier: GPL-2.0-or-later
"""Values that the administrator asks for by ``set``, within the bounds of the configuration."""

from collections.abc import Collection, Mapping

from fusetune.changes.apply import Change, set_knobs
from fusetune.desired.config import load
from fusetune.desired.history import record, values_of
from fusetune.desired.host_limits import (
    Raised,
    of_command,
    of_options,
    raise_limits,
    unit_command,
)
from fusetune.desired.resolve import bounds_of_set
from fusetune.host import Host
from fusetune.knobs import Knob
from fusetune.mounts.mount import Mount


def set_values(
    host: Host,
    mount: Mount | None,
    values: Mapping[Knob, int],
    allowed_owners: Collection[int],
    *,
    force: bool,
    dry_run: bool,
) -> list[Change]:
    """Set all values on a mount, or on the host for None, or none; return the changes.

    ``force``: ignore max_dirty_percent. Raises FusetuneError if
    policy, kernel or permission forbids one.
    """
    allowed, room = frozenset(allowed_owners), None
    if mount:
        configured, room = bounds_of_set(host, mount, values, force=force)
        allowed |= configured
    changes = set_knobs(host, mount, values, allowed, room, dry_run=dry_run)
    if changes and not dry_run:
        record(host, mount, "set", values_of(changes))
    return changes


def raise_for(host: Host, options: str, unit: str | None, *, dry_run: bool) -> Raised:
    """Raise the host's limits to what a mount with these options, or that of a service, needs.

    ``unit``: the name of a service that mounts, None for none.
    """
    config = load(host)
    needs = of_options(options)
    if unit is not None:
        needs |= of_command(host, config, unit_command(unit))
    return raise_limits(host, needs, config.settings, dry_run=dry_run)
