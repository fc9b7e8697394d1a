# SPDX-License-Identifier: GPL-2.0-or-later
"""``fusetune run``."""

import click

from fusetune.cli import COMMANDS
from fusetune.cli.common import pass_host, warn
from fusetune.host import Host
from fusetune.library import run


# What follows the program's name is the program's.
@click.command("run", help=COMMANDS["run"], context_settings={"allow_interspersed_args": False})
@click.option("-o", "options", default="", metavar="OPTIONS", help="Options of the tuned libfuse.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True)
@pass_host
def command(host: Host, options: str, words: tuple[str, ...]) -> None:
    run(host, words, options, warn)
