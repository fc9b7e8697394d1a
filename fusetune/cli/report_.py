# SPDX-License-Identifier: GPL-2.0-or-later
"""Report on every mount, for people and for monitoring."""

from pathlib import Path

import click

from fusetune.cli.common import browse, json_option, pass_host_of_mounts, refuse_host
from fusetune.cli.completion import mount_argument
from fusetune.cli.pager import page
from fusetune.files import write_whole
from fusetune.host import Host
from fusetune.report.documents.inventory import host_report
from fusetune.report.formats import FORMATS, written
from fusetune.report.inventory import take_inventory

EXAMPLES = (
    ("All mounts on one page for a browser", "report --format html --output fuse.html"),
    ("One mount for a ticket", "report --format markdown /mnt/x"),
)


@click.command("report", help=__doc__)
@mount_argument("[M]", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="Format of the report: "
    + ", ".join(f"{name} for {one.purpose}" for name, one in FORMATS.items())
    + ".",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Replace this file atomically instead of printing.",
)
@json_option
@pass_host_of_mounts
def command(host: Host, name: str | None, form: str, output: Path | None, as_json: bool) -> None:
    refuse_host(name or "")
    inventory = take_inventory(host, name)
    form = "json" if as_json else form
    if output:
        write_whole(output, written(inventory, form))
    elif form == "text":
        browse(host_report(inventory, measured=False), as_json=False)
    else:
        page(written(inventory, form))
