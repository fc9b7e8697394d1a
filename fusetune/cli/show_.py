# SPDX-License-Identifier: GPL-2.0-or-later
"""``fusetune show``."""

from collections.abc import Mapping

import click

from fusetune.changes.journal import Journal
from fusetune.changes.state import knob_states
from fusetune.cli import COMMANDS
from fusetune.cli.common import json_option, pass_host_of_mounts, present, target, warn
from fusetune.desired.config import load
from fusetune.desired.resolve import Expected, Resolver
from fusetune.desired.results import saved_for
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.control import negotiated
from fusetune.report.documents import show_object


@click.command("show", help=COMMANDS["show"])
@click.argument("name", metavar="M|host")
@click.option("--long", "-l", is_flag=True, help="Add what each knob does, its risk and source.")
@json_option
@pass_host_of_mounts
def command(host: Host, name: str, long: bool, as_json: bool) -> None:
    mount = target(host, name)
    journal = saved = None
    expected: Mapping[str, Expected] = {}
    try:
        journal = Journal(host, mount)
    except FusetuneError as error:
        warn(str(error))
    try:
        if mount:
            saved = saved_for(host, mount)
            expected = Resolver(host, load(host)).expected(mount)
    except FusetuneError as error:
        warn(str(error))
    init = negotiated(host, mount) if mount else None
    document = show_object(mount, knob_states(host, mount, journal), saved, expected, init)
    present(document, as_json, long=long)
