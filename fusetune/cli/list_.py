# SPDX-License-Identifier: GPL-2.0-or-later
"""Show every FUSE mount with its values."""

from collections.abc import Callable

import click

from fusetune.changes.policy import excluded_reason
from fusetune.changes.state import is_tuned, values_now
from fusetune.cli.common import browse, json_option, pass_host_of_mounts, warn
from fusetune.desired.config import load
from fusetune.desired.resolve import Resolver
from fusetune.host import Host
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.mounts.stack import Stacks
from fusetune.report.documents.listing import listing
from fusetune.toml.file import ConfigError

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
    why = _left_alone_reason(host)
    document = listing(
        [(mount, now, is_tuned(host, mount, now), why(mount)) for mount, now in values],
        Stacks(host, mounts) if tree else None,
    )
    browse(document, as_json)


def _left_alone_reason(host: Host) -> Callable[[Mount], str | None]:
    """Return why a mount is left alone; without the configuration if that is invalid."""
    try:
        return Resolver(host, load(host)).left_alone_reason
    except ConfigError as error:
        warn(str(error))
        return excluded_reason
