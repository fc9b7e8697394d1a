# SPDX-License-Identifier: GPL-2.0-or-later
"""Show what fusetune did to a mount, when, why and who ran it."""

import click

from fusetune.cli.common import HOST_TARGET, browse, json_option, pass_host_of_mounts, warn
from fusetune.cli.completion import mount_argument
from fusetune.desired.history import history_named, history_of
from fusetune.host import Host
from fusetune.report.documents.history import history_document

EXAMPLES = (("What was done to a mount, latest last", "history /mnt/x"),)


@click.command("history", help=__doc__)
@mount_argument("M|host")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="COUNT",
    help="Show at most this many of the latest entries.",
)
@json_option
@pass_host_of_mounts
def command(host: Host, name: str, count: int, as_json: bool) -> None:
    path, found = None, history_of(host, None)
    if name != HOST_TARGET:
        path, found = history_named(host, name)
    for problem in found.problems:
        warn(problem)
    browse(history_document(path, found, count), as_json)
