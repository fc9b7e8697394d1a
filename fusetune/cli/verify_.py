# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the values of mounts with those kept for them."""

import click

from fusetune.cli.common import browse, json_option, pass_host_of_mounts, refuse_host, warn
from fusetune.cli.completion import mount_argument
from fusetune.desired.config import load
from fusetune.desired.drift import verify
from fusetune.desired.resolve import Resolver
from fusetune.errors import ExitCode
from fusetune.host import Host
from fusetune.mounts.discover import discover, find
from fusetune.report.doctor import ages
from fusetune.report.documents.verify import verification

EXAMPLES = (("Does every mount have the values that are kept for it?", "verify"),)


@click.command("verify", help=__doc__)
@mount_argument("[M]", required=False)
@json_option
@pass_host_of_mounts
def command(host: Host, name: str | None, as_json: bool) -> int:
    refuse_host(name or "")
    resolver = Resolver(host, load(host))
    verified = verify(host, resolver, [find(host, name)] if name is not None else discover(host))
    document = verification(verified, ages(host))
    browse(document, as_json)
    for problem in document.problems:
        warn(problem)
    if document.differences:
        return ExitCode.DIFFERENCE
    return ExitCode.FAILED if document.problems else ExitCode.DONE
