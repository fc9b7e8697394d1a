# SPDX-License-Identifier: GPL-2.0-or-later
"""``fusetune list``."""

import click

from fusetune.changes.state import is_tuned, values_now
from fusetune.cli import COMMANDS
from fusetune.cli.common import json_option, pass_host_of_mounts, present
from fusetune.host import Host
from fusetune.mounts.discover import discover
from fusetune.report.documents import list_object


@click.command("list", help=COMMANDS["list"])
@json_option
@pass_host_of_mounts
def command(host: Host, as_json: bool) -> None:
    values = [(mount, values_now(host, mount)) for mount in discover(host)]
    document = list_object([(mount, now, is_tuned(host, mount, now)) for mount, now in values])
    present(document, as_json)
