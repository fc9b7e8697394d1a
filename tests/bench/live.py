# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --live on programs that rest at times: beside auto, without effect, and if they change."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fusetune.bench.spending import Budget
from fusetune.bench.workloads import WORKLOADS
from fusetune.changes.state import values_now
from fusetune.desired.resolve import Resolver
from fusetune.desired.sections import Config
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.profile.waits import Waits
from fusetune.tuner.auto import Outcome, auto
from fusetune.tuner.auto_live import auto_live
from fusetune.tuner.guards import GUARDS
from fusetune.tuner.live import WAITS
from fusetune.tuner.space import searched_on
from tests.bench.contest import (
    BLOCKS,
    STOCK,
    Server,
    changed,
    compare,
    in_blocks,
    mounted,
    paired,
    words,
)
from tests.bench.page import Section, ratio, table, verdict
from tests.bench.replay import recorded, replayed
from tests.bench.traffic import busy, lay_out, timed
from tests.tmpfs import tracefs

SECONDS = 300
NEAR = 0.9  # of the speed with the values of auto
RECORDED, REPLAYS, REPLAYED = 100, 20, 60
CHANGING, CHANGES = 60, (20, 45)  # seconds of a run, and after which the program changes
HARMLESS = 0.95  # of the speed with stock
_TURNS = 12  # files in a sample of a program
#: It serves all requests at once, so that reader and writer, which auto measures one after the
#: other, do not wait for each other's requests.
_SERVER = Server("2 ms a request", ("delay=2ms",), "seq-read")
_WORKLOADS = ("seq-read", "seq-write")
_BESIDE = ("workload", "live / auto", f"at least {NEAR}", "live / stock")
_CHOICES = ("how", "chose", "evaluations", "seconds")
_NOISE = ("replays", "trials", "changed", "at most", "")
_CHANGED = ("changes after", "live chose", "page faults / stock", f"at least {HARMLESS}")


def _live_choice() -> Outcome:
    """Let auto --live choose on a reader and a writer that rest at times."""
    with mounted(_SERVER) as (host, mount):
        lay_out(Path(mount.path))
        with busy(Path(mount.path), ["read"], ["write"]):
            live = auto_live(Resolver(host, Config()), mount, SECONDS)
    print(*live.reasons, sep="\n", file=sys.stderr, flush=True)
    return live


def _compared(
    host: Host, mount: Mount, kind: str, settings: Mapping[str, Mapping[str, int]]
) -> dict[str, list[float]]:
    """Return the logarithm of the speed of a program with each setting, in each block."""
    path = Path(mount.path)
    return in_blocks(host, mount, settings, lambda: 1 / timed(path, kind, _TURNS), BLOCKS)


def _beside() -> str:
    """Compare what auto --live chose with what auto chooses on a mount without traffic."""
    live = _live_choice()
    with mounted(_SERVER) as (host, mount):
        workloads = [WORKLOADS[name] for name in _WORKLOADS]
        offline = auto(Resolver(host, Config()), mount, workloads, Budget(), unguarded=GUARDS)
        settings = {"live": live.after, "auto": offline.after, "stock": STOCK}
        lay_out(Path(mount.path))
        measured = {
            "the reader": _compared(host, mount, "read", settings),
            "the writer": _compared(host, mount, "write", settings),
        }
        for name in _WORKLOADS:
            server = replace(_SERVER, workload=name)
            measured[name] = compare(host, mount, server, settings, BLOCKS)
        rows = []
        for name, logs in measured.items():
            ours = paired(logs["live"], logs["auto"])
            to_stock = ratio(paired(logs["live"], logs["stock"]))
            rows.append((name, ratio(ours), verdict(ours.ratio >= NEAR), to_stock))
    choices = [
        (how, words(changed(one.after)), str(one.evaluations), f"{one.seconds:.0f}")
        for how, one in (("auto --live", live), ("auto", offline))
    ]
    return f"{table(_BESIDE, rows)}\n\n{table(_CHOICES, choices)}"


def _noise() -> str:
    """Replay recorded traffic, on which no value has an effect."""
    with mounted(_SERVER) as (host, mount):
        lay_out(Path(mount.path))
        now = values_now(host, mount)
        resolver = Resolver(host, Config())
        dimensions, _ = searched_on(resolver, mount, now, [*WAITS.values()], ())
        with busy(Path(mount.path), ["read"], ["write"]), Waits(host, mount) as source:
            marks = recorded(source, RECORDED)
    start = {each.name: now[each.name] for each in dimensions}
    runs = replayed(marks, dimensions, start, REPLAYED, REPLAYS)
    wrong = sum(run.found.choice.changed for run in runs)
    trials = sorted(len(run.found.trials) for run in runs)
    said = f"{trials[0]} to {trials[-1]}"
    return table(_NOISE, [(f"{REPLAYS}", said, f"{wrong}", "0", verdict(not wrong))])


def _change(after: int) -> tuple[str, ...]:
    """Let a reader map files after so many seconds of a run."""
    with mounted(_SERVER) as (host, mount):
        lay_out(Path(mount.path))
        with busy(Path(mount.path), ["read", "--then", "fault", str(after)]):
            live = auto_live(Resolver(host, Config()), mount, CHANGING)
        print(*live.reasons, sep="\n", file=sys.stderr, flush=True)
        kept = changed(live.after)
        if not kept:
            return (f"{after} s", "stock", "", verdict(is_reached=True))
        logs = _compared(host, mount, "fault", {"kept": kept, "stock": STOCK})
        later = paired(logs["kept"], logs["stock"])
    return (f"{after} s", words(kept), ratio(later), verdict(later.ratio >= HARMLESS))


def _make() -> str:
    with tracefs():
        parts = [_beside(), _noise()]
        parts.append(table(_CHANGED, [_change(after) for after in CHANGES]))
        return "\n\n".join(parts)


LIVE = Section(
    "auto --live",
    f"The server takes {_SERVER.name}. A reader and a writer use a mount of it for {SECONDS} s; "
    "each rests for 0.1 to 1 s after every 2 to 8 files. `auto --live` chooses values for this "
    f"mount. On a mount without traffic, auto chooses values for {' and '.join(_WORKLOADS)}, "
    "with the default budget and --no-guard. The first table compares the speed with the values "
    "of `auto --live` with that of auto's values and of stock, measured on the second mount: of "
    f"the reader and the writer, each alone with {_TURNS} files and without rests, and of auto's "
    f"workloads. The brackets contain the 95 % interval over {BLOCKS} blocks. For the third table, "
    f"the waits of such programs were recorded for {RECORDED} s and replayed to {REPLAYS} runs of "
    f"{REPLAYED} s, each of which starts at another place. No value has an effect on a replay, "
    "so none may be changed. For the last table, the reader starts to map files during a run of "
    f"{CHANGING} s, and touches 4 random pages of each. If values were kept, the speed of these "
    f"page faults was compared with that of stock, in {BLOCKS} blocks of {_TURNS} files.",
    (_BESIDE, _CHOICES, _NOISE, _CHANGED),
    _make,
)
