# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the options that 'advise' proposes into a mount's files."""

import click

from fusetune.cli.common import (
    dry_run_option,
    json_option,
    pass_host_of_mounts,
    present,
    refuse_host,
    workload_option,
)
from fusetune.cli.completion import mount_argument
from fusetune.errors import ExitCode
from fusetune.host import Host
from fusetune.mounts.discover import find
from fusetune.report.documents.remount import remounted

EXAMPLES = (
    ("Show what would be written into fstab or a drop-in", "remount --dry-run /mnt/x"),
    ("Write it, and remount", "remount --now /mnt/x"),
)


@click.command("remount", help=__doc__)
@mount_argument("M")
@workload_option("What the mount is used for", "all workloads")
@click.option(
    "--accept",
    multiple=True,
    metavar="NAME",
    help="Apply this conditional option; its condition must hold; may be repeated.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Apply no other options than this one; may be repeated.",
)
@click.option("--now", is_flag=True, help="Remount now, unless the mount is in use.")
@dry_run_option
@json_option
@pass_host_of_mounts
def command(
    host: Host,
    name: str,
    names: tuple[str, ...],
    accept: tuple[str, ...],
    only: tuple[str, ...],
    now: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    from fusetune.bench.workloads import members
    from fusetune.desired.remount import Request, remount

    refuse_host(name)
    request = Request(members(names), accept, now, only)

    def tell(line: str) -> None:
        click.echo(f"fusetune: {line}", err=True)

    found = remount(host, find(host, name), request, dry_run=dry_run, tell=tell)
    present(remounted(found, dry_run), as_json)
    some = found.changes or found.pending or found.remounted
    return ExitCode.DONE if some else ExitCode.NOTHING_BETTER
