# SPDX-License-Identifier: GPL-2.0-or-later
"""Remove the values that are kept for a mount."""

import click

from fusetune.cli.common import (
    dry_run_option,
    json_option,
    pass_host_of_mounts,
    present,
    refuse_host,
)
from fusetune.cli.completion import mount_argument
from fusetune.desired.persist import forget_kept
from fusetune.host import Host
from fusetune.report.documents.kept import forgotten_files

EXAMPLES = (("Keep no values for later mounts of this file system", "forget /mnt/x"),)


@click.command("forget", help=__doc__)
@mount_argument("M")
@click.option(
    "--admin",
    is_flag=True,
    help="Also remove the values in sections for this path alone from fusetune.toml and mounts.d "
    "of /etc/fusetune.",
)
@dry_run_option
@json_option
@pass_host_of_mounts
def command(host: Host, name: str, admin: bool, dry_run: bool, as_json: bool) -> None:
    refuse_host(name)
    forgotten = forget_kept(host, name, admin=admin, dry_run=dry_run)
    present(forgotten_files(forgotten, dry_run), as_json)
