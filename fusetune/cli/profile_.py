# SPDX-License-Identifier: GPL-2.0-or-later
"""Observe a mount's real traffic, and show what limits it."""

import click

from fusetune.changes.state import values_now
from fusetune.cli.common import (
    Duration,
    ProgressLine,
    browse,
    json_option,
    pass_host_of_mounts,
    refuse_host,
)
from fusetune.cli.completion import mount_argument
from fusetune.desired.profiles import save_profile
from fusetune.host import Host
from fusetune.mounts.discover import find
from fusetune.profile import watch
from fusetune.profile.shares import shares_of
from fusetune.report.documents.profile import profiled

EXAMPLES = (
    ("Observe a mount for five minutes", "profile --for 5m /mnt/x"),
    ("Then tune it for that traffic", "auto -w profile /mnt/x"),
)


@click.command("profile", help=__doc__)
@mount_argument("M")
@click.option(
    "--for",
    "seconds",
    type=Duration(),
    default=60.0,
    help="How long to observe; Ctrl-C ends it early and prints the results so far.  [default: 60s]",
)
@json_option
@pass_host_of_mounts
def command(host: Host, name: str, seconds: float, as_json: bool) -> None:
    refuse_host(name)
    mount = find(host, name)
    values = values_now(host, mount)
    with ProgressLine(seconds) as progress:
        traffic = watch(host, mount, seconds, progress)
    shares = shares_of(traffic)
    try:
        if shares:
            save_profile(host, mount, shares, traffic.seconds)
    finally:  # what was observed is shown even if the disk is full
        browse(profiled(mount, traffic, values, shares), as_json)
