# SPDX-License-Identifier: GPL-2.0-or-later
"""Explain why each knob of a mount, or of the host, has its value."""

import click

from fusetune.cli.common import browse, json_option, pass_host_of_mounts, target, warn
from fusetune.cli.completion import knob_names, mount_argument
from fusetune.desired.history import history_of
from fusetune.desired.inspect import inspect_one
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.report.documents.explain import explanation
from fusetune.report.explain import explain

EXAMPLES = (("Why is the readahead of this mount so large?", "explain /mnt/x read_ahead_kb"),)


@click.command("explain", help=__doc__)
@mount_argument("M|host")
@click.argument("knobs", metavar="[KNOB...]", nargs=-1, shell_complete=knob_names)
@json_option
@pass_host_of_mounts
def command(host: Host, name: str, knobs: tuple[str, ...], as_json: bool) -> None:
    mount = target(host, name)
    found, history = inspect_one(host, mount), history_of(host, mount)
    known = [state.knob.name for state in found.states]
    if wrong := [knob for knob in knobs if knob not in known]:
        raise UsageError(f"{wrong[0]}: no such knob here; give one of {', '.join(known)}")
    for problem in (*found.problems, *history.problems):
        warn(problem)
    explained = explain(mount, found, history)
    wanted = [one for one in explained if not knobs or one.state.knob.name in knobs]
    browse(explanation(mount, wanted), as_json)
