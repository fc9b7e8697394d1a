# SPDX-License-Identifier: GPL-2.0-or-later
"""auto against an exhaustive grid and against the static rules that people use.

Every contender is a setting of live knobs. Contenders are measured in the same blocks, each
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from tests.bench.page import Section, heading, ratio, table, verdict
from tests.native.mirror import Mirror
from tests.tmpfs import tmpfs

BLOCKS = 10
FINALISTS, _FINAL_BLOCKS = 5, 4  # of the grid
WANTED = 0.97  # of the speed of the grid's best
#: Blocks of auto's choice and the grid's best alone, if their ratio's interval is wider than that.
_MORE_BLOCKS, _CERTAIN = 60, 0.03
NEIGHBOUR = Path(__file__).with_name("neighbour.py")
GRID = "grid's best"
STOCK = {knob.name: knob.stock for knob in LIVE if knob.stock is not None}


@dataclass(frozen=True)
class Server:
    """A kind of server (mirrorfs options) and the workload it is tuned for.

    ``gains``: whether ``misses`` counts here how often auto misses a gain; the grid's best must be
    at least 1.2 times as fast as stock. ``files``: the files to read on a mount that cannot be
    written; none: scratch files are written. ``neighbour``: another program takes a processor at
    times.
    """

    name: str
    options: tuple[str, ...]
    workload: str
    gains: bool = False
    files: tuple[str, ...] = ()
    neighbour: bool = False

    @property
    def reading(self) -> Reading | None:
        """What a run reads; None: scratch files."""
        return Reading(self.files) if self.files else None


# Few enough for ranges that are read again and again: a grid has more points than a cold run has
# ranges. mirrorfs caches nothing, so it does not matter.
_FILES, _FILE_SIZE = ("file0", "file1", "file2"), 256 << 20
_SLOW = ("delay=2ms", "served=8")
SERVERS = (
    Server("2 ms a request, 8 at once", _SLOW, "seq-read", gains=True),
    Server("20 ms a request, 8 at once", ("delay=20ms", "served=8"), "seq-read", gains=True),
    Server("200 MB/s", ("bandwidth=200000000",), "seq-read"),
    Server("2 ms a request, random", _SLOW, "rand-read"),
    Server("tmpfs, writeback", ("writeback", "no_xattr"), "small-write", gains=True),
)
MORE_SERVERS = (
    # A gain of 100 times cannot be missed, so misses does not count it.
    Server("2 ms a request, page faults", _SLOW, "mmap-read"),
    Server("2 ms a request, 32 streams", _SLOW, "many-streams", gains=True),
    Server("2 ms a request, read-only", ("ro", *_SLOW), "seq-read", gains=True, files=_FILES),
    Server("2 ms a request, a neighbour", _SLOW, "seq-read", gains=True, neighbour=True),
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
    """Mount ``server`` over a tmpfs for the duration of the context."""
    with ExitStack() as contexts:
        name = contexts.enter_context(tempfile.TemporaryDirectory(prefix="fusetune-bench-"))
        directory = contexts.enter_context(tmpfs(Path(name), "size=2G"))
        (directory / "source").mkdir()
        for number, file in enumerate(server.files):
            _fill(directory / "source" / file, number)
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


def _fill(file: Path, seed: int) -> None:
    piece = random.Random(seed).randbytes(1 << 20)
    with file.open("wb") as opened:
        for _ in range(_FILE_SIZE >> 20):
            opened.write(piece)


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


def in_blocks(
    host: Host,
    mount: Mount,
    settings: Mapping[str, Mapping[str, int]],
    figure: Callable[[], float],
    blocks: int,
    seed: int = 1,
    enough: Callable[[Mapping[str, Sequence[float]]], bool] = lambda logs: False,
) -> dict[str, list[float]]:
    """Return the logarithm of ``figure`` with each setting in each block; see `compare`."""
    logs: dict[str, list[float]] = {name: [] for name in settings}
    order = list(settings)
    shuffle = random.Random(seed)
    for _ in range(blocks):
        shuffle.shuffle(order)
        for name in order:
            enforce(host, mount, {**STOCK, **settings[name]})
            logs[name].append(math.log(figure()))
        if enough(logs):
            break
    return logs


def compare(
    host: Host,
    mount: Mount,
    server: Server,
    settings: Mapping[str, Mapping[str, int]],
    blocks: int,
    seed: int = 1,
    enough: Callable[[Mapping[str, Sequence[float]]], bool] = lambda logs: False,
) -> dict[str, list[float]]:
    """Return the logarithm of each contender's figure in each block.

    ``seed``: of the contenders' order in each block. ``enough``: asked after each block; if true,
    fewer than ``blocks`` are measured.
    """
    # Samples as long as in auto's default budget, but as many as needed.
    unlimited, seconds = Budget(36_000, 1 << 50, 1 << 50, 1 << 40), Budget().seconds / 200
    run = (host, mount, [WORKLOADS[server.workload]], unlimited)
    with (
        Interruption() as interruption,
        bench_of(*run, interruption, reading=server.reading, sample_seconds=seconds) as bench,
    ):

        def figure() -> float:
            return bench.measure()[server.workload]

        return in_blocks(host, mount, settings, figure, blocks, seed, enough)


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


def fastest(logs: Mapping[str, Sequence[float]], count: int) -> list[str]:
    """Return the names of so many contenders, the fastest last."""
    return sorted(logs, key=lambda name: statistics.fmean(logs[name]))[-count:]


def best_of_grid(host: Host, mount: Mount, server: Server) -> dict[str, int]:
    """Return the grid's best: the winner of those that were the fastest in one sample of each.

    Its speed must be measured again: of several figures, the best is too good by chance.
    """
    points = grid(server)
    for count, blocks in ((FINALISTS, 1), (1, _FINAL_BLOCKS)):
        found = compare(host, mount, server, points, blocks)
        points = {name: points[name] for name in fastest(found, count)}
    return next(iter(points.values()))


def contest(server: Server, others: Mapping[str, Mapping[str, int]]) -> Result:
    """Tune ``server``, search the whole grid, and measure its best and ``others`` beside it."""
    with mounted(server) as (host, mount):
        outcome = tuned(host, mount, server)
        best = best_of_grid(host, mount, server)
        both = {"auto": outcome.after, GRID: best}
        logs = compare(host, mount, server, {**both, **others}, BLOCKS)
        found = {name: paired(logs["auto"], logs[name]) for name in (GRID, *others)}
        if math.log(found[GRID].high / found[GRID].low) > 2 * _CERTAIN:
            logs = compare(host, mount, server, both, _MORE_BLOCKS)
            found[GRID] = paired(logs["auto"], logs[GRID])
        enforce(host, mount, STOCK)
    return Result(
        server,
        changed(outcome.after),
        changed(best),
        outcome.evaluations,
        outcome.seconds,
        found,
    )


def changed(setting: Mapping[str, int]) -> dict[str, int]:
    """Return those values of a setting that are not stock."""
    return {name: value for name, value in setting.items() if value != STOCK[name]}


CHOICES = ("server", "auto chose", GRID, "evaluations", "seconds")


def words(setting: Mapping[str, int]) -> str:
    """Return values that are not stock, as a table's cell."""
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "stock"


