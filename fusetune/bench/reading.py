# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures a mount with its existing files, and writes nothing to it.

fio drops a range from the page cache before reading it (POSIX_FADV_DONTNEED), and no other file or
range. `ranges` describes which ranges are read, and when the server's cache is warm. A workload
that opens many files opens the same ones in each sample, and did so before the first one.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from fusetune.bench import faults, worker
from fusetune.bench.existing import Existing, ExistingFile
from fusetune.bench.figures import Job, number
from fusetune.bench.finding import FEWEST_SMALL, Wanted
from fusetune.bench.fio import only
from fusetune.bench.place import BenchPlace
from fusetune.bench.ranges import MIB, SHORTEST, Range, Ranges
from fusetune.bench.readers import (
    block_and_step,
    opening,
    parts,
    placed,
    ranges_worth,
    readers,
)
from fusetune.bench.runner import SAMPLES_WANTED, Bench, BudgetSpent, PartSpent
from fusetune.bench.spending import ALL_READ, RANGES, Budget, Left
from fusetune.bench.worker import Interrupted, Interruption, Unanswered
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
    ``files``, their ``ranges`` and the paths ``opened``, ``loops`` times in a sample: the result of
    the search, once the first bench has begun.
    """

    paths: Sequence[str] = ()
    tell: Callable[[str], None] = lambda line: None
    place: str | None = None
    budget: Budget | None = None
    read_ahead_kb: int = 0
    guarded: bool = False
    files: list[ExistingFile] = field(default_factory=list)
    ranges: Ranges | None = None
    opened: list[str] = field(default_factory=list)
    loops: int = 1

    def expect(self, read_ahead_kb: int, *, guarded: bool) -> None:
        """Say what the ranges must suffice for, before the first bench begins."""
        assert not self.ranges, "they are chosen already"  # noqa: S101
        self.read_ahead_kb, self.guarded = read_ahead_kb, guarded

    @property
    def why(self) -> list[str]:
        """Sentences on what was compared."""
        sentences = [_of_ranges(self.ranges)] if self.ranges else []
        if self.opened:
            sentences.append(
                f"every sample opened the same {len(self.opened)} files, which were opened before "
                "the first one too: the server's cache was warm for all samples"
            )
        return sentences or ["nothing was read"]


def _of_ranges(found: Ranges) -> str:
    ranges = f"ranges of {found.length // MIB} MiB"
    if found.cold:
        return f"{ranges} were drawn at random, and none was read twice"
    return (
        "the files are too small to read each range only once, so "
        f"{found.count} {ranges} were read before the first sample: the server's cache was warm "
        "for all samples"
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
        self._ranged = [workload for workload in self.workloads if not workload.opens]
        self._reads: Sequence[Range] = ()  # by the running fio
        self._before = 0, 0  # bytes and calls of all that is no evaluation

    def _prepare(self, contexts: ExitStack, seconds: float) -> None:
        reading = self._reading
        known = bool(reading.files or reading.opened)
        wanted = Wanted(
            [file.path for file in reading.files] if known else reading.paths,
            bool(self._ranged) or reading.guarded,
            any(workload.opens for workload in self.workloads),
            reading.opened,
        )
        made = Existing(self._host, self.mount, wanted, self._fio, self._inherited)
        contexts.callback(made.end)
        self._existing = made
        made.begin(seconds, self._interruption)
        if not known:
            self._begin(reading)
        if reading.ranges:
            self._ranges = reading.ranges
            if not self._ranges.cold:
                self._warm()
        self._before = self.bytes_read, self.requests

    def _begin(self, reading: Reading) -> None:
        """Announce what will be read, and choose it."""
        reading.files = self._existing.files
        reading.opened = [file.path for file in self._existing.opened]
        self._tell(reading)
        if reading.opened:
            self._choose_number(reading)
        if reading.files:
            self._choose_ranges(reading)

    def _choose_number(self, reading: Reading) -> None:
        """Let a sample open as many files as it can in a part of its time."""
        for workload in self.workloads:
            if workload.opens:
                wanted = self._affordable_files(workload)
                reading.opened = reading.opened[: max(FEWEST_SMALL, wanted)]
                reading.loops = max(1, wanted // len(reading.opened))

    def _choose_ranges(self, reading: Reading) -> None:
        """Determine the speed, and choose the ranges."""
        worth = sum(map(ranges_worth, self._every_reader())) + reading.guarded
        samples = SAMPLES_WANTED * worth
        largest = min(
            self.budget.bytes_read // samples, self.budget.requests // samples * _RANDOM_READ
        )
        sizes = [file.size for file in reading.files]
        each = self._ranges_each(len(sizes)) + reading.guarded
        probe = Range(0, 0, max(SHORTEST, min(_PROBE, largest, sizes[0] // MIB * MIB)))
        seconds = self.sample_seconds
        job = only(self._read([[probe]], _plain_job(seconds), seconds))
        rate = number(job, "read", "io_bytes") / max(number(job, "read", "runtime") / 1000, 0.001)
        wanted = min(largest, int(rate * self.sample_seconds * _FASTER))
        least = max((workload.least_bytes for workload in self._ranged), default=SHORTEST)
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
        paths = list(dict.fromkeys([*(file.path for file in reading.files), *reading.opened]))
        first = ", ".join(map(printable, paths[:3]))
        more = len(paths) - 3
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
            self._read([[one]], _plain_job(seconds), seconds)
            bytes_left -= one.length
            read.append(one)
        self._ranges.keep(read)

    def _run_workload(self, workload: Workload) -> list[dict[str, Any]]:
        if workload.opens:
            return self._open(workload)
        return self._jobs(workload, self.sample_seconds)

    def most_read(self, workload: Workload) -> dict[str, int]:
        block, step = block_and_step(workload.job, self._apart())
        worth = sum(map(ranges_worth, readers(workload.job).values()))
        requests = -(-self._ranges.length // step) * worth
        return {"bytes_read": requests * block, "requests": requests}

    def measure_reader(self, workload: Workload) -> float:
        """Measure another workload that reads ranges, in half the time of a sample.

        Returns its figure, in its unit. Raises like `measure`, and `PartSpent`.
        """
        PartSpent.check(self.budget, self, self.most_read(workload))
        before = self.bytes_read, self.requests
        figure = workload.figure(self._jobs(workload, self.sample_seconds / 2))
        # The cost of an evaluation does not include it.
        spent = self.bytes_read - before[0], self.requests - before[1]
        self._before = self._before[0] + spent[0], self._before[1] + spent[1]
        return figure

    def _jobs(self, workload: Workload, seconds: float) -> list[dict[str, Any]]:
        """Run each of a workload's jobs in its own ranges, for up to ``seconds``."""
        sections = readers(workload.job)
        places = [parts(self._take(count), count) for count in sections.values()]
        if not workload.maps:
            return self._read(places, workload.job, seconds)
        every = zip(sections, places, strict=True)
        return [self._fault(only_job(workload, name), one, seconds) for name, (one,) in every]

    def _open(self, workload: Workload) -> list[dict[str, Any]]:
        """Let a job open each of the chosen files."""
        self._reads = ()
        chosen = self._existing.opened[: len(self._reading.opened)]
        job = opening(workload.job, [file.name for file in chosen])
        parameters = {
            "FUSETUNE_RUNTIME": str(int(self.sample_seconds * 1000)),
            "FUSETUNE_LOOPS": str(self._reading.loops),
        }
        try:
            jobs = self._run_fio(job, self.sample_seconds, parameters)
        except Interrupted:
            raise
        except FusetuneError:  # fio does not say which file it was
            with suppress(Unanswered):
                self._existing.check_opened(chosen, max(1.0, min(5.0, self.seconds_left)))
            raise
        self._count(jobs)
        return jobs

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

    def _take(self, count: int) -> list[Range]:
        """Return the next ranges for ``count`` concurrent readers, of one file each.

        No other sample may read what the kernel reads ahead of them, nor may the kernel read ahead
        into the range of another sample. Raises `RangesSpent`.
        """
        taken = self._ranges.take(min(count, self._ranges.files))
        if not taken:
            raise RangesSpent
        ahead = _AHEAD * self._read_ahead()
        for one in taken:
            self._ranges.give_up(one.file, one.offset - ahead, one.offset + one.length + ahead)
        return taken

    def _read(
        self, places: Sequence[Sequence[Range]], job: str, seconds: float
    ) -> list[dict[str, Any]]:
        """Run a job whose readers each read a part of a file; ``places``: those of each section."""
        self._reads = [one for section in places for one in section]
        named = [[(self._file(one).name, one) for one in section] for section in places]
        milliseconds = {"FUSETUNE_RUNTIME": str(int(seconds * 1000))}
        jobs = self._run_fio(placed(job, named), seconds, milliseconds)
        self._count(jobs)
        return jobs

    def _count(self, jobs: Sequence[Job]) -> None:
        self.bytes_read += sum(int(number(job, "read", "io_bytes")) for job in jobs)
        self.requests += sum(int(number(job, "read", "total_ios")) for job in jobs)

    def _every_reader(self) -> list[int]:
        """Return the number of readers of each section of each workload."""
        return [count for workload in self._ranged for count in readers(workload.job).values()]

    def _ranges_each(self, files: int) -> int:
        """Return how many ranges an evaluation takes if they are of so many files."""
        return sum(min(count, files) for count in self._every_reader())

    def _file(self, one: Range) -> ExistingFile:
        path = self._reading.files[one.file].path
        return next(file for file in self._existing.files if file.path == path)

    @property
    def _place(self) -> BenchPlace:
        return self._existing

    def _check(self, job: str, seconds: float) -> bool:
        self._existing.check_path()
        for file in {self._file(one) for one in self._reads}:
            self._existing.check(file, seconds)
        return True

    def _rest(self, kept: float = 0.0) -> Left:
        budget, (bytes_before, requests_before) = self.budget, self._before
        done = self.evaluations + 1  # the warm-up was the first
        bytes_a_time = max(1, self.bytes_read - bytes_before) / done
        requests_a_time = max(1, self.requests - requests_before) / done
        left = {
            "bytes_read": ((1 - kept) * budget.bytes_read - self.bytes_read) / bytes_a_time,
            "requests": ((1 - kept) * budget.requests - self.requests) / requests_a_time,
        }
        if self._ranged:
            each = self._ranges_each(self._ranges.files)
            left[RANGES] = self._ranges.affordable() / each
        return left


def _plain_job(seconds: float) -> str:
    """Return a job that reads a range from its start, for at most ``seconds``."""
    return (
        "[global]\nthread\nclocksource=clock_gettime\nioengine=psync\ninvalidate=1\n"
        f"[plain]\nrw=read\nbs=128k\nruntime={int(seconds * 1000)}ms\n"
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
