# SPDX-License-Identifier: GPL-2.0-or-later
"""``fusetune set``."""

import click

from fusetune.changes.apply import Change, set_knobs
from fusetune.changes.policy import parse_owners
from fusetune.cli import COMMANDS
from fusetune.cli.common import (
    allow_owner_option,
    dry_run_option,
    json_option,
    pass_host_of_mounts,
    present,
    target,
    warn,
)
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.knobs import Knob, Scope, parse_assignments
from fusetune.mounts.mount import Mount
from fusetune.report.documents import changes_object


@click.command("set", help=COMMANDS["set"])
@click.argument("name", metavar="M|host")
@click.argument("words", metavar="KNOB=VALUE...", nargs=-1)
@allow_owner_option
@click.option(
    "--force",
    is_flag=True,
    help="Let tuned mounts together keep more dirty memory than max_dirty_percent.",
)
@click.option("--persist", is_flag=True, help="Keep the host's values for later boots, too.")
@click.option(
    "--for",
    "options",
    metavar="OPTIONS",
    help="Raise the host's limits to what a mount with these options needs.",
)
@click.option(
    "--for-unit", "unit", metavar="UNIT", help="As --for, for the mount that a service makes."
)
@dry_run_option
@json_option
@pass_host_of_mounts
def command(
    host: Host,
    name: str,
    words: tuple[str, ...],
    owners: tuple[str, ...],
    force: bool,
    persist: bool,
    options: str | None,
    unit: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    mount = target(host, name)
    raising = options is not None or unit is not None
    if raising == bool(words):
        raise UsageError("give KNOB=VALUE, or for the host --for OPTIONS or --for-unit UNIT")
    if raising and persist:
        raise UsageError("--persist needs the values: fusetune set host --persist KNOB=VALUE")
    if mount and (raising or persist):
        raise UsageError("--for, --for-unit and --persist are for the host: fusetune set host")
    if raising:
        changes = _raise(host, options or "", unit, dry_run)
        present(changes_object("set", changes, dry_run), as_json)
        return
    values = parse_assignments(words, Scope.MOUNT if mount else Scope.HOST)
    lines = []
    if persist:
        from fusetune.desired.sysctl import persist as write

        lines = write(host, values, dry_run=dry_run)
    changes = _set(host, mount, values, owners, force, dry_run)
    present(changes_object("set", [*changes, *lines], dry_run), as_json)


def _set(
    host: Host,
    mount: Mount | None,
    values: dict[Knob, int],
    owners: tuple[str, ...],
    force: bool,
    dry_run: bool,
) -> list[Change]:
    allowed, room = parse_owners(owners), None
    if mount:
        from fusetune.desired.resolve import bounds_of_set

        configured, room = bounds_of_set(host, mount, values, force=force)
        allowed |= configured
    return set_knobs(host, mount, values, allowed, room, dry_run=dry_run)


def _raise(host: Host, options: str, unit: str | None, dry_run: bool) -> list[Change]:
    from fusetune.desired.config import load
    from fusetune.desired.host_limits import of_command, of_options, raise_limits, unit_command

    config = load(host)
    needs = of_options(options)
    if unit is not None:
        needs |= of_command(host, config, unit_command(unit))
    raised = raise_limits(host, needs, config.settings, dry_run=dry_run)
    for text in raised.left:
        warn(text)
    return raised.changes
