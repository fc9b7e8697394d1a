# SPDX-License-Identifier: GPL-2.0-or-later
"""Set the kept values on new mounts; started by udev."""

import click

from fusetune.cli.common import Duration, pass_host, warn
from fusetune.desired.put_back import put_back_all
from fusetune.desired.watch import Watch
from fusetune.host import Host

EXAMPLES = (
    ("Set values on new mounts, and end after 5 minutes without one", "watch --idle 5m"),
    ("Set values until SIGTERM, and then restore the earlier ones", "watch --idle 0 --undo"),
)


@click.command("watch", help=__doc__)
@click.option(
    "--idle",
    type=Duration(zero=True),
    help="Exit after this time without a new mount; 0: never.  [default: idle_seconds of [watch], "
    "60s]",
)
@click.option("--undo", is_flag=True, help="On exit, restore the earlier values.")
@pass_host
def command(host: Host, idle: float | None, undo: bool) -> None:
    Watch(host, warn, idle).run()
    if undo:
        put_back_all(host, warn)
