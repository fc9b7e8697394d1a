# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers mounted as ``fusetune advise`` proposes, compared with the same servers as before.

    /usr/bin/python3 -m tests.bench.advice [--blocks N] [SERVER...]

prints the table for some servers, with fewer blocks, without writing it to the page.
"""

import argparse
import json
import math
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fusetune.bench.usage import cpu_of, processes
from fusetune.bench.workloads import WORKLOADS as JOBS
from fusetune.bench.workloads import Workload
from fusetune.host import Host
from fusetune.recipes.command_line import Changes
from tests.bench.advised_mounts import (
    FILES,
    KINDS,
    SIZE,
    Kind,
    Services,
    services,
    tree,
    write_data,
)
from tests.bench.contest import paired
from tests.bench.page import Section, ratio, table
from tests.native.advised import changed
from tests.native.mirror import PATIENCE
from tests.native.servers import run_server
from tests.tmpfs import tmpfs

BLOCKS = 6
_SECONDS = 1.0  # after which fio ends an unfinished job
_RATIO = 40
_BEFORE, _SAFE, _ALL, _RATIOED = "as mounted", "safe", "all", f"all, max_ratio {_RATIO}"
_ANY = "all, of any workload"
_COLUMNS = (
    *("server", "workload", _SAFE, _ALL, _RATIOED, _ANY),
    *("server's CPU s/GiB: as mounted, all", "client's CPU s/GiB: as mounted, all"),
)


@dataclass(frozen=True)
class Mounted:
    """A mounted tree. ``pids`` of its server; ``max_ratio``: the file of this knob."""

    point: Path
    pids: Sequence[int]
    max_ratio: Path


@dataclass(frozen=True)
class Sample:
    """One run of a workload: its figure, GiB transferred, CPU seconds of server and client."""

    figure: float
    gib: float
    server: float
    client: float


@contextmanager
def _mounted(kind: Kind, running: Services, directory: Path, values: Changes) -> Iterator[Mounted]:
    command = changed(kind.recipe, tree(kind, running, directory), values)
    with run_server(command, directory / "mnt", directory / "log") as (process, bdi):
        if kind.through:
            write_data(directory / "mnt")
        pids = (process.pid, *running.pids)
        yield Mounted(directory / "mnt", pids, Path("/sys/class/bdi", bdi, "max_ratio"))


def _advice(point: Path, *workloads: str) -> tuple[Changes, Changes]:
    """Return the safe changes and all that fusetune proposes, for any workload if none is named."""
    words = [word for name in workloads for word in ("-w", name)]
    command = [sys.executable, "-m", "fusetune", "advise", str(point), "--json", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE, check=False)
    changes = json.loads(done.stdout)["changes"]
    safe = {one["option"]: one["to"] for one in changes if one["class"] == "safe"}
    return safe, {one["option"]: one["to"] for one in changes}


def job_of(workload: Workload, kind: Kind) -> str:
    """Return fio's job; for a read-only server, only the reading parts of metadata."""
    if "seq-write" in kind.workloads:
        return workload.job
    parts = re.split(r"^(?=\[)", workload.job, flags=re.MULTILINE)
    return "".join(part for part in parts if not part.startswith(("[create]", "[unlink]")))


