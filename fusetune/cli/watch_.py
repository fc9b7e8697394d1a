# SPDX-License-Identifier: GPL-2.0-or-later
"""Set kept values on mounts as they appear; udev starts this."""

import click

from fusetune.cli.common import Duration, pass_host, warn
from fusetune.desired.put_back import put_back_all
from fusetune.desired.watch import Watch
from fusetune.host import Host

EXAMPLES = (
    ("Set values on new mounts until there was none for 5 minutes", "watch --idle 5m"),
    ("Set values until SIGTERM, and then put back those before", "watch --idle 0 --undo"),
)


@click.command("watch", help=__doc__)
@click.option(
    "--idle",
    type=Duration(zero=True),
    help="End after this time without a new mount; 0: never.  [default: idle_seconds of [watch], "
    "60s]",
)
@click.option(
    "--undo", is_flag=True, help="At the end, put back the values before those that it has set."
)
@pass_host
def command(host: Host, idle: float | None, undo: bool) -> None:
    Watch(host, warn, idle).run()
    if undo:
        put_back_all(host, warn)
