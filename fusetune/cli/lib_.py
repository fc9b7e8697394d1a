# SPDX-License-Identifier: GPL-2.0-or-later
"""Show who uses the tuned libfuse3; give it to a service or the host."""

import click

from fusetune.cli.common import dry_run_option, json_option, pass_host, present
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.libfuse.installed import ages, directories
from fusetune.libfuse.switch import FileChange, carry_out, disable, enable
from fusetune.libfuse.users import libfuse_users
from fusetune.report.documents.lib import lib_change, lib_status

_unit = click.argument("unit", required=False)
_system = click.option("--system", is_flag=True, help="Change this for every program of the host.")


@click.group("lib", help=__doc__)
def command() -> None:
    pass


def _target(unit: str | None, system: bool) -> str | None:
    if system == bool(unit):
        raise UsageError("this needs a service's name, or --system for the whole host")
    return unit


def _change(host: Host, change: FileChange, dry_run: bool, as_json: bool) -> None:
    if not dry_run:
        carry_out(host, change)
    present(lib_change(change, dry_run), as_json)


@command.command("status")
@json_option
@pass_host
def status(host: Host, as_json: bool) -> None:
    """Show which libfuse each running server uses."""
    present(lib_status(directories(host), libfuse_users(host), ages(host)), as_json)


@command.command("enable")
@_unit
@_system
@click.option("-o", "options", default="", metavar="OPTIONS", help="Options of the tuned libfuse.")
@dry_run_option
@json_option
@pass_host
def enable_(
    host: Host, unit: str | None, system: bool, options: str, dry_run: bool, as_json: bool
) -> None:
    """Give a service, or the whole host, the tuned libfuse.

    With --system every program that uses libfuse3 gets it in place of the distribution's when it
    starts next. The distribution's stays installed, and 'lib disable --system' returns to it.
    """
    _change(host, enable(host, _target(unit, system), options), dry_run, as_json)


@command.command("disable")
@_unit
@_system
@dry_run_option
@json_option
@pass_host
def disable_(host: Host, unit: str | None, system: bool, dry_run: bool, as_json: bool) -> None:
    """Undo 'lib enable'."""
    _change(host, disable(host, _target(unit, system)), dry_run, as_json)
