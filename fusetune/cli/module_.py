# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the tuned kernel modules; build, load or unload one."""

import shlex
import subprocess

import click

from fusetune.cli.common import dry_run_option, json_option, pass_host, present
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.kmod import actions, state
from fusetune.kmod.kinds import KINDS, Words, named, run_program
from fusetune.report.documents.modules import module_report

EXAMPLES = (
    ("Is a tuned module installed, loaded and current?", "module status"),
    ("Load it", "module load fusetuned"),
)

_ACTIONS = ("status", "build", "load", "unload")


def run_told(words: Words) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; announce dkms, which is silent while it compiles."""
    if words[0] == "dkms":
        click.echo(f"fusetune: running {shlex.join(words)}", err=True)
    return run_program(words)


@click.command("module", help=__doc__)
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("name", metavar="[MODULE]", required=False)
@click.option(
    "--kernel", "-k", metavar="RELEASE", help="Build for this kernel instead of the running one."
)
@dry_run_option
@json_option
@pass_host
def command(
    host: Host, action: str, name: str | None, kernel: str | None, dry_run: bool, as_json: bool
) -> None:
    if kernel and action != "build":
        raise UsageError(
            "--kernel applies to build only; load and unload act on the running kernel"
        )
    chosen = named(name) if name or action == "status" else KINDS[:1]
    match action:
        case "build":
            report = actions.build(host, chosen, kernel, dry_run=dry_run, run=run_told)
        case "load":
            report = actions.load(host, chosen, dry_run=dry_run)
        case "unload":
            report = actions.unload(host, chosen, dry_run=dry_run)
        case _:
            report = state.status(host, chosen)
    present(module_report(report, dry_run and action != "status"), as_json)
