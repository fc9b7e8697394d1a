# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure a mount, choose the best values, set and save them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from fusetune.bench.latency import Target, aimed_at
from fusetune.bench.reading import Reading
from fusetune.bench.spending import Budget
from fusetune.bench.subject import on_subject
from fusetune.bench.workloads import Workload
from fusetune.changes.policy import parse_owners
from fusetune.cli.common import (
    Duration,
    ProgressLine,
    Size,
    allow_owner_option,
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
    spelt,
    tell_profile,
)
from fusetune.cli.completion import mount_argument
from fusetune.desired.config import load
from fusetune.desired.profiles import refuse_unknown, sets_for
from fusetune.desired.resolve import Resolver
from fusetune.errors import ExitCode, UsageError
from fusetune.host import Host
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from fusetune.recipes.load import Loaded, load_recipes
from fusetune.report.documents.auto import (
    AutoResult,
    auto_options,
    auto_result,
)
from fusetune.report.documents.auto_preview import AutoPreview, auto_preview
from fusetune.text import shell_word
from fusetune.tuner.auto import Outcome, auto, preview
from fusetune.tuner.auto_live import auto_live
from fusetune.tuner.costs import Limits
from fusetune.tuner.guards import GUARDS
from fusetune.tuner.live import WAITS
from fusetune.tuner.options import OptionsOutcome, prove_options

EXAMPLES = (
    ("Tune a mount for a mix of reads and writes, within a minute", "auto /mnt/x"),
    ("Tune it for films and music, within five minutes", "auto /mnt/x -w media --budget 5m"),
    ("Tune it for its own traffic, observed for an hour", "auto /mnt/x --live --for 1h"),
    (
        "Measure which options of its server help, and change nothing",
        "auto /mnt/x -w small-write --try-options",
    ),
)

#: The parameters that cannot be combined with --live, and why.
_NOT_LIVE = {
    **dict.fromkeys(("names", "target", "unguarded"), "generates no load"),
    **dict.fromkeys(("size", "budget_bytes"), "writes no files"),
    **dict.fromkeys(("files", "budget_read", "budget_requests"), "reads no files"),
    **dict.fromkeys(("try_options", "unsafe"), "uses the live mount and no shadow mounts"),
    **dict.fromkeys(
        ("max_cpu_ratio", "max_memory"), "measures neither CPU time nor memory of the server"
    ),
    "budget": "is limited by --for instead",
    "plot": "measures no curves",
    "cold": "always starts from the present values",
}


@click.command("auto", help=__doc__)
@mount_argument("M")
@measuring_options
@files_options
@allow_owner_option
@click.option(
    "--try-options",
    is_flag=True,
    help="Measure the server's options on shadow mounts and print advice. Changes nothing.",
)
@click.option(
    "--try-unsafe",
    "unsafe",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="With --try-options, try this unsafe option as well; may be repeated.",
)
@click.option(
    "--no-guard",
    "unguarded",
    multiple=True,
    type=click.Choice(GUARDS),
    help="Choose values for reads even if they make this workload slower; may be repeated.",
)
@click.option(
    "--target",
    # Of members of an enumeration, click takes the values until 8.1, and the names since 8.2.
    type=click.Choice([one.value for one in Target]),
    default=Target.THROUGHPUT.value,
    show_default=True,
    help="What to improve: throughput, or the time within which 99 % of a workload's operations "
    "complete.",
)
@click.option(
    "--max-cpu-ratio",
    type=click.FloatRange(min=0, min_open=True),
    metavar="RATIO",
    help="Reject settings that need more than this many times the initial CPU time of server and "
    "client for the same work.",
)
@click.option(
    "--max-memory",
    type=Size(),
    help="Reject settings with which the server's peak memory exceeds this.",
)
@click.option(
    "--cold",
    is_flag=True,
    help="Ignore what earlier runs chose for this source, server and kernel.",
)
@click.option(
    "--live",
    "on_traffic",
    is_flag=True,
    help="Try values in short blocks on the mount's own traffic, without generating load or files.",
)
@click.option(
    "--for",
    "seconds",
    type=Duration(),
    default=1800.0,
    help="With --live, the time limit of the whole run.  [default: 30m]",
)
@click.option(
    "--seed", type=int, default=0, metavar="N", help="Seed for the random order of measurements."
)
@plot_option("Also draw the curve of each measured knob, as an SVG file.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print which values would be tried, but measure and write nothing.",
)
@json_option
@pass_host_of_mounts
def command(
    host: Host,
    name: str,
    names: tuple[str, ...],
    files: tuple[str, ...],
    size: int | None,
    owners: tuple[str, ...],
    try_options: bool,
    unsafe: tuple[str, ...],
    unguarded: tuple[str, ...],
    target: str,
    max_cpu_ratio: float | None,
    max_memory: int | None,
    cold: bool,
    on_traffic: bool,
    seconds: float,
    seed: int,
    plot: Path | None,
    dry_run: bool,
    as_json: bool,
    **limits: Any,
) -> int:
    refuse_host(name)
    refuse_unknown(names)
    _refuse_contradictions(name, try_options, unsafe, dry_run, on_traffic)
    allowed, limit, mount = parse_owners(owners), budget_of(limits), find(host, name)
    resolver = Resolver(host, load(host))
    if on_traffic:
        return _live(resolver, mount, allowed, seconds, seed, dry_run=dry_run, as_json=as_json)
    aim, sets = partial(aimed_at, Target(target)), sets_for(host, mount, names)
    line = ProgressLine(limit.seconds)
    on = partial(on_subject, host, mount, names, files, size=size, sets=sets, tell=line.tell)
    if dry_run:
        present(on(partial(_preview, resolver, mount, allowed)), as_json)
        return ExitCode.DONE
    tell_profile(sets)
    how: Mapping[str, Any] = {"allowed_owners": allowed, "size": size, "seed": seed}
    how = {**how, "unguarded": unguarded, "limits": Limits(max_cpu_ratio, max_memory)}
    with line as progress:
        if try_options:
            tried = {key: value or None for key, _, value in (o.partition("=") for o in unsafe)}
            how = {**how, "progress": progress, "unsafe": tried}
            try_them = partial(_prove, resolver, mount, load_recipes(host), limit, aim, how)
            document: AutoResult = auto_options(on(try_them))
        else:
            how = {**how, "progress": progress, "cold": cold}
            run = partial(_auto, resolver, mount, limit, aim, how)
            document = auto_result(on(run))
    code = _presented(document, as_json)
    draw(document, plot)
    return code


