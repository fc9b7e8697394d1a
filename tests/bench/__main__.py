# SPDX-License-Identifier: GPL-2.0-or-later
"""``make bench``: measured tables, printed and written to docs/benchmarks.md.

Every figure is a ratio of what was measured in the same run. ``--only NAME`` runs one table and
leaves the others in the file as they are.
"""

import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fusetune.bench.calibrate import NATIVE
from fusetune.bench.intervals import Interval
from fusetune.bench.papers.catalogue import PAPERS
from tests.bench.contest import BLOCKS, SERVERS, contest, paired
from tests.bench.cost import instructions
from tests.bench.papers import STOCK, measured_works
from tests.bench.shared import shared_files
from tests.bench.storm import ALONE, storms
from tests.kernel.guest.papers import ROUNDS as SIDE_ROUNDS
from tests.kernel.guest.shared import ROUNDS
from tests.kernel.machine import made_and_run
from tests.kernel.suites import SUITES, USERLAND
from tests.native.raw import RawMounts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
RUNS = 15
HEAD = """\
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
# Benchmarks

`make bench`, run as root, makes this page. Each section names the command that makes it alone, and
the machine. A speed or a time is always a ratio of two figures measured in the same run. Each
section says what stands in brackets: a 95 % interval of the mean ratio, or the least and the most
of the ratios. Unless a section says otherwise, the server is mirrorfs over tmpfs.
"""


def machine() -> str:
    """Describe this machine: kernel, cores, memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    fio = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True)
    return (
        f"Linux {platform.release().split('-')[0]} {platform.machine()}, {os.cpu_count()} cores, "
        f"{memory} GiB; Python {platform.python_version()}, {fio.stdout.strip()}"
    )


def ratio(interval: Interval) -> str:
    """Return a ratio and its interval as a table's cell."""
    return f"{interval.ratio:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)]
    return "\n".join(lines)


def words(setting: dict[str, int]) -> str:
    """Return a setting's values that are not stock."""
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "stock"


def contests() -> str:
    """auto beside the exhaustive grid and the static rules that people use."""
    results = []
    for server in SERVERS:
        print(f"... {server.name}", file=sys.stderr, flush=True)
        results.append(contest(server))
    names = list(results[0].ratios)
    return "\n\n".join(
        (
            "Speed with auto's choice, as a ratio to the speed with the contender's values; in "
            f"brackets the 95 % interval over {BLOCKS} blocks, in each of which every contender is "
            "measured once. The grid is every combination of the values that auto may choose from.",
            table(
                ("server", "workload", *names),
                [
                    (r.server.name, r.server.workload, *(ratio(r.ratios[n]) for n in names))
                    for r in results
                ],
            ),
            table(
                ("server", "auto chose", "grid's best", "evaluations", "seconds"),
                [
                    (
                        r.server.name,
                        words(r.chosen),
                        words(r.grid_best),
                        str(r.evaluations),
                        f"{r.seconds:.0f}",
                    )
                    for r in results
                ],
            ),
        )
    )


def seconds(command: Sequence[str]) -> float:
    """Return how long ``command`` takes, in seconds."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def median_ratio(ours: Sequence[str], theirs: Sequence[str]) -> Interval:
    """Return the median ratio of two commands' times, run in turn, with the least and the most."""
    ratios = sorted(seconds(ours) / seconds(theirs) for _ in range(RUNS))
    return Interval(statistics.median(ratios), ratios[0], ratios[-1])


def speed_of_list() -> str:
    """``list --json`` with many mounts."""
    shell = (
        "findmnt -J; cat /sys/class/bdi/0:*/{max_ratio,strict_limit,read_ahead_kb} "
        "/sys/fs/fuse/connections/*/{max_background,congestion_threshold}"
    )
    listing = [sys.executable, "-m", "fusetune", "list", "--json"]
    rows = []
    for count in (10, 100, 1000):
        with tempfile.TemporaryDirectory() as name, RawMounts(count, Path(name)):
            found = median_ratio(listing, ["bash", "-c", shell])
            rows.append((str(count), ratio(found)))
    return "\n\n".join(
        (
            "Time of `fusetune list --json` as a ratio to `findmnt -J` and one `cat` of the same "
            f"files, run in turn {RUNS} times: the median, in brackets the least and the most.",
            table(("FUSE mounts", "ratio"), rows),
        )
    )


def speed_of_start() -> str:
    """``fusetune --help``."""
    found = median_ratio(
        [sys.executable, "-m", "fusetune", "--help"], [sys.executable, "-c", "import click"]
    )
    return (
        "Time of `fusetune --help` as a ratio to `python3 -c 'import click'`, run in turn "
        f"{RUNS} times. The median, in brackets the least and the most: {ratio(found)}."
    )


