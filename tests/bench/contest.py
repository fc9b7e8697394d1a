# SPDX-License-Identifier: GPL-2.0-or-later
"""auto against an exhaustive grid and against the static rules that people use.

Every contender is a setting of live knobs. What is compared is measured in the same blocks, each
contender once a block in random order; ratios are of the same block.
"""

import itertools
import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusetune.bench.intervals import Interval, t_quantile
from fusetune.bench.runner import Bench
from fusetune.bench.spending import Budget
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import WORKLOADS
from fusetune.changes.apply import enforce
from fusetune.desired.resolve import Resolver
from fusetune.desired.sections import Config
from fusetune.host import Host
from fusetune.knobs import LIVE
from fusetune.mounts.control import mount_controls
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from fusetune.tuner.auto import auto
from fusetune.tuner.guards import GUARDS
from fusetune.tuner.space import SEARCHED, with_followers
from tests.bench.page import Section, ratio, table
from tests.native.mirror import Mirror
from tests.tmpfs import tmpfs

BLOCKS = 10
GRID_SAMPLES = 1
FINALISTS = 5  # of the grid, measured again with the others
STOCK = {knob.name: knob.stock for knob in LIVE if knob.stock is not None}


@dataclass(frozen=True)
class Server:
    """A kind of server (mirrorfs options) and the workload it is tuned for.

    ``gains``: whether the grid's best is at least 1.2 times as fast as stock, by this bench.
    """

    name: str
    options: tuple[str, ...]
    workload: str
    gains: bool


SERVERS = (
    Server("2 ms a request, 8 at once", ("delay=2ms", "served=8"), "seq-read", True),
    Server("20 ms a request, 8 at once", ("delay=20ms", "served=8"), "seq-read", True),
    Server("200 MB/s", ("bandwidth=200000000",), "seq-read", False),
    Server("2 ms a request, random", ("delay=2ms", "served=8"), "rand-read", False),
    Server("tmpfs, writeback", ("writeback", "no_xattr"), "small-write", True),
)


