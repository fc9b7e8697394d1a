# SPDX-License-Identifier: GPL-2.0-or-later
"""Undo 'enable'."""

import click

from fusetune.cli.common import dry_run_option, json_option, pass_host
from fusetune.cli.completion import services
from fusetune.cli.lib_ import change_file
from fusetune.host import Host
from fusetune.intercept.service import disable

EXAMPLES = (
    ("Let a service mount without the module from its next start", "disable mergerfs.service"),
)


@click.command("disable", help=__doc__)
@click.argument("unit", shell_complete=services)
@dry_run_option
@json_option
@pass_host
def command(host: Host, unit: str, dry_run: bool, as_json: bool) -> None:
    change_file(host, disable(host, unit), dry_run, as_json)