def calibration() -> str:
    """``fusetune bench --calibrate``."""
    command = ["bench", "--calibrate", "-w", "seq-read", "-w", "seq-write", "-w", "small-write"]
    printed = subprocess.run(
        [sys.executable, "-m", "fusetune", *command, "--json"], capture_output=True, check=True
    )
    series = json.loads(printed.stdout)["series"]
    logs = {
        one["label"]: [[math.log(s) for s in w["samples"]] for w in one["workloads"]]
        for one in series
    }
    shown = [label for label in logs if logs[label] and label != NATIVE]
    rows = [
        (workload, *(ratio(paired(logs[label][n], logs[NATIVE][n])) for label in shown))
        for n, workload in enumerate(("seq-read", "seq-write", "small-write"))
    ]
    absent = [f"{one['label']}: {one['absent_reason']}" for one in series if one["absent_reason"]]
    return "\n\n".join(
        (
            f"`fusetune {' '.join(command)} --json`: speed as a ratio to {NATIVE}, in brackets the "
            "95 % interval over the rounds.",
            table(("workload", *shown), rows),
            *absent,
        )
    )


def storm() -> str:
    """The service with many mounts at once."""
    found, (alone, least, most) = storms()
    rows = []
    for one in found:
        each = one.cpu_seconds / one.count
        spread = Interval(each / alone, each / most, each / least)
        memory = f"{one.memory / (1 << 20):.0f} MiB"
        rows.append((str(one.count), ratio(spread), memory, str(one.starts)))
    return "\n\n".join(
        (
            "Mounts are made at once and unmounted again, in a container with its own systemd and "
            "udev. CPU time of fusetune.service per mount, its start included, is a ratio to that "
            f"of one `fusetune apply M`, which ran {ALONE} times: to the median, in brackets to "
            "the most and the least. Starts are the first one and those that systemd made because "
            "the service had failed.",
            table(("mounts", "CPU per mount", "peak memory", "starts"), rows),
        )
    )


def shared_file() -> str:
    """Writers of one file with the tuned module."""
    rows = [
        (one.mount, str(one.writers), ratio(one.ratio), str(one.in_flight))
        for one in shared_files()
    ]
    return "\n\n".join(
        (
            "Writers extend one shared file by direct writes of 4 KiB, each in a part of its own: "
            "speed as a ratio to that with a file each, and the most WRITEs in flight on the "
            f"shared file. Linux {USERLAND.series} runs in an emulated virtual machine with two "
            "cores; the server is mirrorfs with `write_delay=1ms`; fio has a thread for each "
            f"writer. Both are measured in turn {ROUNDS} times: the median, in brackets the least "
            "and the most.",
            table(("mount", "writers", "shared file to a file each", "in flight"), rows),
        )
    )


def cost() -> str:
    """The tuned module's statistics."""
    rows = []
    for opcode, samples in instructions().items():
        counted, without = ([math.log(sample[side]) for sample in samples] for side in (0, 1))
        found = paired(counted, without)
        more = statistics.median(sample[0] - sample[1] for sample in samples)
        of = f"{found.ratio:.4f} [{found.low:.4f}, {found.high:.4f}]"
        rows.append((opcode, of, f"{more:.0f}"))
    return "\n\n".join(
        (
            "Instructions of a request from call to return, in the calling program, the kernel and "
            "mirrorfs together: those of the tuned module as a ratio to those of the same module "
            "without the hooks of statistics. The calls are fstat(2) with no cached attributes and "
            "pread(2) of 512 bytes with direct I/O, 1000 of each per round, in 10 rounds with the "
            "modules in turn; in brackets the 95 % interval over the rounds. Instructions are "
            "counted, not timed, by QEMU's `-icount shift=0` with one processor and Debian's Linux "
            "6.12; an instruction that reads a clock counts as one.",
            table(("request", "ratio", "median of the additional instructions"), rows),
        )
    )


def f2fs() -> str:
    """Writers at once on f2fs."""
    rows = []
    for suite in SUITES:
        said = made_and_run(suite.series, "check_f2fs_keeps_a_writes_blocks_together")
        entry = said.checks["check_f2fs_keeps_a_writes_blocks_together"]
        if entry["failure"]:
            raise RuntimeError(entry["failure"])
        rows += [(suite.series, *map(str, counts)) for counts in entry["value"]]
    return "\n\n".join(
        (
            "Several writers make direct writes of 2 MiB at once, 16 MiB each (16 writers: 64 MiB "
            "each), to a new f2fs in an emulated virtual machine with Debian's kernel. The table "
            "counts, by FIEMAP, at how many places the blocks of one write are apart, except at "
            "the end of a segment. Each count is of one run; a run of the kernel's f2fs is "
            "repeated up to 5 times while it tore no write.",
            table(("Linux", "writers", "the kernel's f2fs", "f2fs-tuned"), rows),
        )
    )


