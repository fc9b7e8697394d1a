# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure a mount, choose values, set and keep them."""

import click

from fusetune.bench.runner import Budget
from fusetune.bench.workloads import chosen
from fusetune.changes.policy import parse_owners
from fusetune.cli.common import (
    ProgressLine,
    allow_owner_option,
    dry_run_option,
    json_option,
    measuring_options,
    pass_host_of_mounts,
    present,
    refuse_host,
)
from fusetune.desired.config import load
from fusetune.desired.resolve import Resolver
from fusetune.errors import ExitCode
from fusetune.host import Host
from fusetune.mounts.discover import find
from fusetune.report.documents.auto import auto_preview, auto_result
from fusetune.tuner.auto import auto, preview


@click.command("auto", help=__doc__)
@click.argument("name", metavar="M")
@measuring_options
@allow_owner_option
@click.option("--seed", type=int, default=0, help="Seed of the random order of measurements.")
@dry_run_option
@json_option
@pass_host_of_mounts
def command(
    host: Host,
    name: str,
    names: tuple[str, ...],
    budget: float,
    budget_bytes: int,
    size: int | None,
    owners: tuple[str, ...],
    seed: int,
    dry_run: bool,
    as_json: bool,
) -> int:
    refuse_host(name)
    workloads, allowed = chosen(names), parse_owners(owners)
    mount = find(host, name)
    resolver = Resolver(host, load(host))
    if dry_run:
        candidates = preview(resolver, mount, workloads, allowed)
        present(auto_preview(mount, workloads, candidates), as_json)
        return ExitCode.DONE
    with ProgressLine(budget) as progress:
        outcome = auto(
            resolver,
            mount,
            workloads,
            Budget(budget, budget_bytes),
            allowed_owners=allowed,
            size=size,
            seed=seed,
            progress=progress,
        )
    present(auto_result(outcome), as_json)
    return ExitCode.DONE if outcome.choice.changed else ExitCode.NOTHING_BETTER