def _refuse_contradictions(
    name: str,
    try_options: bool,
    unsafe: tuple[str, ...],
    dry_run: bool,
    on_traffic: bool,
) -> None:
    for parameter, why in _NOT_LIVE.items() if on_traffic else ():
        if given(parameter):
            raise UsageError(f"{spelt(parameter)} cannot be combined with --live, which {why}")
    if given("seconds") and not on_traffic:
        raise UsageError("--for needs --live; without --live, give --budget")
    if unsafe and not try_options:
        raise UsageError("--try-unsafe needs --try-options")
    if try_options and given("cold"):
        raise UsageError(
            "--cold has no effect with --try-options, which always starts from the present values"
        )
    if given("plot") and (try_options or dry_run):
        raise UsageError("--plot cannot be combined with --try-options or --dry-run")
    if try_options and dry_run:
        raise UsageError(f"'fusetune advise {shell_word(name)}' shows what --try-options would try")


def _live(
    resolver: Resolver,
    mount: Mount,
    allowed: Collection[int],
    seconds: float,
    seed: int,
    *,
    dry_run: bool,
    as_json: bool,
) -> ExitCode:
    if dry_run:
        present(_preview(resolver, mount, allowed, [*WAITS.values()], None), as_json)
        return ExitCode.DONE
    with ProgressLine(seconds) as progress:
        run = partial(auto_live, resolver, mount, seconds, allowed_owners=allowed)
        document = auto_result(run(seed=seed, progress=progress))
    return _presented(document, as_json)


def _presented(document: AutoResult, as_json: bool) -> ExitCode:
    present(document, as_json)
    return ExitCode.DONE if document.better else ExitCode.NOTHING_BETTER


def _prove(
    resolver: Resolver,
    mount: Mount,
    recipes: Sequence[Loaded],
    limit: Budget,
    aim: Callable[[Sequence[Workload]], list[Workload]],
    how: Mapping[str, Any],
    workloads: list[Workload],
    reading: Reading | None,
) -> OptionsOutcome:
    return prove_options(resolver, mount, recipes, aim(workloads), limit, reading=reading, **how)


def _auto(
    resolver: Resolver,
    mount: Mount,
    limit: Budget,
    aim: Callable[[Sequence[Workload]], list[Workload]],
    how: Mapping[str, Any],
    workloads: list[Workload],
    reading: Reading | None,
) -> Outcome:
    return auto(resolver, mount, aim(workloads), limit, reading=reading, **how)


def _preview(
    resolver: Resolver,
    mount: Mount,
    allowed: Collection[int],
    workloads: list[Workload],
    reading: Reading | None,
) -> AutoPreview:
    return auto_preview(mount, workloads, preview(resolver, mount, workloads, allowed))
