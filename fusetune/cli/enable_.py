# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a service use the tuned libfuse3 or the module fusetuned."""

import click

from fusetune.cli.common import dry_run_option, json_option, pass_host
from fusetune.cli.completion import options_option, services
from fusetune.cli.lib_ import change_file
from fusetune.host import Host
from fusetune.intercept.service import enable

EXAMPLES = (
    (
        "Let a service mount with the module from its next start",
        "enable mergerfs.service -o tuned",
    ),
)


@click.command("enable", help=__doc__)
@click.argument("unit", shell_complete=services)
@options_option
@dry_run_option
@json_option
@pass_host
def command(host: Host, unit: str, options: str, dry_run: bool, as_json: bool) -> None:
    change_file(host, enable(host, unit, options), dry_run, as_json)
