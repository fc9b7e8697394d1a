# SPDX-License-Identifier: GPL-2.0-or-later
"""Set the kept values on new mounts; started by udev."""

import click

from fusetune.cli.common import Duration, pass_host, warn
from fusetune.desired.watch import Watch
from fusetune.host import Host

EXAMPLES = (("Set values on new mounts, and end after 5 minutes without one", "watch --idle 5m"),)


@click.command("watch", help=__doc__)
@click.option(
    "--idle",
    type=Duration(),
    help="Exit after this time without a new mount.  [default: idle_seconds of [watch], 60s]",
)
@pass_host
def command(host: Host, idle: float | None) -> None:
    Watch(host, warn, idle).run()