def rules() -> dict[str, dict[str, int]]:
    """Return the static rules, as live values."""
    background = min(max(12, 2 * (os.cpu_count() or 1)), 96)
    gcsfuse = {"max_background": background, "congestion_threshold": background * 3 // 4}
    return {
        "stock": {},
        "gcsfuse, 16 MiB": gcsfuse | {"read_ahead_kb": 16 << 10},
        "gcsfuse, 128 MiB": gcsfuse | {"read_ahead_kb": 128 << 10},
        "Android vold": {"max_ratio": 40, "read_ahead_kb": 256},
        "DAOS": {"max_ratio": 50, "read_ahead_kb": 4096},
        "mergerfs guide": {"read_ahead_kb": 4096},
    }


@dataclass(frozen=True)
class Result:
    """auto's choice on one server, and ratios auto/contender by contender's name."""

    server: Server
    chosen: dict[str, int]
    grid_best: dict[str, int]
    evaluations: int
    seconds: float
    ratios: dict[str, Interval]


@contextmanager
def mounted(server: Server) -> Iterator[tuple[Host, Mount]]:
    """Mount ``server`` over a tmpfs while the context lasts."""
    with (
        tempfile.TemporaryDirectory(prefix="fusetune-bench-") as name,
        tmpfs(Path(name), "size=2G"),
    ):
        directory = Path(name)
        (directory / "source").mkdir()
        Mirror.lifetime = 3600
        with Mirror(directory / "source", directory / "mnt", *server.options):
            host = Host(state_dir=directory / "state", run_dir=directory / "run")
            host.make_dir(host.run_dir)
            mount_controls(host)
            yield host, find(host, str(directory / "mnt"))


def compare(
    host: Host, mount: Mount, server: Server, settings: Mapping[str, Mapping[str, int]], blocks: int
) -> dict[str, list[float]]:
    """Return the logarithm of each contender's figure in each block."""
    logs: dict[str, list[float]] = {name: [] for name in settings}
    order = list(settings)
    shuffle = random.Random(1)
    # As long a sample as in auto's default budget, but as many as are wanted.
    unlimited, sample_seconds = Budget(36_000, 1 << 50), Budget().seconds / 200
    workloads = [WORKLOADS[server.workload]]
    with (
        Interruption() as interruption,
        Bench(
            host, mount, workloads, unlimited, interruption, sample_seconds=sample_seconds
        ) as bench,
    ):
        for _ in range(blocks):
            shuffle.shuffle(order)
            for name in order:
                enforce(host, mount, {**STOCK, **settings[name]})
                logs[name].append(math.log(bench.measure()[server.workload]))
    return logs


def paired(logs: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the mean ratio of two contenders over the blocks, with its 95 % interval."""
    differences = [a - b for a, b in zip(logs, others, strict=True)]
    mean = statistics.fmean(differences)
    half = (
        t_quantile(0.05, len(differences) - 1)
        * statistics.stdev(differences)
        / math.sqrt(len(differences))
    )
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def grid(server: Server) -> dict[str, dict[str, int]]:
    """Return every combination of the values that auto may choose from for this workload."""
    accesses = WORKLOADS[server.workload].accesses
    known = {name: entry for name, entry in SEARCHED.items() if name in STOCK}
    knobs = {name: entry for name, entry in known.items() if entry.affects & accesses}
    points = itertools.product(*(entry.candidates for entry in knobs.values()))
    settings = [dict(zip(knobs, point, strict=True)) for point in points]
    return {f"grid {n}": with_followers(s, STOCK) for n, s in enumerate(settings)}


def contest(server: Server) -> Result:
    """Tune ``server``, search the whole grid, and measure all contenders against each other."""
    with mounted(server) as (host, mount):
        workloads = [WORKLOADS[server.workload]]
        outcome = auto(Resolver(host, Config()), mount, workloads, Budget(), unguarded=GUARDS)
        points = grid(server)
        found = compare(host, mount, server, points, GRID_SAMPLES)
        best = sorted(points, key=lambda name: statistics.fmean(found[name]))[-FINALISTS:]
        settings = {"auto": outcome.after} | {name: points[name] for name in best} | rules()
        logs = compare(host, mount, server, settings, BLOCKS)
        winner = max(best, key=lambda name: statistics.fmean(logs[name]))
        logs["grid's best"] = logs[winner]
        enforce(host, mount, STOCK)
        return Result(
            server,
            {name: value for name, value in outcome.after.items() if value != STOCK[name]},
            {name: value for name, value in points[winner].items() if value != STOCK[name]},
            outcome.evaluations,
            outcome.seconds,
            {name: paired(logs["auto"], logs[name]) for name in ("grid's best", *rules())},
        )


_RATIOS = ("server", "workload", "grid's best", *rules())
_CHOICES = ("server", "auto chose", "grid's best", "evaluations", "seconds")


def _words(setting: dict[str, int]) -> str:
    """Return a setting's values that are not stock."""
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "stock"


def _make() -> str:
    results = []
    for server in SERVERS:
        print(f"... {server.name}", file=sys.stderr, flush=True)
        results.append(contest(server))
    ratios = [
        (one.server.name, one.server.workload, *map(ratio, one.ratios.values())) for one in results
    ]
    choices = [
        (
            one.server.name,
            _words(one.chosen),
            _words(one.grid_best),
            str(one.evaluations),
            f"{one.seconds:.0f}",
        )
        for one in results
    ]
    return f"{table(_RATIOS, ratios)}\n\n{table(_CHOICES, choices)}"


CONTESTS = Section(
    "auto, the grid and the static rules",
    "Speed with auto's choice, as a ratio to the speed with the contender's values; in brackets "
    f"the 95 % interval over {BLOCKS} blocks, in each of which every contender is measured once. "
    "The grid is every combination of the values that auto may choose from. All choose for the one "
    "workload alone: auto with --no-guard.",
    (_RATIOS, _CHOICES),
    _make,
)