def published() -> str:
    """Five published papers on this host."""
    command = ["bench", "--suite", "published"]
    printed = subprocess.run(
        [sys.executable, "-m", "fusetune", *command, "--json"], capture_output=True, check=True
    )
    parts = [f"`fusetune {' '.join(command)} --json`; in brackets the 95 % interval over rounds."]
    for work in json.loads(printed.stdout)["works"]:
        parts += [f"### {work['title']}", work["stands_for"]]
        shown = [row for row in work["rows"] if row["ratio"]]
        cells = [
            (
                row["label"],
                f"{row['published_ratio']:.2f}",
                ratio(Interval(row["ratio"], *row["ci95"])),
            )
            for row in shown
        ]
        if cells:
            parts.append(table(("ratio of", "published", "here"), cells))
        for reason in dict.fromkeys(row["absent_reason"] for row in work["rows"]):
            if reason:
                rows = [row["label"] for row in work["rows"] if row["absent_reason"] == reason]
                parts.append(f"Not here: {', '.join(rows)}: {reason.rstrip('.')}.")
    return "\n\n".join(parts)


#: By paper: what its sizes are, and why stock has what it has.
_SIDES = {
    "szeredi": (
        "bytes of the largest WRITE",
        "Every later kernel and libfuse has direct_io and big_writes, so there the tuned column "
        "should equal the stock one; the library gives them to servers that do not ask for them. "
        "The writeback cache is what is tuned: with max_ratio 100 and strict_limit 0 it takes the "
        "whole burst.",
    ),
    "hayasaka": (
        "bytes of the largest request",
        "Linux has taken up to 256 pages per request since 4.20, and libfuse asks for them. So "
        "stock has that part of the gain, and only requests of more than 256 pages are the tuned "
        "column's. Since 3.10 the requests of one direct read or write are sent at once (async_dio "
        "in fs/fuse/file.c). The waits between them, which larger requests saved in 2012, are gone "
        "with 32 pages already.",
    ),
    "singh-atomic": (
        "requests a file",
        "LOOKUP and OPEN, or LOOKUP and CREATE, are one request, which no kernel has by itself. "
        "mirrorfs serves it by its own atomic_open=on.",
    ),
}


def tuned_vs_stock() -> str:
    """Published papers by module and library, beside stock."""
    parts = [
        "Speed as a ratio to that of the mount that was stock in the paper, on the kernel's own "
        "FUSE and the distribution's libfuse in the same run: as published, of other stock mounts, "
        "and of the tuned module with the tuned library. In brackets is the 95 % interval over "
        f"{SIDE_ROUNDS} rounds. dd stands for dd and iozone, opens stand for bonnie++. Linux "
        f"{USERLAND.series} runs in an emulated virtual machine with two cores. The last column "
        "has sizes with stock, then with tuned."
    ]
    for name, found in measured_works().items():
        what, why = _SIDES[name]
        rows = [
            (
                f"{gain.mount}, {gain.workload}",
                f"{gain.published:.2f}",
                *(ratio(one) if one else "" for one in (gain.stock, gain.tuned)),
                ", ".join("-" if size is None else str(size) for size in gain.sizes),
            )
            for gain in found
        ]
        parts += [
            f"### {PAPERS[name].title}",
            f"Ratios are to {STOCK[name]}. {why}",
            table(("mount", "published", "stock", "tuned", what), rows),
        ]
    return "\n\n".join(parts)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "contests": ("auto, the grid and the static rules", contests),
    "list": ("Listing many mounts", speed_of_list),
    "storm": ("Many mounts at once", storm),
    "start": ("Start-up", speed_of_start),
    "shared-file": ("One shared file", shared_file),
    "cost": ("What statistics of the tuned module cost", cost),
    "f2fs": ("Writers at once on f2fs", f2fs),
    "published": ("Five published papers", published),
    "tuned_vs_stock": ("Published papers with module and library, beside stock", tuned_vs_stock),
    "calibration": ("What FUSE can do on this host", calibration),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=TABLES)
    only = parser.parse_args().only
    if os.geteuid() != 0:
        sys.exit("make bench mounts file systems and writes to /sys: run it as root")
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", old, re.MULTILINE | re.DOTALL))
    for name, (title, make) in TABLES.items():
        if only in (None, name):
            command = f"`python3 -m tests.bench --only {name}` on {machine()}"
            sections[title] = f"\n{command}.\n\n{make()}\n\n"
            print(f"\n## {title}\n{sections[title]}", flush=True)
    body = "".join(f"\n## {title}\n{text.rstrip()}\n" for title, text in sections.items())
    PAGE.write_text(HEAD + body, encoding="utf-8")


if __name__ == "__main__":
    main()
