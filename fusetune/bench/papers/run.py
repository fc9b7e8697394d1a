# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the papers' jobs on mounts of our own, or on a given one, as ratios."""

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fusetune.bench.intervals import Interval, ratio_interval
from fusetune.bench.measure import Measurement, measure
from fusetune.bench.mirror import command, mirror, mirrorfs_binary, native, tmpfs
from fusetune.bench.papers.catalogue import PAPERS, Paper, Ratio, Series
from fusetune.bench.spending import Budget
from fusetune.bench.worker import Interrupted, Interruption
from fusetune.bench.workloads import picked
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount

_DEVICE = "/dev/fusetuned"
_IMAGE_BYTES = 1 << 30
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Row:
    """A ratio as published and as measured; ``absent`` says why there is none."""

    ratio: Ratio
    measured: Interval | None
    absent: str | None


@dataclass(frozen=True)
class PaperResult:
    """One paper's rows, and the cost of measuring them."""

    work: Paper
    rows: list[Row]
    seconds: float
    bytes_written: int
    evaluations: int


def chosen_papers(names: Sequence[str]) -> list[Paper]:
    """Return the named papers, each once, or all. Raises UsageError for an unknown one."""
    return picked("work", PAPERS, names or PAPERS)


def run(
    host: Host,
    mount: Mount | None,
    works: Sequence[Paper],
    budget: Budget,
    *,
    size: int | None = None,
    progress: Progress = lambda share, words: None,
) -> list[PaperResult]:
    """Measure each paper within its share of ``budget``, on ``mount`` if one is given.

    A paper that cannot be measured has the reason. Raises FusetuneError if nothing can be mounted
    (not root), `Interrupted` after a signal; then nothing remains mounted.
    """
    if not mount and os.geteuid() != 0:
        raise FusetuneError(
            "--suite mounts tmpfs and mirrorfs; run fusetune as root, or give a mount"
        )
    share = Budget(budget.seconds / len(works), budget.bytes_written // len(works))
    results = []
    with Interruption() as interruption:
        for number, work in enumerate(works):

            def shown(part: float, words: str, number: int = number, name: str = work.name) -> None:
                progress((number + part) / len(works), f"{name}: {words}")

            how = {"size": size, "progress": shown, "interruption": interruption}
            try:
                interruption.check()
                if mount:
                    results.append(_on_mount(host, mount, work, share, how))
                else:
                    results.append(_on_own(host, work, share, interruption, how))
            except Interrupted:
                raise
            except FusetuneError as error:  # the other papers still count
                results.append(_result(work, [], dict.fromkeys(work.series, str(error))))
    return results


def _on_mount(
    host: Host, mount: Mount, work: Paper, budget: Budget, how: Mapping[str, Any]
) -> PaperResult:
    """Measure ratios between workloads, not between mounts, on ``mount``.

    ``how``: further arguments of `measure`.
    """
    first = next(iter(work.series))
    here = [ratio for ratio in work.ratios if ratio.over[0] == ratio.under[0] == first]
    if not here:
        why = "it compares mounts: run it without giving one"
        return _result(work, [], dict.fromkeys(work.series, why))
    measured = measure(host, {first: mount}, work.workloads, budget, **how)
    return _result(replace(work, ratios=here), measured, {})


def _on_own(
    host: Host, work: Paper, budget: Budget, interruption: Interruption, how: Mapping[str, Any]
) -> PaperResult:
    """Measure on our own mounts, as far as this host supports them; ``how`` as above."""
    absent: dict[str, str] = {}
    with ExitStack() as contexts:
        directory = contexts.enter_context(tmpfs(host))
        mounts = {}
        for number, (label, series) in enumerate(work.series.items()):
            interruption.check()
            try:
                mounts[label] = contexts.enter_context(_mounted(host, series, directory, number))
            except FusetuneError as error:
                absent[label] = str(error)
        interruption.check()
        both = [r for r in work.ratios if {r.over[0], r.under[0]} <= mounts.keys()]
        wanted = {label: mounts[label] for r in both for label in (r.over[0], r.under[0])}
        measured = []
        if wanted:
            measured = measure(host, wanted, work.workloads, budget, **how)
    return _result(work, measured, absent)


@contextmanager
def _mounted(host: Host, series: Series, directory: Path, number: int) -> Iterator[Mount]:
    """Mount one series. Raises FusetuneError if this host cannot."""
    if series.f2fs_threshold is not None:
        with _f2fs(directory / f"f2fs{number}", series.f2fs_threshold) as mount:
            yield mount
        return
    source = directory / "source"
    if series.options is None:
        yield native(source)
        return
    options = series.options
    if series.module and os.path.exists(_DEVICE):
        options += f",tuned,tuned_options={series.module}"
    elif series.module and not series.otherwise:
        raise FusetuneError("the module fusetuned is not loaded: see 'fusetune module status'")
    elif series.otherwise:
        options += f",{series.otherwise}"
    with mirror(host, mirrorfs_binary(), source, directory / f"mount{number}", options) as mount:
        yield mount


@contextmanager
def _f2fs(point: Path, threshold: int) -> Iterator[Mount]:
    """Mount an image with our f2fs and set the number of blocks from which it serializes."""
    if not shutil.which("mkfs.f2fs"):
        raise FusetuneError("mkfs.f2fs is not installed: install f2fs-tools")
    point.mkdir()
    with tempfile.NamedTemporaryFile(prefix="fusetune-f2fs-", dir="/var/tmp") as image:
        image.truncate(_IMAGE_BYTES)
        command(["mkfs.f2fs", "-q", image.name])
        command(["mount", "-t", "f2fs", "-o", "loop", image.name, str(point)])
        try:
            number = point.stat().st_dev
            disk = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
            file = Path("/sys/fs/f2fs", disk, "serialize_alloc_blocks")
            if not file.exists():
                raise FusetuneError(
                    "the loaded f2fs is the kernel's own instead of f2fs-tuned; run 'fusetune "
                    "module load f2fs-tuned'"
                )
            file.write_text(f"{threshold}\n", encoding="ascii")
            yield native(point)
        finally:
            command(["umount", "--lazy", str(point)])


def _result(work: Paper, measured: Sequence[Measurement], absent: Mapping[str, str]) -> PaperResult:
    logs = {
        (one.label, figure.workload.name): [math.log(sample) for sample in figure.samples]
        for one in measured
        for figure in one.figures
    }
    rows = []
    for ratio in work.ratios:
        why = absent.get(ratio.over[0]) or absent.get(ratio.under[0])
        interval = None
        if not why:
            pairs = zip(logs[ratio.over], logs[ratio.under], strict=True)
            interval = ratio_interval([a - b for a, b in pairs], 0.05, math.inf)
        rows.append(Row(ratio, interval, why))
    return PaperResult(
        work,
        rows,
        max((one.seconds for one in measured), default=0.0),
        sum(one.bytes_written for one in measured),
        sum(one.evaluations for one in measured),
    )
