# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a FUSE server with the tuned libfuse3."""

import os

import click

from fusetune.cli.common import pass_host, warn
from fusetune.desired.host_limits import prepare
from fusetune.host import Host
from fusetune.libfuse.installed import environment, run
from fusetune.libfuse.options import OPTIONS_VARIABLE


# Options after the program's name are the program's.
@click.command("run", help=__doc__, context_settings={"allow_interspersed_args": False})
@click.option("-o", "options", default="", metavar="OPTIONS", help="Options of the tuned libfuse.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True)
@pass_host
def command(host: Host, options: str, words: tuple[str, ...]) -> None:
    environment(host, options, {})  # fails before a limit is raised
    given = ",".join(filter(None, (os.environ.get(OPTIONS_VARIABLE, ""), options)))
    if problem := prepare(host, words, given):
        warn(problem)
    run(host, words, options, warn)
