# SPDX-License-Identifier: GPL-2.0-or-later
"""How often auto ends without a change where one is worth 1.2 times the speed or more."""

import statistics
import sys
from collections import Counter

from fusetune.bench.spending import Budget
from fusetune.bench.workloads import WORKLOADS
from fusetune.desired.resolve import Resolver
from fusetune.desired.sections import Config
from fusetune.tuner.auto import Outcome, auto
from fusetune.tuner.guards import GUARDS
from tests.bench.contest import SERVERS, Server, mounted
from tests.bench.page import Section, table

RUNS = 10
#: The contest has shown the grid's best of these to be at least 1.2 times as fast as stock.
GAINING = tuple(server for server in SERVERS if server.gains)


def run(server: Server, seed: int) -> Outcome:
    """Let auto tune a fresh mount, with its default budget."""
    workloads = [WORKLOADS[server.workload]]
    with mounted(server) as (host, mount):
        resolver = Resolver(host, Config())
        return auto(resolver, mount, workloads, Budget(), seed=seed, unguarded=GUARDS)


_HEADINGS = ("server", "workload", "missed", "gain found", "evaluations", "ended by")


def _row(server: Server, outcomes: list[Outcome]) -> tuple[str, ...]:
    gains = [one.choice.gain.ratio for one in outcomes if one.choice.changed]
    evaluations = [one.evaluations for one in outcomes]
    ended = Counter(one.ended_by for one in outcomes)
    found = f"{statistics.median(gains):.2f} [{min(gains):.2f}, {max(gains):.2f}]" if gains else ""
    return (
        server.name,
        server.workload,
        f"{len(outcomes) - len(gains)} of {len(outcomes)}",
        found,
        f"{statistics.median(evaluations):.0f} [{min(evaluations)}, {max(evaluations)}]",
        ", ".join(f"{name} {count}" for name, count in ended.most_common()),
    )


def _make() -> str:
    rows = []
    for server in GAINING:
        outcomes = []
        for seed in range(RUNS):
            outcomes.append(run(server, seed))
            last = outcomes[-1]
            said = f"... {server.name}, seed {seed}: {last.choice.gain.ratio:.2f}, {last.ended_by}"
            print(said, file=sys.stderr, flush=True)
        rows.append(_row(server, outcomes))
    return table(_HEADINGS, rows)


MISSES = Section(
    "How often auto misses a gain",
    f"auto runs with {RUNS} seeds, each on a fresh mount, with the default budget and --no-guard. "
    "The grid's best is at least 1.2 times as fast as stock there, and a run that proves nothing "
    "better has missed that. The gain found is the speed after over the speed before: the median, "
    "in brackets the least and the most, as of the evaluations. The last column counts what ended "
    "the runs.",
    (_HEADINGS,),
    _make,
)
