# SPDX-License-Identifier: GPL-2.0-or-later
"""Show every FUSE mount with its values."""

import click

from fusetune.changes.state import is_tuned, values_now
from fusetune.cli.common import browse, json_option, pass_host_of_mounts
from fusetune.host import Host
from fusetune.mounts.discover import discover
from fusetune.mounts.stack import Stacks
from fusetune.report.documents.listing import listing

EXAMPLES = (
    ("Every mount with the mounts that it lies on", "list --tree"),
    ("The same for a script", "list --json"),
)


@click.command("list", help=__doc__)
@click.option("--tree", is_flag=True, help="Show below each mount the mounts that it lies on.")
@json_option
@pass_host_of_mounts
def command(host: Host, tree: bool, as_json: bool) -> None:
    mounts = discover(host)
    values = [(mount, values_now(host, mount)) for mount in mounts]
    document = listing(
        [(mount, now, is_tuned(host, mount, now)) for mount, now in values],
        Stacks(host, mounts) if tree else None,
    )
    browse(document, as_json)
