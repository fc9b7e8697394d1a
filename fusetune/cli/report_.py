# SPDX-License-Identifier: GPL-2.0-or-later
"""``fusetune report``."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import click

from fusetune.cli import COMMANDS
from fusetune.cli.common import json_option, pass_host_of_mounts, refuse_host
from fusetune.files import write_whole
from fusetune.host import Host
from fusetune.report.documents import report_object
from fusetune.report.inventory import take_inventory


@click.command("report", help=COMMANDS["report"])
@click.argument("name", metavar="[M]", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "prometheus"]),
    default="text",
    show_default=True,
    help="Format of the report; prometheus is for node_exporter's textfile collector.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Replace this file, whole or not at all, instead of printing.",
)
@json_option
@pass_host_of_mounts
def command(host: Host, name: str | None, form: str, output: Path | None, as_json: bool) -> None:
    refuse_host(name or "")
    document = report_object(take_inventory(host, name))
    if as_json or form == "json":
        text = json.dumps(document, indent=2) + "\n"
    elif form == "prometheus":
        from fusetune.report.prometheus import metrics

        text = metrics(document)
    else:
        from fusetune.report.text import print_report

        with redirect_stdout(io.StringIO()) as printed:
            print_report(document)
        text = printed.getvalue()
    if output:
        write_whole(output, text)
    else:
        click.echo(text, nl=False)
