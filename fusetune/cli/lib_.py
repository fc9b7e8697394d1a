# SPDX-License-Identifier: GPL-2.0-or-later
"""Show who uses the tuned libfuse3; enable it for the whole host."""

import click

from fusetune.cli.common import browse, dry_run_option, json_option, pass_host, present, warn
from fusetune.cli.completion import options_option, services
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.intercept import service
from fusetune.libfuse.installed import ages, directories
from fusetune.libfuse.switch import FileChange, carry_out, disable, enable
from fusetune.libfuse.users import libfuse_users
from fusetune.report.documents.lib import lib_change, lib_status

EXAMPLES = (("Which libfuse does each server use?", "lib status"),)

_unit = click.argument("unit", required=False, shell_complete=services)
_system = click.option("--system", is_flag=True, help="Apply to every program of the host.")


@click.group("lib", help=__doc__)
def command() -> None:
    pass


def _old_name(unit: str | None, system: bool, name: str) -> str | None:
    if system == bool(unit):
        raise UsageError("give the name of a service, or --system for the whole host")
    if unit:
        warn(f"'fusetune {name} {unit}' replaces this command")
    return unit


def change_file(host: Host, change: FileChange, dry_run: bool, as_json: bool) -> None:
    """Carry out a change unless ``dry_run``, and print it."""
    if not dry_run:
        carry_out(host, change)
    present(lib_change(change, dry_run), as_json)


@command.command("status")
@json_option
@pass_host
def status(host: Host, as_json: bool) -> None:
    """Show which libfuse each running server uses."""
    browse(lib_status(directories(host), libfuse_users(host), ages(host)), as_json)


@command.command("enable")
@_unit
@_system
@options_option
@dry_run_option
@json_option
@pass_host
def enable_(
    host: Host, unit: str | None, system: bool, options: str, dry_run: bool, as_json: bool
) -> None:
    """Make the whole host use the tuned libfuse3; with UNIT, an old name of 'enable'.

    With --system, every program that uses libfuse3 loads the tuned one from its next start on. The
    distribution's stays installed, and 'lib disable --system' returns to it.
    """
    named = _old_name(unit, system, "enable")
    change = service.enable(host, named, options) if named else enable(host, None, options)
    change_file(host, change, dry_run, as_json)


@command.command("disable")
@_unit
@_system
@dry_run_option
@json_option
@pass_host
def disable_(host: Host, unit: str | None, system: bool, dry_run: bool, as_json: bool) -> None:
    """Undo 'lib enable'."""
    named = _old_name(unit, system, "disable")
    change = service.disable(host, named) if named else disable(host, None)
    change_file(host, change, dry_run, as_json)
