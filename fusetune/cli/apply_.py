# SPDX-License-Identifier: GPL-2.0-or-later
"""Set the values that are kept for a mount, or for every mount."""

import click

from fusetune.cli.common import (
    dry_run_option,
    json_option,
    pass_host_of_mounts,
    present,
    refuse_host,
    warn,
)
from fusetune.cli.completion import mount_argument
from fusetune.desired.config import load
from fusetune.desired.reconcile import LEFT_AFTER, Reconciled, reconcile_all
from fusetune.desired.resolve import Resolver
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.mounts.discover import discover, find
from fusetune.mounts.mount import BDI_NAME, Mount
from fusetune.report.documents.changes import applied_changes
from fusetune.text import printable, shell_word

EXAMPLES = (
    ("Set the values kept for a mount", "apply /mnt/x"),
    ("See what would be set on all mounts", "apply --all --dry-run"),
)


@click.command("apply", help=__doc__)
@mount_argument("[M]", required=False)
@click.option("--all", "everything", is_flag=True, help="Apply to every mount.")
@click.option("--bdi", metavar="D", help="Apply to the mount with this bdi, such as 0:43.")
@dry_run_option
@json_option
@pass_host_of_mounts
def command(
    host: Host, name: str | None, everything: bool, bdi: str | None, dry_run: bool, as_json: bool
) -> None:
    if [bool(name), everything, bool(bdi)].count(True) != 1:
        raise UsageError("give exactly one of a mount, --all or --bdi: fusetune apply M")
    if bdi and not BDI_NAME.fullmatch(bdi):
        raise UsageError(f"--bdi {bdi!r} is not a bdi name; give one such as 0:43")
    refuse_host(name or "")
    resolver = Resolver(host, load(host))
    mounts = discover(host) if everything else [find(host, name or bdi or "")]
    for mount in () if everything else mounts:
        if why := resolver.nothing_kept(mount):
            warn(why)

    def tell(mount: Mount, kept: Reconciled) -> None:
        for why in kept.refused:
            warn(f"{printable(mount.path)}: {why}")
        for knob, value in kept.fought.items():
            warn(
                f"{printable(mount.path)}: {knob}={value} is not set again: another program "
                f"changed it {LEFT_AFTER} times after fusetune set it; find that program, or force "
                f"the value with 'fusetune apply {shell_word(mount.path)}'"
            )

    insist = not everything
    changes = reconcile_all(resolver, mounts, dry_run=dry_run, insist=insist, tell=tell)
    present(applied_changes(changes, dry_run), as_json)
