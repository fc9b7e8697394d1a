# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures a mount with its existing files, and writes nothing to it.

fio drops a range from the page cache before reading it (POSIX_FADV_DONTNEED), and no other file or
range. `ranges` describes which ranges are read, and when the server's cache is warm.
"""

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from fusetune.bench import faults, worker
from fusetune.bench.existing import Existing, ExistingFile
from fusetune.bench.figures import Job, number
from fusetune.bench.holder import LAID_OUT
from fusetune.bench.place import BenchPlace
from fusetune.bench.ranges import MIB, SHORTEST, Range, Ranges
from fusetune.bench.runner import SAMPLES_WANTED, Bench, BudgetSpent
from fusetune.bench.spending import ALL_READ, RANGES, Budget, Left
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import Workload, only_job
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.text import printable

_RANDOM_READ = 4096  # bytes: the smallest read of a workload
_PROBE = 64 * MIB  # maximum bytes read to determine the speed
_FASTER = 4  # how much faster it may become
_WARMING_SHARE = 4  # fraction of the budget for reading all ranges once
#: How far the kernel reads ahead at most, in units of read_ahead_kb: fio announces sequential
#: reading, which doubles the window (mm/fadvise.c), and the next is begun in the present one.
_AHEAD = 4


class RangesSpent(BudgetSpent):
    """A cold run has no range left; earlier samples remain valid."""

    part = RANGES

    def __init__(self) -> None:
        FusetuneError.__init__(self, f"{ALL_READ}; name more files with --files")


@dataclass
class Reading:
    """What a run reads, shared by all mounts that it compares.

    ``paths``: files and directories relative to the mount's root; none: large files are searched
    for. ``tell``: gets a line for the user before the first read; ``place`` and ``budget`` are the
    mount and the limits that it names, None for those of the bench. ``read_ahead_kb``: the largest
    value that will be tried. ``guarded``: whether guards read as well (`Bench.measure_reader`).
    ``files`` and ``ranges``: the result of the search, once the first bench has begun.
    """

    paths: Sequence[str] = ()
    tell: Callable[[str], None] = lambda line: None
    place: str | None = None
    budget: Budget | None = None
    read_ahead_kb: int = 0
    guarded: bool = False
    files: list[ExistingFile] = field(default_factory=list)
    ranges: Ranges | None = None

    def expect(self, read_ahead_kb: int, *, guarded: bool) -> None:
        """Say what the ranges must suffice for, before the first bench begins."""
        assert not self.ranges, "they are chosen already"  # noqa: S101
        self.read_ahead_kb, self.guarded = read_ahead_kb, guarded

    @property
    def why(self) -> str:
        """A sentence on the ranges that were compared."""
        if not self.ranges:
            return "nothing was read"
        ranges = f"ranges of {self.ranges.length // MIB} MiB"
        if self.ranges.cold:
            return f"{ranges} were drawn at random, and none was read twice"
        return (
            "the files are too small to read each range only once, so "
            f"{self.ranges.count} {ranges} were read before the first sample: the server's cache "
            "was warm for all samples"
        )


class ReadBench(Bench):
    """Reads ranges of files on a mount by fio, within a budget; used as `Bench`."""

    def __init__(
        self,
        host: Host,
        mount: Mount,
        workloads: Sequence[Workload],
        budget: Budget,
        interruption: Interruption,
        reading: Reading,
        sample_seconds: float | None = None,
        inherited: Collection[int] = (),
    ) -> None:
        """Prepare nothing yet; ``workloads`` only read. Arguments and errors as in `Bench`."""
        super().__init__(
            host, mount, workloads, budget, interruption, None, sample_seconds, inherited
        )
        self._reading = reading
        self._existing: Existing
        self._ranges: Ranges
        self._reads: Sequence[Range] = ()  # by the running fio
        self._before = 0, 0  # bytes and calls of all that is no evaluation

    def _prepare(self, contexts: ExitStack, seconds: float) -> None:
        paths = [file.path for file in self._reading.files] or self._reading.paths
        made = Existing(self._host, self.mount, paths, self._fio, self._inherited)
        contexts.callback(made.end)
        self._existing = made
        made.begin(seconds, self._interruption)
        if not self._reading.ranges:
            self._begin(self._reading)
        assert self._reading.ranges  # noqa: S101 - `_begin` sets it
        self._ranges = self._reading.ranges
        if not self._ranges.cold:
            self._warm()
        self._before = self.bytes_read, self.requests

    def _begin(self, reading: Reading) -> None:
        """Announce what will be read, determine the speed, and choose the ranges."""
        reading.files = self._existing.files
        self._tell(reading)
        each = sum(len(_sections(workload.job)) for workload in self.workloads) + reading.guarded
        samples = SAMPLES_WANTED * each
        largest = min(
            self.budget.bytes_read // samples, self.budget.requests // samples * _RANDOM_READ
        )
        sizes = [file.size for file in reading.files]
        probe = Range(0, 0, max(SHORTEST, min(_PROBE, largest, sizes[0] // MIB * MIB)))
        (job,) = self._read([probe], _plain_job(self.sample_seconds), self.sample_seconds)
        rate = number(job, "read", "io_bytes") / max(number(job, "read", "runtime") / 1000, 0.001)
        wanted = min(largest, int(rate * self.sample_seconds * _FASTER))
        least = max(workload.least_bytes for workload in self.workloads)
        # The kernel may read that far ahead of a sample, and another sample into this one's range;
        # half of the samples are expected to have much smaller values.
        ahead = _AHEAD * max(self._read_ahead(), reading.read_ahead_kb << 10)
        try:
            reading.ranges = Ranges(sizes, each, max(wanted, least), least, ahead)
        except ValueError as error:
            raise FusetuneError(
                f"no file has the {least // MIB} MiB that a workload reads; name larger files "
                "with --files"
            ) from error
        reading.ranges.give_up(0, 0, probe.length + _AHEAD * self._read_ahead())

    def _tell(self, reading: Reading) -> None:
        first = ", ".join(printable(file.path) for file in reading.files[:3])
        more = len(reading.files) - 3
        budget = reading.budget or self.budget
        reading.tell(
            f"reads at most {budget.bytes_read // MIB} MiB (--budget-read) in at most "
            f"{budget.requests} calls (--budget-requests) of {first}"
            + (f" and {more} more files" if more > 0 else "")
            + f" in {printable(reading.place or self.mount.path)}, and writes nothing there"
        )

    def _warm(self) -> None:
        """Read all ranges once, as far as a share of the budget allows, and use only these."""
        bytes_left = self.budget.bytes_read // _WARMING_SHARE
        until = self.seconds + self.budget.seconds / _WARMING_SHARE
        read = []
        for one in self._ranges.every:
            if self.seconds > until or bytes_left < one.length:
                break
            seconds = max(1.0, until - self.seconds)
            self._read([one], _plain_job(seconds), seconds)
            bytes_left -= one.length
            read.append(one)
        self._ranges.keep(read)

    def _run_workload(self, workload: Workload) -> list[dict[str, Any]]:
        return self._jobs(workload, self.sample_seconds)

    def measure_reader(self, workload: Workload) -> float:
        """Measure another workload that reads ranges, in half the time of a sample.

        Returns its figure, in its unit. Raises like `measure`.
        """
        before = self.bytes_read, self.requests
        figure = workload.figure(self._jobs(workload, self.sample_seconds / 2))
        # The cost of an evaluation does not include it.
        spent = self.bytes_read - before[0], self.requests - before[1]
        self._before = self._before[0] + spent[0], self._before[1] + spent[1]
        return figure

    def _jobs(self, workload: Workload, seconds: float) -> list[dict[str, Any]]:
        """Run each of a workload's jobs in its own range, for up to ``seconds``."""
        names = _sections(workload.job)
        ranges = [self._take() for _ in names]
        if not workload.maps:
            return self._read(ranges, workload.job, seconds)
        every = zip(names, ranges, strict=True)
        return [self._fault(only_job(workload, name), one, seconds) for name, one in every]

    def _fault(self, workload: Workload, one: Range, seconds: float) -> dict[str, Any]:
        """Let a job fault in a range; return its result."""
        self._reads = [one]
        words = faults.command(workload, self._file(one).name, one, self._apart(), seconds)
        command = self._place.command(words)

        with self._checking(workload.job):
            ended = self._patiently(
                seconds, lambda most: worker.run(command, most, self._interruption)
            )
        self._check(workload.job, max(1.0, min(5.0, self.seconds_left)))
        job = faults.job_of(self.mount, *ended)
        self._count([job])
        return job

    def _take(self) -> Range:
        """Return the next range; no other sample may read what the kernel reads ahead of it.

        Nor may the kernel read ahead into the range of another sample. Raises `RangesSpent`.
        """
        one = self._ranges.take()
        if one is None:
            raise RangesSpent
        ahead = _AHEAD * self._read_ahead()
        self._ranges.give_up(one.file, one.offset - ahead, one.offset + one.length + ahead)
        return one

    def _read(self, ranges: Sequence[Range], job: str, seconds: float) -> list[dict[str, Any]]:
        """Run a job whose sections each read a range instead of the file that they name."""
        self._reads = ranges
        job = re.sub(rf"^filename={LAID_OUT}\n", "", job, flags=re.MULTILINE)
        for section, one in zip(_sections(job), ranges, strict=True):
            there = f"[{section}]\nfilename={self._file(one).name}\noffset={one.offset}\n"
            job = job.replace(f"[{section}]\n", there, 1)
        parameters = {
            "FUSETUNE_RUNTIME": str(int(seconds * 1000)),
            "FUSETUNE_READ_SIZE": str(ranges[0].length),
        }
        jobs = self._run_fio(job, seconds, parameters)
        self._count(jobs)
        return jobs

    def _count(self, jobs: Sequence[Job]) -> None:
        self.bytes_read += sum(int(number(job, "read", "io_bytes")) for job in jobs)
        self.requests += sum(int(number(job, "read", "total_ios")) for job in jobs)

    def _file(self, one: Range) -> ExistingFile:
        path = self._reading.files[one.file].path
        return next(file for file in self._existing.files if file.path == path)

    @property
    def _place(self) -> BenchPlace:
        return self._existing

    def _check(self, job: str, seconds: float) -> bool:
        for file in {self._file(one) for one in self._reads}:
            self._existing.check(file, seconds)
        return True

    def _rest(self) -> Left:
        budget, (bytes_before, requests_before) = self.budget, self._before
        done = self.evaluations + 1  # the warm-up was the first
        each = sum(len(_sections(workload.job)) for workload in self.workloads)
        bytes_a_time = max(1, self.bytes_read - bytes_before) / done
        requests_a_time = max(1, self.requests - requests_before) / done
        return {
            RANGES: self._ranges.affordable() / each,
            "bytes_read": (budget.bytes_read - self.bytes_read) / bytes_a_time,
            "requests": (budget.requests - self.requests) / requests_a_time,
        }


