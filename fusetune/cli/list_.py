# SPDX-License-Identifier: GPL-2.0-or-later
"""Show every FUSE mount with its values."""

import click

from fusetune.changes.state import is_tuned, values_now
from fusetune.cli.common import json_option, pass_host_of_mounts, present
from fusetune.host import Host
from fusetune.mounts.discover import discover
from fusetune.report.documents.listing import listing


@click.command("list", help=__doc__)
@json_option
@pass_host_of_mounts
def command(host: Host, as_json: bool) -> None:
    values = [(mount, values_now(host, mount)) for mount in discover(host)]
    document = listing([(mount, now, is_tuned(host, mount, now)) for mount, now in values])
    present(document, as_json)
