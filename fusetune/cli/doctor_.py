# SPDX-License-Identifier: GPL-2.0-or-later
"""Show what limits FUSE on this host, and how to remedy it."""

from pathlib import Path

import click

from fusetune.cli.common import browse, json_option, pass_host_of_mounts
from fusetune.errors import ExitCode
from fusetune.host import Host
from fusetune.report.doctor import diagnose
from fusetune.report.documents.diagnosis import doctor_report

EXAMPLES = (("What limits FUSE on this host?", "doctor"),)


@click.command("doctor", help=__doc__)
@click.option("--strict", is_flag=True, help="Exit with status 3 if anything was found.")
@click.option(
    "--backing",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Also check for fragmented files in this backing directory of a server (FIEMAP).",
)
@json_option
@pass_host_of_mounts
def command(host: Host, strict: bool, backing: Path | None, as_json: bool) -> int:
    diagnosis = diagnose(host, backing=backing and backing.absolute())
    browse(doctor_report(diagnosis), as_json)
    return ExitCode.DIFFERENCE if strict and diagnosis.findings else ExitCode.DONE
