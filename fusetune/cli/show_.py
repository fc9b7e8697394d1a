# SPDX-License-Identifier: GPL-2.0-or-later
"""Show what can be tuned on a mount, or on the host."""

import click

from fusetune.cli.common import browse, json_option, pass_host_of_mounts, target, warn
from fusetune.cli.completion import mount_argument
from fusetune.desired.inspect import inspect_one
from fusetune.host import Host
from fusetune.mounts.control import negotiated
from fusetune.report.documents.show import shown

EXAMPLES = (
    ("What can be tuned on a mount, and what each knob does", "show --long /mnt/x"),
    ("The same for the host", "show host"),
)


@click.command("show", help=__doc__)
@mount_argument("M|host")
@click.option(
    "--long", "-l", is_flag=True, help="Also show what each knob does, its risk and source."
)
@json_option
@pass_host_of_mounts
def command(host: Host, name: str, long: bool, as_json: bool) -> None:
    mount = target(host, name)
    found = inspect_one(host, mount)
    for problem in found.problems:
        warn(problem)
    init = negotiated(host, mount) if mount else None
    document = shown(mount, found.states, found.saved, found.expected, init)
    browse(document, as_json, long=long)
