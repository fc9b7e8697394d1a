# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a FUSE server with the tuned libfuse3 or the module fusetuned."""

import os

import click

from fusetune.cli.common import pass_host, warn
from fusetune.cli.completion import options_option
from fusetune.desired.host_limits import prepare
from fusetune.host import Host
from fusetune.intercept import way
from fusetune.intercept.options import REQUIRED, library_options, wants_module
from fusetune.libfuse.installed import environment, run
from fusetune.libfuse.options import OPTIONS_VARIABLE

EXAMPLES = (
    (
        "Mount with a writeback cache, although the server does not offer one",
        "run -o tuned,writeback_cache -- rclone mount remote: /mnt",
    ),
    (
        "Use requests of up to 4 MiB (Linux 6.13 and later)",
        "run -o max_pages=1024 -- sshfs host: /mnt",
    ),
)


# Options after the program's name belong to the program.
@click.command("run", help=__doc__, context_settings={"allow_interspersed_args": False})
@options_option
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True)
@pass_host
def command(host: Host, options: str, words: tuple[str, ...]) -> None:
    intercepted = wants_module(options) and not way.by_library(host, words[0], options)
    if REQUIRED in options.split(","):
        way.check_module(host)
    # Both must fail before a limit is raised.
    if intercepted:
        way.prefix(host, options)
    else:
        options = library_options(options)
        environment(host, options, {})
    given = ",".join(filter(None, (os.environ.get(OPTIONS_VARIABLE, ""), options)))
    if problem := prepare(host, words, given):
        warn(problem)
    if intercepted:
        way.run(host, words, options)
    run(host, words, options, warn)
