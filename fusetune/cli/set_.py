# SPDX-License-Identifier: GPL-2.0-or-later
"""Set values of a mount or of the host, all or none of them."""

import click

from fusetune.changes.policy import parse_owners
from fusetune.cli.common import (
    allow_owner_option,
    dry_run_option,
    json_option,
    pass_host_of_mounts,
    present,
    target,
    warn,
)
from fusetune.cli.completion import assignments, mount_argument, mount_options
from fusetune.desired.request import raise_for, set_values
from fusetune.desired.sysctl import persist as persist_values
from fusetune.errors import FusetuneError, UsageError
from fusetune.host import Host
from fusetune.knobs import Scope, parse_assignments
from fusetune.report.documents.changes import set_changes

EXAMPLES = (
    ("More readahead, and more dirty memory", "set /mnt/x read_ahead_kb=4M max_ratio=20"),
    (
        "Allow requests of 4 MiB, also after a reboot",
        "set host --persist fs.fuse.max_pages_limit=1024",
    ),
)


@click.command("set", help=__doc__)
@mount_argument("M|host")
@click.argument("words", metavar="KNOB=VALUE...", nargs=-1, shell_complete=assignments)
@allow_owner_option
@click.option(
    "--force",
    is_flag=True,
    help="Allow tuned mounts together to exceed max_dirty_percent of dirty memory.",
)
@click.option("--persist", is_flag=True, help="Also keep the host's values for later boots.")
@click.option(
    "--for",
    "options",
    metavar="OPTIONS",
    shell_complete=mount_options,
    help="Raise the host's limits as far as a mount with these options needs.",
)
@click.option(
    "--for-unit",
    "unit",
    metavar="UNIT",
    help="Like --for, for the options of this service's mount.",
)
@dry_run_option
@json_option
@pass_host_of_mounts
def command(
    host: Host,
    name: str,
    words: tuple[str, ...],
    owners: tuple[str, ...],
    force: bool,
    persist: bool,
    options: str | None,
    unit: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    mount = target(host, name)
    raising = options is not None or unit is not None
    if raising == bool(words):
        raise UsageError("give KNOB=VALUE or, for the host, --for OPTIONS or --for-unit UNIT")
    if raising and persist:
        raise UsageError("--persist needs values: fusetune set host --persist KNOB=VALUE")
    if mount and (raising or persist):
        raise UsageError(
            "--for, --for-unit and --persist apply to the host only: fusetune set host"
        )
    if raising:
        raised = raise_for(host, options or "", unit, dry_run=dry_run)
        for text in raised.left:
            warn(text)
        present(set_changes(raised.changes, dry_run), as_json)
        return
    values = parse_assignments(words, Scope.MOUNT if mount else Scope.HOST)
    allowed = parse_owners(owners)
    if persist:  # nothing is set that cannot be kept, and nothing kept that cannot be set
        persist_values(host, values, dry_run=True)
    changes = set_values(host, mount, values, allowed, force=force, dry_run=dry_run)
    try:
        lines = persist_values(host, values, dry_run=dry_run) if persist else []
    except FusetuneError:
        before = {change.knob: change.old for change in changes}
        set_values(host, mount, before, allowed, force=True, dry_run=dry_run)
        raise
    present(set_changes([*changes, *lines], dry_run), as_json)
