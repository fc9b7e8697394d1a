# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands of fusetune, measured on this host: list, --help, bench --calibrate and --suite."""

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusetune.bench.calibrate import NATIVE
from fusetune.bench.intervals import Interval
from tests.bench.contest import paired
from tests.bench.page import Section, ratio, table
from tests.native.raw import RawMounts

RUNS = 15
_FUSETUNE = (sys.executable, "-m", "fusetune")
_WORKLOADS = ("seq-read", "seq-write", "small-write")
_CALIBRATE = ("bench", "--calibrate", *(word for name in _WORKLOADS for word in ("-w", name)))
_PUBLISHED = ("bench", "--suite", "published")
_LISTED = ("FUSE mounts", "ratio")
_PAPER = ("ratio of", "published", "here")


def _seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _median_ratio(ours: Sequence[str], theirs: Sequence[str]) -> Interval:
    """Return the median ratio of two commands' times, run in turn, with the least and the most."""
    ratios = sorted(_seconds(ours) / _seconds(theirs) for _ in range(RUNS))
    return Interval(statistics.median(ratios), ratios[0], ratios[-1])


def _printed(command: Sequence[str]) -> Any:
    run = subprocess.run([*_FUSETUNE, *command, "--json"], capture_output=True, check=True)
    return json.loads(run.stdout)


def _list() -> str:
    shell = (
        "findmnt -J; cat /sys/class/bdi/0:*/{max_ratio,strict_limit,read_ahead_kb} "
        "/sys/fs/fuse/connections/*/{max_background,congestion_threshold}"
    )
    rows = []
    for count in (10, 100, 1000):
        with tempfile.TemporaryDirectory() as name, RawMounts(count, Path(name)):
            found = _median_ratio([*_FUSETUNE, "list", "--json"], ["bash", "-c", shell])
            rows.append((str(count), ratio(found)))
    return table(_LISTED, rows)


def _start() -> str:
    click = [sys.executable, "-c", "import click"]
    return f"Ratio: {ratio(_median_ratio([*_FUSETUNE, '--help'], click))}."


def _calibration() -> str:
    series = _printed(_CALIBRATE)["series"]
    logs = {
        one["label"]: [[math.log(s) for s in w["samples"]] for w in one["workloads"]]
        for one in series
    }
    shown = [label for label in logs if logs[label] and label != NATIVE]
    rows = [
        (workload, *(ratio(paired(logs[label][n], logs[NATIVE][n])) for label in shown))
        for n, workload in enumerate(_WORKLOADS)
    ]
    absent = [f"{one['label']}: {one['absent_reason']}" for one in series if one["absent_reason"]]
    return "\n\n".join((table(("workload", *shown), rows), *absent))


def _paper(work: dict[str, Any]) -> list[str]:
    """Return the paragraphs about one paper."""
    parts = [f"### {work['title']}", work["stands_for"]]
    cells = [
        (row["label"], f"{row['published_ratio']:.2f}", ratio(Interval(row["ratio"], *row["ci95"])))
        for row in work["rows"]
        if row["ratio"]
    ]
    if cells:
        parts.append(table(_PAPER, cells))
    for reason in dict.fromkeys(row["absent_reason"] for row in work["rows"]):
        if reason:
            rows = [row["label"] for row in work["rows"] if row["absent_reason"] == reason]
            parts.append(f"Not here: {', '.join(rows)}: {reason.rstrip('.')}.")
    return parts


def _published() -> str:
    return "\n\n".join(part for work in _printed(_PUBLISHED)["works"] for part in _paper(work))


LIST = Section(
    "Listing many mounts",
    "Time of `fusetune list --json` as a ratio to the time of `findmnt -J` and one `cat` of the "
    f"same files, run alternately {RUNS} times: the median, and in brackets the minimum and the "
    "maximum.",
    (_LISTED,),
    _list,
)
START = Section(
    "Start-up",
    "Time of `fusetune --help` as a ratio to the time of `python3 -c 'import click'`, run "
    f"alternately {RUNS} times: the median, and in brackets the minimum and the maximum.",
    (),
    _start,
)
CALIBRATION = Section(
    "What FUSE can do on this host",
    f"`fusetune {' '.join(_CALIBRATE)} --json`: speed as a ratio to the speed of {NATIVE}. The "
    "brackets contain the 95 % interval over the rounds.",
    (("workload", "mirrorfs, stock", "mirrorfs, tuned"),),
    _calibration,
)
PUBLISHED = Section(
    "Five published papers",
    f"`fusetune {' '.join(_PUBLISHED)} --json`. The brackets contain the 95 % interval over the "
    "rounds.",
    (_PAPER,),
    _published,
)
