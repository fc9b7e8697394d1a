# SPDX-License-Identifier: GPL-2.0-or-later
"""auto against an exhaustive grid: page faults, many streams, a read-only mount, a neighbour."""

from fusetune.changes.apply import enforce
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from tests.bench.contest import (
    BLOCKS,
    CHOICES,
    FINALISTS,
    GRID,
    MORE_SERVERS,
    STOCK,
    Result,
    Server,
    changed,
    choice,
    compare,
    fastest,
    grid,
    mounted,
    paired,
    results_of,
    tuned,
)
from tests.bench.page import NOT_REACHED, Section, ratio, table

WANTED = 0.97  # of the speed of the grid's best
_FINAL_BLOCKS = 4


def best_of_grid(host: Host, mount: Mount, server: Server) -> dict[str, int]:
    """Return the grid's best: the winner of those that were the fastest in one sample of each.

    Its speed must be measured again: of several figures, the best is too good by chance.
    """
    points = grid(server)
    for count, blocks in ((FINALISTS, 1), (1, _FINAL_BLOCKS)):
        found = compare(host, mount, server, points, blocks)
        points = {name: points[name] for name in fastest(found, count)}
    return next(iter(points.values()))


def contest(server: Server) -> Result:
    """Tune ``server``, search the whole grid, and measure its best and stock beside the choice."""
    with mounted(server) as (host, mount):
        outcome = tuned(host, mount, server)
        best = best_of_grid(host, mount, server)
        settings = {"auto": outcome.after, GRID: best, "stock": STOCK}
        logs = compare(host, mount, server, settings, BLOCKS)
        enforce(host, mount, STOCK)
    return Result(
        server,
        changed(outcome.after),
        changed(best),
        outcome.evaluations,
        outcome.seconds,
        {name: paired(logs["auto"], logs[name]) for name in (GRID, "stock")},
    )


_RATIOS = ("server", "workload", GRID, f"at least {WANTED}", "stock")


def row(one: Result) -> tuple[str, ...]:
    """Return a server's line of the table."""
    to_grid, to_stock = one.ratios.values()
    word = "reached" if to_grid.ratio >= WANTED else NOT_REACHED
    return (one.server.name, one.server.workload, ratio(to_grid), word, ratio(to_stock))


def _make() -> str:
    results = results_of(contest, MORE_SERVERS)
    choices = [choice(one) for one in results]
    return f"{table(_RATIOS, [row(one) for one in results])}\n\n{table(CHOICES, choices)}"


AGAINST_GRID = Section(
    "auto and the grid: more workloads and hosts",
    "Speed with the values that auto chose, as a ratio to the speed with the grid's best values "
    f"and with stock. The brackets contain the 95 % interval over {BLOCKS} blocks; each block "
    "measures each of them once. The grid is every combination of the values that auto may choose "
    f"from. Its best is the winner, over {_FINAL_BLOCKS} other blocks, of the {FINALISTS} that "
    "were the fastest in one sample of each. auto runs with --no-guard. The read-only mount has "
    "three files, which auto reads because of --files. The neighbour is a program that uses a "
    "whole processor for 1 to 5 s, then rests for 1 to 5 s, and so on.",
    (_RATIOS, CHOICES),
    _make,
)
