# SPDX-License-Identifier: GPL-2.0-or-later
"""``fusetune forget``."""

import click

from fusetune.cli import COMMANDS
from fusetune.cli.common import (
    admin_option,
    dry_run_option,
    json_option,
    pass_host_of_mounts,
    present,
    refuse_host,
)
from fusetune.desired.persist import forget_kept
from fusetune.host import Host
from fusetune.report.documents import kept_object


@click.command("forget", help=COMMANDS["forget"])
@click.argument("name", metavar="M")
@admin_option
@dry_run_option
@json_option
@pass_host_of_mounts
def command(host: Host, name: str, admin: bool, dry_run: bool, as_json: bool) -> None:
    refuse_host(name)
    forgotten = forget_kept(host, name, admin=admin, dry_run=dry_run)
    document = kept_object("forget", forgotten, dry_run)
    present(document, as_json)
