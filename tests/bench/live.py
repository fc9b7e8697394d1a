# SPDX-License-Identifier: GPL-2.0-or-later
"""What auto --live finds on traffic that comes and goes, beside auto on the same mount."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fusetune.bench.spending import Budget
from fusetune.bench.workloads import WORKLOADS
from fusetune.changes.apply import enforce
from fusetune.desired.resolve import Resolver
from fusetune.desired.sections import Config
from fusetune.tuner.auto import auto
from fusetune.tuner.auto_live import auto_live
from fusetune.tuner.guards import GUARDS
from tests.bench import traffic
from tests.bench.contest import BLOCKS, SERVERS, STOCK, compare, mounted, paired, words
from tests.bench.page import Section, ratio, table
from tests.native.files_to_read import fill
from tests.tmpfs import tracefs

_SECONDS = 300
_SERVER = SERVERS[0]
_WORKLOADS = ("seq-read", "seq-write")


@contextmanager
def busy(directory: Path) -> Iterator[None]:
    """Let a reader and a writer work in ``directory``, which idle at times."""
    command = [sys.executable, traffic.__file__]
    programs = [subprocess.Popen([*command, kind, directory]) for kind in ("read", "write")]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


_RATIOS = ("workload", "live to offline", "live to stock")
_CHOICES = ("how", "chose", "blocks or evaluations", "seconds")


def _make() -> str:
    with mounted(_SERVER) as (host, mount), tracefs():
        for number in range(traffic.FILES):
            fill(Path(mount.path) / f"file{number}", traffic.SIZE, number)
        resolver = Resolver(host, Config())
        with busy(Path(mount.path)):
            live = auto_live(resolver, mount, _SECONDS)
        print(*live.reasons, sep="\n", file=sys.stderr, flush=True)
        enforce(host, mount, STOCK)
        workloads = [WORKLOADS[name] for name in _WORKLOADS]
        offline = auto(resolver, mount, workloads, Budget(), unguarded=GUARDS, cold=True)
        settings = {"live": live.after, "offline": offline.after, "stock": STOCK}
        ratios = []
        for name in _WORKLOADS:
            logs = compare(host, mount, replace(_SERVER, workload=name), settings, BLOCKS)
            to = (ratio(paired(logs["live"], logs[other])) for other in ("offline", "stock"))
            ratios.append((name, *to))
        enforce(host, mount, STOCK)
    choices = []
    for how, one in (("live", live), ("offline", offline)):
        changed = {name: value for name, value in one.after.items() if value != STOCK[name]}
        choices.append((how, words(changed), str(one.evaluations), f"{one.seconds:.0f}"))
    return f"{table(_RATIOS, ratios)}\n\n{table(_CHOICES, choices)}"


LIVE = Section(
    "auto --live beside auto",
    f"A reader and a writer work on a mount of the server with {_SERVER.name}, and idle for 0.1 to "
    f"1.5 s after every few files. `auto --live` has {_SECONDS} s of it; then auto chooses for "
    f"{' and '.join(_WORKLOADS)} on the same mount, without traffic, with the default budget and "
    "--no-guard. Speed is a ratio to that with the values that auto chose, and with stock; in "
    f"brackets the 95 % interval over {BLOCKS} blocks.",
    (_RATIOS, _CHOICES),
    _make,
)
