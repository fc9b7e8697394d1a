# SPDX-License-Identifier: GPL-2.0-or-later
"""Show live what each mount does, and what limits it."""

import click

from fusetune.cli.common import Duration, pass_host_of_mounts, refuse_host, warn
from fusetune.cli.completion import mount_argument
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.mounts.discover import find
from fusetune.text import printable
from fusetune.top.loop import LEAST_INTERVAL, run

EXAMPLES = (
    ("Watch all mounts, one line each, until q is pressed", "top"),
    ("Watch the requests of one mount, ten times", "top -i 1 -n 10 /mnt/x"),
)


@click.command("top", help=__doc__)
@mount_argument("[M]", required=False)
@click.option(
    "--interval",
    "-i",
    type=Duration(),
    default=2.0,
    help="Time between frames.  [default: 2s]",
)
@click.option(
    "--count",
    "-n",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Exit after this many frames.  [default: at q, Ctrl-C or SIGTERM]",
)
@click.option(
    "--trace",
    is_flag=True,
    help="Let bpftrace count the requests of all mounts of the kernel's FUSE, up to 8, instead of "
    "only those of M.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line for each frame."
)
@pass_host_of_mounts
def command(
    host: Host, name: str | None, interval: float, count: int | None, trace: bool, as_json: bool
) -> None:
    refuse_host(name or "")
    if interval < LEAST_INTERVAL:
        raise UsageError(f"the interval must be at least {LEAST_INTERVAL:g} s")
    mount = find(host, name) if name is not None else None
    if run(host, mount, interval, count, trace=trace, as_json=as_json) and mount:
        warn(f"{printable(mount.path)} was unmounted")
