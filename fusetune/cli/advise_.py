# SPDX-License-Identifier: GPL-2.0-or-later
"""Show which options a server should get at its next mount."""

import click

from fusetune.cli.common import json_option, pass_host_of_mounts, refuse_host, workload_option
from fusetune.errors import ExitCode
from fusetune.host import Host
from fusetune.report.advice import FORMATS, advise_on


@click.command("advise", help=__doc__)
@click.argument("name", metavar="M")
@workload_option("What the mount is used for", "all of them")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="text for people, json for programs, diff for patch -p1 -d /.",
)
@json_option
@pass_host_of_mounts
def command(host: Host, name: str, names: tuple[str, ...], form: str, as_json: bool) -> int:
    from fusetune.bench.workloads import WORKLOADS, picked

    refuse_host(name)
    picked("workload", WORKLOADS, names)
    advice = advise_on(host, name, names)
    form = "json" if as_json else form
    click.echo(FORMATS[form](advice), nl=False)
    return ExitCode.DONE if advice.changes or advice.recipe is None else ExitCode.NOTHING_BETTER
