# SPDX-License-Identifier: GPL-2.0-or-later
"""How often auto ends without a change although one is worth 1.2 times the speed or more."""

import statistics
import sys
from collections import Counter

from fusetune.tuner.auto import Outcome
from tests.bench.contest import MORE_SERVERS, SERVERS, Server, mounted, tuned
from tests.bench.page import Section, table, verdict

RUNS, MOST_MISSED = 30, 1
#: The contests have shown the grid's best of these to be at least 1.2 times as fast as stock.
GAINING = tuple(server for server in (*SERVERS, *MORE_SERVERS) if server.gains)


def run(server: Server, seed: int) -> Outcome:
    """Let auto tune a new mount, with its default budget."""
    with mounted(server) as (host, mount):
        return tuned(host, mount, server, seed)


_HEADINGS = (
    *("server", "workload", "missed", f"at most {MOST_MISSED}"),
    *("gain found", "evaluations", "ended by"),
)


def _row(server: Server, outcomes: list[Outcome]) -> tuple[str, ...]:
    gains = [one.choice.gain.ratio for one in outcomes if one.choice.changed]
    evaluations = [one.evaluations for one in outcomes]
    ended = Counter(one.ended_by for one in outcomes)
    found = f"{statistics.median(gains):.2f} [{min(gains):.2f}, {max(gains):.2f}]" if gains else ""
    missed = len(outcomes) - len(gains)
    return (
        server.name,
        server.workload,
        f"{missed} of {len(outcomes)}",
        verdict(missed <= MOST_MISSED),
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
    "The grid's best values are at least 1.2 times as fast as stock there, so a run that proves "
    "nothing better has missed this gain. The gain found is the speed after divided by the speed "
    "before. For the gain and the evaluations, the table has the median, and in brackets the "
    "minimum and the maximum. The last column counts what ended the runs.",
    (_HEADINGS,),
    _make,
)