def values(cell: str) -> dict[str, int]:
    """Return the values that `words` has written."""
    pairs = (one.split() for one in cell.split(", ") if cell != "stock")
    return {name: int(value) for name, value in pairs}


def choice(one: Result) -> tuple[str, ...]:
    """Return what was chosen on a server, as a line of a table."""
    return (
        one.server.name,
        words(one.chosen),
        words(one.grid_best),
        str(one.evaluations),
        f"{one.seconds:.0f}",
    )


def choices_in(text: str) -> dict[str, dict[str, dict[str, int]]]:
    """Return auto's choice and the grid's best by the server's name, from a section's text."""
    _, *lines = text.partition(heading(CHOICES))[2].strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: {"auto": values(row[1]), GRID: values(row[2])} for row in rows}


def ratios(others: Iterable[str]) -> tuple[str, ...]:
    """Return the headings of the table of ratios; ``others``: contenders besides the grid."""
    return ("server", "workload", GRID, f"at least {WANTED}", *others)


def speeds(one: Result) -> tuple[str, ...]:
    """Return how the choice on a server compares, as a line of the table of ratios."""
    to_grid, *to_others = one.ratios.values()
    word = verdict(to_grid.ratio >= WANTED)
    return (one.server.name, one.server.workload, ratio(to_grid), word, *map(ratio, to_others))


def tables(servers: Sequence[Server], others: Mapping[str, Mapping[str, int]]) -> str:
    """Hold a contest on each server; return the tables of ratios and choices."""
    results = []
    for server in servers:
        print(f"... {server.name}", file=sys.stderr, flush=True)
        results.append(contest(server, others))
    compared = table(ratios(others), [speeds(one) for one in results])
    return f"{compared}\n\n{table(CHOICES, [choice(one) for one in results])}"


#: What a section says of its grid.
ABOUT_GRID = (
    "The grid is every combination of the values that auto may choose from. Its best is the "
    f"winner, over {_FINAL_BLOCKS} other blocks, of the {FINALISTS} that were the fastest in one "
    "sample of each. If the interval of the ratio to it is wider than "
    f"±{100 * _CERTAIN:.0f} %, that ratio is from {_MORE_BLOCKS} more blocks, of the choice and "
    "the best alone."
)
CONTESTS = Section(
    "auto, the grid and the static rules",
    "Speed with the values that auto chose, as a ratio to the speed with those of the contender. "
    f"The brackets contain the 95 % interval over {BLOCKS} blocks; each block measures every "
    f"contender once. {ABOUT_GRID} Everything is chosen for the one workload alone, so auto runs "
    "with --no-guard.",
    (ratios(rules()), CHOICES),
    lambda: tables(SERVERS, rules()),
)
