# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore the original values, and forget saved ones."""

import click

from fusetune.cli.common import (
    HOST_TARGET,
    dry_run_option,
    json_option,
    pass_host_of_mounts,
    present,
    warn,
)
from fusetune.cli.completion import mount_argument
from fusetune.desired.undo import reset_every_mount, reset_everything, reset_host, reset_named
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.report.documents.changes import reset_changes

EXAMPLES = (
    ("Restore the values that a mount had before fusetune", "reset /mnt/x"),
    ("Restore the values of all mounts and of the host", "reset --all"),
)


@click.command("reset", help=__doc__)
@mount_argument("[M|host]", required=False)
@click.option("--all", "everything", is_flag=True, help="Reset every mount, and the host.")
@click.option(
    "--keep-saved",
    is_flag=True,
    help="Restore only the values of mounts; keep what is saved for 'apply' and later mounts.",
)
@click.option(
    "--keep-results",
    is_flag=True,
    help="With --all: keep saved results.",
)
@dry_run_option
@json_option
@pass_host_of_mounts
def command(
    host: Host,
    name: str | None,
    everything: bool,
    keep_saved: bool,
    keep_results: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    if everything == bool(name):
        raise UsageError("give either a mount, 'host' or --all: fusetune reset M")
    if keep_results and not everything:
        raise UsageError("--keep-results needs --all: fusetune reset --all --keep-results")
    if keep_results and keep_saved:
        raise UsageError(
            "give either --keep-saved, to restore only the values of mounts, or --keep-results: "
            "fusetune reset --all --keep-results"
        )
    if keep_saved and name == HOST_TARGET:
        raise UsageError("--keep-saved is for mounts: fusetune reset M --keep-saved")
    if everything and keep_saved:
        found = reset_every_mount(host, dry_run=dry_run)
    elif everything:
        found = reset_everything(host, dry_run=dry_run, keep_saved=keep_results)
    elif name == HOST_TARGET:
        found = reset_host(host, dry_run=dry_run)
    else:
        found = reset_named(host, name or "", dry_run=dry_run, keep_saved=keep_saved)
    for undone in found.undone:
        for why in undone.stays:
            warn(why)
    present(reset_changes(found, dry_run), as_json)
