# SPDX-License-Identifier: GPL-2.0-or-later
"""Put back the values found before the first change."""

from collections.abc import Sequence

import click

from fusetune.changes.apply import Change
from fusetune.cli.common import dry_run_option, json_option, pass_host_of_mounts, present, target
from fusetune.desired.sysctl import Line
from fusetune.desired.undo import reset_everything, reset_host, reset_mount
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.report.documents.changes import reset_changes


@click.command("reset", help=__doc__)
@click.argument("name", metavar="M|host", required=False)
@click.option("--all", "everything", is_flag=True, help="Reset every mount, and the host.")
@dry_run_option
@json_option
@pass_host_of_mounts
def command(host: Host, name: str | None, everything: bool, dry_run: bool, as_json: bool) -> None:
    if everything == bool(name):
        raise UsageError("give either a mount (or 'host') or --all: fusetune reset M")
    changes: Sequence[Change | Line]
    if everything:
        changes = reset_everything(host, dry_run=dry_run)
    elif mount := target(host, name or ""):
        changes = reset_mount(host, mount, dry_run=dry_run)
    else:
        changes = reset_host(host, dry_run=dry_run)
    present(reset_changes(changes, dry_run), as_json)
