# SPDX-License-Identifier: GPL-2.0-or-later
"""``fusetune bench``."""

import click

from fusetune.bench import Budget
from fusetune.cli import COMMANDS
from fusetune.cli.common import (
    ProgressLine,
    json_option,
    measuring_options,
    pass_host,
    present,
    refuse_host,
)
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.mounts import find
from fusetune.report.objects import bench_object
from fusetune.workloads import chosen


@click.command("bench", help=COMMANDS["bench"])
@click.argument("name", metavar="M", required=False)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure what FUSE can do on this host at best: mirrorfs over tmpfs, stock, tuned and "
    "passed through, and tmpfs itself; with M, how far M is from it.",
)
@measuring_options
@json_option
@pass_host
def command(
    host: Host,
    name: str | None,
    calibrate: bool,
    names: tuple[str, ...],
    budget: float,
    budget_bytes: int,
    size: int | None,
    as_json: bool,
) -> None:
    workloads = chosen(names)
    limits = Budget(budget, budget_bytes)
    if not (name or calibrate):
        raise UsageError("give a mount, or --calibrate: fusetune bench M")
    refuse_host(name or "")
    mount = find(host, name) if name else None
    with ProgressLine(budget) as progress:
        if calibrate or not mount:
            from fusetune.calibrate import calibrate as measure_all

            series = measure_all(host, mount, workloads, limits, size=size, progress=progress)
        else:
            from fusetune.measure import measure

            series = measure(
                host, {mount.path: mount}, workloads, limits, size=size, progress=progress
            )
    document = bench_object(series)
    present(document, as_json)