def _sections(job: str) -> list[str]:
    """Return the names of the sections of a job file, each of which reads a range."""
    return [name for name in re.findall(r"^\[(.+)\]$", job, re.MULTILINE) if name != "global"]


def _plain_job(seconds: float) -> str:
    """Return a job that reads a range from its start, for at most ``seconds``."""
    return (
        "[global]\nthread\nclocksource=clock_gettime\nioengine=psync\ninvalidate=1\n"
        f"[plain]\nfilename={LAID_OUT}\nrw=read\nbs=128k\nsize=${{FUSETUNE_READ_SIZE}}\n"
        f"runtime={int(seconds * 1000)}ms\n"
    )


def bench_of(
    host: Host,
    mount: Mount,
    workloads: Sequence[Workload],
    budget: Budget,
    interruption: Interruption,
    *,
    size: int | None = None,
    reading: Reading | None = None,
    sample_seconds: float | None = None,
    inherited: Collection[int] = (),
) -> Bench:
    """Return a bench that reads according to ``reading``, or one with scratch files if None.

    Arguments and errors as in `Bench`.
    """
    if reading is None:
        return Bench(host, mount, workloads, budget, interruption, size, sample_seconds, inherited)
    return ReadBench(
        host, mount, workloads, budget, interruption, reading, sample_seconds, inherited
    )
