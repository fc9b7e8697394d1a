# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure a mount, or the best that FUSE can do on this host."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fusetune.bench.papers.catalogue import PAPERS
from fusetune.bench.spending import Budget
from fusetune.bench.subject import on_subject
from fusetune.bench.workloads import chosen
from fusetune.cli.common import (
    ProgressLine,
    budget_of,
    draw,
    files_options,
    given,
    json_option,
    measuring_options,
    pass_host_of_mounts,
    plot_option,
    present,
    refuse_host,
    tell_profile,
)
from fusetune.cli.completion import mount_argument
from fusetune.desired.profiles import refuse_unknown, sets_for
from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from fusetune.report.documents.bench import bench_result
from fusetune.report.documents.papers import suite_result

EXAMPLES = (
    ("How fast does a mount read?", "bench -w seq-read -w rand-read /mnt/x"),
    ("How fast can FUSE be on this host?", "bench --calibrate"),
)


@click.command("bench", help=__doc__)
@mount_argument("[M]", required=False)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure the best that FUSE can do on this host: mirrorfs over tmpfs with the stock "
    "module, with the tuned module and in passthrough mode, and tmpfs itself; with M, "
    "compare M with these.",
)
@click.option(
    "--suite",
    type=click.Choice(["published"]),
    help="Repeat the measurements of published papers on mirrorfs over tmpfs or, where possible, "
    "on M. --budget applies to each paper.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="PAPER",
    help=f"Measure only this paper of the suite: {', '.join(PAPERS)}; may be repeated.",
)
@measuring_options
@files_options
@plot_option("Also draw the figures as bars, as an SVG file.")
@json_option
@pass_host_of_mounts
def command(
    host: Host,
    name: str | None,
    calibrate: bool,
    suite: str | None,
    only: tuple[str, ...],
    names: tuple[str, ...],
    files: tuple[str, ...],
    size: int | None,
    plot: Path | None,
    as_json: bool,
    **budget: Any,
) -> None:
    _refuse_contradictions(name, calibrate, suite, only, names, files)
    refuse_unknown(names)
    limits = budget_of(budget)
    refuse_host(name or "")
    mount = find(host, name) if name else None
    sets = sets_for(host, mount, names)
    tell_profile(sets)
    if suite:
        _suite(host, mount, only, limits, size, as_json)
        return
    line = ProgressLine(limits.seconds)
    with line as progress:
        if calibrate or not mount:
            from fusetune.bench.calibrate import calibrate as measure_all

            series = measure_all(
                host, mount, chosen(names, sets), limits, size=size, progress=progress
            )
        else:
            from fusetune.bench.measure import measure

            how: Mapping[str, Any] = {"size": size, "progress": progress}
            series = on_subject(
                host,
                mount,
                names,
                files,
                lambda workloads, reading: measure(
                    host, {mount.path: mount}, workloads, limits, reading=reading, **how
                ),
                size=size,
                tell=line.tell,
                sets=sets,
            )
    document = bench_result(series)
    present(document, as_json)
    draw(document, plot)


def _refuse_contradictions(
    name: str | None,
    calibrate: bool,
    suite: str | None,
    only: tuple[str, ...],
    names: tuple[str, ...],
    files: tuple[str, ...],
) -> None:
    if files and (calibrate or suite or not name):
        raise UsageError(
            "--files needs a mount, and cannot be combined with --calibrate or --suite"
        )
    if suite and (calibrate or names):
        raise UsageError("--suite cannot be combined with --calibrate or --workload")
    if suite and given("plot"):
        raise UsageError("--plot cannot draw the tables of --suite; leave it out")
    if only and not suite:
        raise UsageError("--only needs --suite published")
    if not (name or calibrate or suite):
        raise UsageError("give a mount, or --calibrate: fusetune bench M")


def _suite(
    host: Host,
    mount: Mount | None,
    only: tuple[str, ...],
    each: Budget,
    size: int | None,
    as_json: bool,
) -> None:
    from fusetune.bench.papers.run import chosen_papers, run

    works = chosen_papers(only)
    limits = Budget(each.seconds * len(works), each.bytes_written * len(works))
    with ProgressLine(limits.seconds) as progress:
        results = run(host, mount, works, limits, size=size, progress=progress)
    present(suite_result(results), as_json)
