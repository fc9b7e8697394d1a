# SPDX-License-Identifier: GPL-2.0-or-later
"""``fusetune doctor``."""

import click

from fusetune.cli import COMMANDS
from fusetune.cli.common import json_option, pass_host, present
from fusetune.doctor import diagnose
from fusetune.errors import ExitCode
from fusetune.host import Host
from fusetune.report.objects import doctor_object


@click.command("doctor", help=COMMANDS["doctor"])
@click.option("--strict", is_flag=True, help="Exit with 3 if anything was found.")
@json_option
@pass_host
def command(host: Host, strict: bool, as_json: bool) -> int:
    diagnosis = diagnose(host)
    document = doctor_object(diagnosis)
    present(document, as_json)
    return ExitCode.DIFFERENCE if strict and diagnosis.findings else ExitCode.DONE
