# SPDX-License-Identifier: GPL-2.0-or-later
"""``fusetune set``."""

import click

from fusetune.apply import set_knobs
from fusetune.cli import COMMANDS
from fusetune.cli.common import (
    allow_owner_option,
    dry_run_option,
    json_option,
    pass_host,
    present,
    target,
)
from fusetune.host import Host
from fusetune.knobs import Scope, parse_assignments
from fusetune.policy import parse_owners
from fusetune.report.objects import changes_object


@click.command("set", help=COMMANDS["set"])
@click.argument("name", metavar="M|host")
@click.argument("words", metavar="KNOB=VALUE...", nargs=-1, required=True)
@allow_owner_option
@click.option(
    "--force",
    is_flag=True,
    help="Let tuned mounts together keep more dirty memory than max_dirty_percent.",
)
@dry_run_option
@json_option
@pass_host
def command(
    host: Host,
    name: str,
    words: tuple[str, ...],
    owners: tuple[str, ...],
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    mount = target(host, name)
    values = parse_assignments(words, Scope.MOUNT if mount else Scope.HOST)
    allowed, room = parse_owners(owners), None
    if mount:
        from fusetune.kept import bounds_of_set

        configured, room = bounds_of_set(host, mount, values, force=force)
        allowed |= configured
    changes = set_knobs(host, mount, values, allowed, room, dry_run=dry_run)
    document = changes_object("set", changes, dry_run)
    present(document, as_json)
