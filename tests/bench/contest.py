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
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusetune.bench.intervals import Interval, t_quantile
from fusetune.bench.reading import Reading, bench_of
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
from fusetune.tuner.auto import Outcome, auto
from fusetune.tuner.guards import GUARDS
from fusetune.tuner.space import SEARCHED, with_followers
from tests.bench.page import Section, ratio, table
from tests.native.files_to_read import fill
from tests.native.mirror import Mirror
from tests.tmpfs import tmpfs

BLOCKS = 10
GRID_SAMPLES = 1
FINALISTS = 5  # of the grid, measured again beside each other
NEIGHBOUR = Path(__file__).with_name("neighbour.py")
STOCK = {knob.name: knob.stock for knob in LIVE if knob.stock is not None}


@dataclass(frozen=True)
class Server:
    """A kind of server (mirrorfs options) and the workload it is tuned for.

    ``gains``: whether the grid's best is at least 1.2 times as fast as stock, by this bench.
    ``files``: how many are there to be read, on a mount that cannot be written; 0: scratch files
    are written. ``neighbour``: whether another program takes a processor at times.
    """

    name: str
    options: tuple[str, ...]
    workload: str
    gains: bool
    files: int = 0
    neighbour: bool = False

    @property
    def reading(self) -> Reading | None:
        """What a run reads; None: scratch files."""
        return Reading() if self.files else None


_FILE = 128 << 20  # bytes of a file to be read
_NETWORK = ("delay=2ms", "served=8")
SERVERS = (
    Server("2 ms a request, 8 at once", _NETWORK, "seq-read", True),
    Server("20 ms a request, 8 at once", ("delay=20ms", "served=8"), "seq-read", True),
    Server("200 MB/s", ("bandwidth=200000000",), "seq-read", False),
    Server("2 ms a request, random", _NETWORK, "rand-read", False),
    Server("tmpfs, writeback", ("writeback", "no_xattr"), "small-write", True),
    Server("2 ms a request, page faults", _NETWORK, "mmap-read", False),
    Server("2 ms a request, 32 streams", _NETWORK, "many-streams", False),
    Server("2 ms a request, read-only", ("ro", *_NETWORK), "seq-read", True, files=8),
    Server("2 ms a request, a neighbour at times", _NETWORK, "seq-read", True, neighbour=True),
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
    with ExitStack() as contexts:
        name = contexts.enter_context(tempfile.TemporaryDirectory(prefix="fusetune-bench-"))
        directory = contexts.enter_context(tmpfs(Path(name), "size=2G"))
        (directory / "source").mkdir()
        for number in range(server.files):
            fill(directory / "source" / f"file{number}", _FILE, number)
        Mirror.lifetime = 3600
        contexts.enter_context(Mirror(directory / "source", directory / "mnt", *server.options))
        if server.neighbour:
            neighbour = subprocess.Popen([sys.executable, NEIGHBOUR])
            contexts.callback(neighbour.wait)
            contexts.callback(neighbour.kill)
        host = Host(state_dir=directory / "state", run_dir=directory / "run")
        host.make_dir(host.run_dir)
        mount_controls(host)
        yield host, find(host, str(directory / "mnt"))


def tuned(host: Host, mount: Mount, server: Server, seed: int = 0) -> Outcome:
    """Let auto tune a mount of ``server``, with its default budget."""
    return auto(
        Resolver(host, Config()),
        mount,
        [WORKLOADS[server.workload]],
        Budget(),
        unguarded=GUARDS,
        reading=server.reading,
        seed=seed,
    )


def compare(
    host: Host, mount: Mount, server: Server, settings: Mapping[str, Mapping[str, int]], blocks: int
) -> dict[str, list[float]]:
    """Return the logarithm of each contender's figure in each block."""
    logs: dict[str, list[float]] = {name: [] for name in settings}
    order = list(settings)
    shuffle = random.Random(1)
    # As long a sample as in auto's default budget, but as many as are wanted.
    unlimited = Budget(36_000, 1 << 50, 1 << 50, 1 << 40)
    run = (host, mount, [WORKLOADS[server.workload]], unlimited)
    sample = Budget().seconds / 200
    with (
        Interruption() as interruption,
        bench_of(*run, interruption, reading=server.reading, sample_seconds=sample) as bench,
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
        outcome = tuned(host, mount, server)
        best = best_of_grid(host, mount, server)
        settings = {"auto": outcome.after, "grid's best": best} | rules()
        logs = compare(host, mount, server, settings, BLOCKS)
        enforce(host, mount, STOCK)
        return Result(
            server,
            {name: value for name, value in outcome.after.items() if value != STOCK[name]},
            {name: value for name, value in best.items() if value != STOCK[name]},
            outcome.evaluations,
            outcome.seconds,
            {name: paired(logs["auto"], logs[name]) for name in ("grid's best", *rules())},
        )


def best_of_grid(host: Host, mount: Mount, server: Server) -> dict[str, int]:
    """Return the grid's best: the winner of those that were best in a first look at all.

    How it compares is measured anew: the best of several figures is too good by chance.
    """
    points = grid(server)
    for count, samples in ((FINALISTS, GRID_SAMPLES), (1, BLOCKS)):
        found = compare(host, mount, server, points, samples)
        best = sorted(points, key=lambda name: statistics.fmean(found[name]))[-count:]
        points = {name: points[name] for name in best}
    return next(iter(points.values()))


_RATIOS = ("server", "workload", "grid's best", *rules())
_CHOICES = ("server", "auto chose", "grid's best", "evaluations", "seconds")


def words(setting: dict[str, int]) -> str:
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
            words(one.chosen),
            words(one.grid_best),
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
    "The grid is every combination of the values that auto may choose from; its best is the winner "
    f"of {BLOCKS} blocks of the {FINALISTS} that came first in one look at all. All choose for the "
    "one workload alone: auto with --no-guard. The neighbour takes a processor for 1 to 5 s, then "
    "rests as long.",
    (_RATIOS, _CHOICES),
    _make,
)
