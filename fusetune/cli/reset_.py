# SPDX-License-Identifier: GPL-2.0-or-later
"""Put back the values found before the first change."""

import click

from fusetune.bench.scratch import remove_left_behind
from fusetune.cli.common import dry_run_option, json_option, pass_host_of_mounts, present, target
from fusetune.desired.host_limits import release
from fusetune.desired.reset import reset, reset_all
from fusetune.desired.sysctl import forget_persisted
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
    lines = []
    mount = target(host, name) if name else None
    if mount:
        changes = reset(host, mount, dry_run=dry_run)
        if not dry_run:
            remove_left_behind(host, mount, 0.5)
        changes += release(host, mount, dry_run=dry_run)
    else:
        changes = reset(host, None, dry_run=dry_run) if name else reset_all(host, dry_run=dry_run)
        lines = forget_persisted(host, dry_run=dry_run)
    present(reset_changes([*changes, *lines], dry_run), as_json)