def _sample(mounted: Mounted, workload: Workload, job: str) -> Sample:
    (mounted.point / "write-data").unlink(missing_ok=True)
    environment = {
        **os.environ,
        "FUSETUNE_RUNTIME": str(int(_SECONDS * 1000)),
        "FUSETUNE_READ_SIZE": str(SIZE),
        "FUSETUNE_WRITE_SIZE": str(SIZE),
        "FUSETUNE_FILES": str(FILES),
    }
    began, spent = _server(mounted), _children()
    done = subprocess.run(
        ["fio", "--output-format=json", "-"],
        input=job,
        cwd=mounted.point,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    client, server = _children() - spent, _server(mounted) - began
    jobs = json.loads(done.stdout[done.stdout.find("{") :])["jobs"]
    moved = sum(one[way]["io_bytes"] for one in jobs for way in ("read", "write"))
    return Sample(workload.figure(jobs), moved / (1 << 30), server, client)


def _server(mounted: Mounted) -> float:
    return cpu_of(set(map(str, mounted.pids)), processes(Host())).seconds


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _blocks(
    mounts: Mapping[str, Mounted], workload: Workload, job: str, blocks: int
) -> dict[str, list[Sample]]:
    """Measure each contender once per block, in random order."""
    order = [name for name in mounts if name != _RATIOED or workload.writes]
    found: dict[str, list[Sample]] = {name: [] for name in order}
    shuffle = random.Random(1)
    for _ in range(blocks):
        shuffle.shuffle(order)
        for name in order:
            file = mounts[name].max_ratio
            stock = file.read_text()
            if name == _RATIOED:
                file.write_text(str(_RATIO))
            found[name].append(_sample(mounts[name], workload, job))
            file.write_text(stock)
    return found


def row(server: str, workload: str, found: Mapping[str, Sequence[Sample]]) -> list[str]:
    """Return the cells of one workload on one server, from each contender's measurements."""
    logs = {name: [math.log(one.figure) for one in samples] for name, samples in found.items()}
    gains = (
        ratio(paired(logs[name], logs[_BEFORE])) if name in logs else ""
        for name in (_SAFE, _ALL, _RATIOED, _ANY)
    )
    costs = ("", "")
    if not JOBS[workload].makes_files:
        sides = [found[name] for name in (_BEFORE, _ALL) if name in found]
        costs = (
            ", ".join(_cost([one.server for one in side], side) for side in sides),
            ", ".join(_cost([one.client for one in side], side) for side in sides),
        )
    return [server, workload, *gains, *costs]


def _cost(seconds: Sequence[float], samples: Sequence[Sample]) -> str:
    return f"{sum(seconds) / sum(one.gib for one in samples):.2f}"


def _rows(server: str, blocks: int) -> Iterator[Sequence[str]]:
    """Measure all workloads on one server; yield the rows of the table."""
    kind = KINDS[server]
    with (
        tempfile.TemporaryDirectory(prefix="fusetune-bench-") as name,
        tmpfs(Path(name), "size=4G,mode=0755"),
        services(Path(name) / "services") as running,
        ExitStack() as stack,
    ):
        directory = Path(name)

        @cache
        def mounted(values: frozenset[tuple[str, str | None]]) -> Mounted:
            tree = Path(tempfile.mkdtemp(dir=directory))
            return stack.enter_context(_mounted(kind, running, tree, dict(values)))

        first = mounted(frozenset())
        _, any_ = _advice(first.point)
        for workload in kind.workloads:
            safe, every = _advice(first.point, workload)
            wanted = {_SAFE: safe, _ALL: every, _RATIOED: every}
            wanted |= {_ANY: any_} if any_ != every else {}
            mounts = {name: mounted(frozenset(one.items())) for name, one in wanted.items() if one}
            job = job_of(JOBS[workload], kind)
            found = _blocks({_BEFORE: first} | mounts, JOBS[workload], job, blocks)
            yield row(server, workload, found)


def _table(servers: Sequence[str], blocks: int) -> str:
    rows: list[Sequence[str]] = []
    for server in servers:
        print(f"... {server}", file=sys.stderr, flush=True)
        rows += _rows(server, blocks)
    return table(_COLUMNS, rows)


def _make() -> str:
    return _table(list(KINDS), BLOCKS)


ADVICE = Section(
    "Mounted as advised",
    "Speed of Debian 12's servers with the safe changes that `fusetune advise -w WORKLOAD` "
    "proposes, with all changes that it proposes, with all of them and `max_ratio` 40, and with "
    "all that it proposes if no workload is named, as a ratio to the speed with the original "
    f"mount. The brackets contain the 95 % interval over {BLOCKS} blocks; each block measures "
    "every mount once, in random order. All are mounted at the same time over identical trees on "
    "tmpfs. A field is empty if nothing is proposed, if the same is proposed, or if nothing is "
    "written. CPU time is in seconds per GiB; that of the server includes the programs behind "
    "it: sshd on this host, and a local S3 server that stores its objects in memory. rclone is "
    "mounted with `--vfs-cache-mode writes`. For squashfuse, metadata means opening files and "
    "reading their attributes. When this section was measured, metadata counted neither the "
    "creation of files nor their opening.",
    (_COLUMNS,),
    _make,
)


def main() -> None:
    """Measure some servers and print the table."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.advice", description=__doc__)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=", ".join(KINDS))
    asked = parser.parse_args()
    print(_table(asked.servers or list(KINDS), asked.blocks))


if __name__ == "__main__":
    main()
