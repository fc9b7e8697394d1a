# SPDX-License-Identifier: GPL-2.0-or-later
"""Show which options a server should get at its next mount."""

import sys
from functools import partial

import click

from fusetune.cli.common import (
    ProgressLine,
    browse,
    budget_options,
    json_option,
    pass_host_of_mounts,
    refuse_host,
    workload_option,
)
from fusetune.cli.completion import mount_argument
from fusetune.cli.pager import page
from fusetune.errors import ExitCode
from fusetune.host import Host
from fusetune.report.advice import FORMATS, advise_on
from fusetune.report.documents.advice import Advised

EXAMPLES = (
    ("What would make small writes faster?", "advise -w small-write /mnt/x"),
    ("Which mount of a stack is the slowest?", "advise --measure-layers /mnt/x"),
)


@click.command("advise", help=__doc__)
@mount_argument("M")
@workload_option("What the mount is used for", "all workloads")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="Output format: text for people, json for programs, diff as input of patch -p1 -d /.",
)
@click.option(
    "--measure-layers",
    is_flag=True,
    help="Measure M and each FUSE mount that it lies on, and name the one that limits the speed. "
    "The default workload is then mixed.",
)
@budget_options("--measure-layers")
@json_option
@pass_host_of_mounts
def command(
    host: Host,
    name: str,
    names: tuple[str, ...],
    form: str,
    measure_layers: bool,
    budget: float,
    budget_bytes: int,
    size: int | None,
    as_json: bool,
) -> int:
    from fusetune.bench.workloads import members

    refuse_host(name)
    wanted = members(names)
    if measure_layers:
        advice = _measured(host, name, wanted, budget, budget_bytes, size)
    else:
        advice = advise_on(host, name, wanted)
    form = "json" if as_json else form
    if form == "text":
        browse(advice, as_json=False)
    elif form == "diff" and not sys.stdout.isatty():
        # patch(1) compares the bytes of the file, also those that are not UTF-8.
        click.echo(advice.diffs().encode("utf-8", "surrogateescape"), nl=False)
    else:
        page(FORMATS[form](advice))
    return ExitCode.DONE if advice.has_advice else ExitCode.NOTHING_BETTER


def _measured(
    host: Host,
    name: str,
    names: tuple[str, ...],
    seconds: float,
    bytes_written: int,
    size: int | None,
) -> Advised:
    from fusetune.bench.layers import measure_layers
    from fusetune.bench.spending import Budget
    from fusetune.bench.workloads import chosen

    with ProgressLine(seconds) as progress:
        measure = partial(
            measure_layers,
            host,
            workloads=chosen(names),
            budget=Budget(seconds, bytes_written),
            size=size,
            progress=progress,
        )
        return advise_on(host, name, names, measure)
