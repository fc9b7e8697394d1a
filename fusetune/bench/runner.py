# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs fio on a mount and returns samples; owns the scratch directory and the budgets."""

import mmap
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from fusetune.bench import worker
from fusetune.bench.figures import AFTERWARDS, idle, number
from fusetune.bench.finding import FEWEST_SMALL, MOST_SMALL
from fusetune.bench.fio import files_of, installed, jobs_of, laying_out, only
from fusetune.bench.holder import LAID_OUT
from fusetune.bench.latency import Bins, bins_of
from fusetune.bench.place import BenchPlace, Unwritable
from fusetune.bench.scratch import Scratch, scratch
from fusetune.bench.spending import MIB, OPTIONS, Account, Budget, Left
from fusetune.bench.usage import Server, Usage, usage_of
from fusetune.bench.worker import Interruption, Owner, Unanswered
from fusetune.bench.workloads import WORKLOADS, Access, Workload
from fusetune.changes.state import values_now
from fusetune.errors import FusetuneError, UsageError
from fusetune.host import Host
from fusetune.knobs.remount import dirtied_bytes
from fusetune.mounts.mount import Mount
from fusetune.text import printable

T = TypeVar("T")
_LARGEST_FILE = 256 * MIB
_SMALLEST_FILE = 4 * MIB
_LEAST_FREE = 16 * MIB
_PAGE = mmap.PAGESIZE
#: Bytes between two random page faults, if the kernel reads less than that around one.
_LEAST_APART = MIB
# Fraction of a sample's time for small files, so that slow settings can handle all of them too.
_FILES_SHARE = 4
#: Samples of each workload that the byte budget must allow, and those that it should allow.
SAMPLES_WANTED, FAIR_SAMPLES = 24, 96
#: A burst of this multiple of the dirty limit is throttled. The kernel starts at half to all of it
#: (mm/page-writeback.c, dirty_freerun_ceiling).
_TELLING = 1.5
#: Seconds that jobs which end each other run at least, so that each has begun before, and the
#: samples that the byte budget must allow even so.
_ALL_BEGUN, _FEWEST_SAMPLES = 0.01, 6
_ATTEMPTS = 3  # to have all of them begin
_LONGER = 3  # times a sample's usual length, if a shorter one would be meaningless


class BudgetSpent(Unanswered):
    """Too little was left of the budget for the last sample; earlier ones remain valid.

    ``part``: what was spent, as `spending` names it.
    """

    part = "seconds"


class PartSpent(BudgetSpent):
    """Less is left of a part of the budget than a sample may need; earlier ones remain valid."""

    def __init__(self, part: str) -> None:
        FusetuneError.__init__(
            self, f"too little is left of {OPTIONS[part]} for another sample; give a larger one"
        )
        self.part = part

    @classmethod
    def check(cls, budget: Budget, spent: object, most: Mapping[str, int]) -> None:
        """Raise it unless ``most`` is left of ``budget``; the attributes of ``spent`` say it."""
        for part, wanted in most.items():
            if getattr(budget, part) - getattr(spent, part) < wanted:
                raise cls(part)


class Bench(Account):
    """A scratch directory on a mount and fio runs in it, within a budget.

    A context manager: on exit the directory is removed; if the server does not reply, a child
    process waits to remove it as soon as it does.
    """

    def __init__(
        self,
        host: Host,
        mount: Mount,
        workloads: Sequence[Workload],
        budget: Budget,
        interruption: Interruption,
        size: int | None = None,
        sample_seconds: float | None = None,
        inherited: Collection[int] = (),
    ) -> None:
        """Prepare nothing yet. ``size``: bytes of a scratch file, None: as large as fits.

        ``sample_seconds``: how long one fio run may take, None: as the budget allows.
        ``inherited``: see `Scratch`.

        Raises FusetuneError if fio is missing or this user may not act as the mount's owner.
        """
        super().__init__(budget)
        self.mount = mount
        self.workloads = list(workloads)
        #: Whether its budget is what is left of one with which others have measured before.
        self.continues = False
        #: Latencies of each workload at the last `measure`, by name.
        self.bins: dict[str, Bins] = {}
        #: Host resources that each workload used at the last `measure`, by name.
        self.usage: dict[str, Usage] = {}
        self._host = host
        self._interruption = interruption
        self._asked_size = size
        self._inherited = inherited
        Owner.of(mount).check()
        self._fio = installed()
        self._scratch: Scratch
        self._server: Server
        self._sizes: dict[str, int] = {}  # bytes that a sample of each workload writes
        self._read_size = 0
        self._files: dict[str, int] = {}
        self._loops: dict[str, int] = {}
        self._contexts = ExitStack()
        # Many short samples: the host drifts more slowly than a pair takes.
        self.sample_seconds = sample_seconds or min(2.0, max(0.2, budget.seconds / 200))

    def _rest(self, kept: float = 0.0) -> Left:
        """Return how many evaluations are left by everything but time."""
        writes = sum(self._sizes[w.name] for w in self.workloads if w.writes or w.makes_files)
        return {"bytes_written": self.bytes_left / writes} if writes else {}

    def __enter__(self) -> Self:
        with ExitStack() as contexts:
            with self._failing_for_good():
                self._prepare(contexts, max(1.0, min(5.0, self.seconds_left)))
            self._server = Server.of(self._host, self.mount)
            self.measure()
            self.evaluations -= 1  # a warm-up, not a sample; it shows the cost of an evaluation
            self._contexts = contexts.pop_all()
        return self

    def _prepare(self, contexts: ExitStack, seconds: float) -> None:
        """Create the files in ``contexts``, waiting ``seconds`` for the directory."""
        made = scratch(
            self._host, self.mount, self._fio, seconds, self._interruption, self._inherited
        )
        self._scratch = contexts.enter_context(made)
        self._fit(self._scratch.free)
        self._lay_out()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._contexts.__exit__(kind, error, trace)

    def measure(self) -> dict[str, float]:
        """Measure every workload once; return the figure of each, in its unit.

        Raises FusetuneError if fio or the mount fails, `Unanswered`, `Interrupted`.
        """
        began = self.seconds
        figures = {}
        for workload in self.workloads:
            self._server.begin()
            with self._failing_for_good():
                jobs = self._run_workload(workload)
            taken = usage_of(workload, jobs, self._server.end(), self._place.cached_bytes)
            self.usage[workload.name] = taken
            figures[workload.name] = workload.figure(jobs)
            self.bins[workload.name] = bins_of(workload, jobs)
        self._cost.append(self.seconds - began)
        self.evaluations += 1
        return figures

    def most_read(self, workload: Workload) -> dict[str, int]:
        """Return how much `measure_reader` may use of the parts of the budget that it reads."""
        return {}

    def measure_reader(self, workload: Workload) -> float:
        """Measure another workload that reads the laid-out file, in half the time of a sample.

        Returns its figure, in its unit. Raises like `measure`.
        """
        seconds = self.sample_seconds / 2
        parameters = self._parameters(workload, seconds)
        with self._failing_for_good():
            return workload.figure(self._run_fio(workload.job, seconds, parameters))

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        """Turn `Unwritable` into an error after which nothing else is measured instead.

        Not before the first sample: only then was the mount not writable in the first place.
        """
        try:
            yield
        except Unwritable as error:
            if self.evaluations or self.continues:
                raise FusetuneError(str(error)) from error
            raise

    def _fit(self, free: int | None) -> None:
        """Choose file sizes (bytes) that fit the free space and the budget."""
        replaced = any(w.writes and w.afterwards for w in self.workloads)
        kinds = ("reads", "streams", "writes")  # each may need as much again
        used = replaced + sum(any(getattr(w, kind) for w in self.workloads) for kind in kinds)
        files = max(1, used)
        room = _LARGEST_FILE if free is None else free // (2 * files)
        if free is not None and (self._asked_size or _LEAST_FREE) * files > free:
            raise FusetuneError(
                f"{printable(self.mount.path)} has {free // MIB} MiB of free space, less than the "
                "scratch files need; free some, or use a smaller --size"
            )
        self._check_asked_size()
        share = self.budget.bytes_written // 8
        largest = self._asked_size or min(_LARGEST_FILE, room, share)
        self._largest = max(_SMALLEST_FILE, largest // MIB * MIB)
        self._sizes = {w.name: min(self._largest, 8 * MIB) for w in self.workloads}

    def _check_asked_size(self) -> None:
        """Raise UsageError if the files that readers use would exceed the budget.

        `PartSpent` if others have measured with it before.
        """
        laid_out = any(w.reads for w in self.workloads) + sum(w.streams > 0 for w in self.workloads)
        needed = laid_out * max(_SMALLEST_FILE, self._asked_size or 0)
        if not self._asked_size or needed <= self.budget.bytes_written:
            return
        if self.continues:
            raise PartSpent("bytes_written")
        raise UsageError(
            f"files of --size {self._asked_size // MIB}M need {needed // MIB} MiB to be written to "
            f"{printable(self.mount.path)}, but only {self.budget.bytes_written // MIB} MiB may "
            "be; use a smaller --size, or a larger --budget-bytes"
        )

    def _lay_out(self) -> None:
        """Write the file that readers use, and size the files that workloads write."""
        if any(workload.reads for workload in self.workloads):
            self._read_size = self._write_read_data()
        for workload in self.workloads:
            if workload.streams:
                self._lay_out_streams(workload)
            if workload.writes:
                self._size_writes(workload)
            if workload.makes_files:
                self._size_files(workload)

    def _write_read_data(self) -> int:
        """Write the file that readers use in at most a tenth of the budget; return its size."""
        seconds = max(1.0, self.budget.seconds / 10)
        job = laying_out(LAID_OUT, self._largest, seconds)
        written = int(number(only(self._run_fio(job, seconds)), "write", "io_bytes"))
        self.bytes_written += written
        least = max(workload.least_bytes for workload in self.workloads if workload.reads)
        if written < least:
            raise FusetuneError(
                f"{printable(self.mount.path)} accepts less than {least // MIB} MiB in "
                f"{seconds:.0f} s; give a larger --budget"
            )
        return written // MIB * MIB

    def _lay_out_streams(self, workload: Workload) -> None:
        """Let fio write a workload's own files without reading them."""
        job = workload.job.replace("[global]\n", "[global]\ncreate_only=1\n", 1)
        seconds = self.budget.seconds / 10
        self._run_fio(job, seconds, self._parameters(workload, seconds))
        self.bytes_written += self._stream_size(workload) * workload.streams

    def _stream_size(self, workload: Workload) -> int:
        return self._read_size // max(1, workload.streams) // 4096 * 4096

    def _size_writes(self, workload: Workload) -> None:
        """Let a sample write for about ``sample_seconds``, but leave bytes for enough samples.

        A burst of buffered writes must reach the dirty limit, because a smaller one never waits.
        The size is found in a few steps, because the first megabytes may be written much faster or
        slower than the rest.
        """
        buffered = Access.BUFFERED_WRITE in workload.accesses
        for _ in range(4):
            jobs = self._run_workload(workload)
            telling = int(_TELLING * dirty_limit(self._host, self.mount)) if buffered else 0
            written = sum(number(job, "write", "io_bytes") for job in jobs)
            seconds = max(number(job, "write", "runtime") for job in jobs) / 1000
            size = self._sizes[workload.name]
            wanted = int(written * self.sample_seconds / max(seconds, 0.001))
            fair, most = map(self._most_written, (FAIR_SAMPLES, SAMPLES_WANTED))
            wanted = max(min(wanted, fair), min(_LONGER * wanted, telling, most))
            if workload.ends_all:
                begun = int(written * _ALL_BEGUN / max(seconds, 0.001))
                wanted = max(wanted, min(begun, self._most_written(_FEWEST_SAMPLES)))
            least = workload.least_bytes
            wanted = min(wanted, self._largest, 8 * size) // MIB * MIB
            self._sizes[workload.name] = max(least, wanted)
            if self._sizes[workload.name] <= size:
                return

    def _size_files(self, workload: Workload) -> None:
        """Let a sample make or open as many small files as it can in a part of its time."""
        wanted = self._affordable_files(workload)
        self._files[workload.name] = max(FEWEST_SMALL, min(MOST_SMALL, wanted))
        if workload.opens:
            wanted = self._affordable_files(workload)  # so many show the rate more exactly
            self._loops[workload.name] = max(1, wanted // self._files[workload.name])

    def _affordable_files(self, workload: Workload) -> int:
        """Return how many small files a workload can handle in a part of ``sample_seconds``."""
        jobs = self._run_workload(workload)
        # That of the workload itself, also if a latency is its figure in this run.
        rate = WORKLOADS.get(workload.name, workload).figure(jobs)
        return int(rate * self.sample_seconds / _FILES_SHARE)

    def _run_workload(self, workload: Workload) -> list[dict[str, Any]]:
        """Run a workload's jobs; again and longer, if one ended another that had not begun."""
        for _ in range(_ATTEMPTS):
            jobs = self._run_once(workload)
            if not (workload.ends_all and any(map(idle, jobs))):
                return jobs
            size = self._sizes[workload.name]
            most = min(2 * size, self._largest, self._most_written(_FEWEST_SAMPLES))
            self._sizes[workload.name] = max(size, most // MIB * MIB)
        raise FusetuneError(
            f"{printable(self.mount.path)} is so fast that {workload.name} wrote {size // MIB} MiB "
            "before all of its jobs had begun; give a larger --budget-bytes or --size"
        )

    def _most_written(self, samples: int) -> int:
        """Return how many bytes each workload may write in each of so many samples."""
        return self.bytes_left // (samples * max(1, sum(w.writes for w in self.workloads)))

    def _run_once(self, workload: Workload) -> list[dict[str, Any]]:
        parameters = self._parameters(workload, self.sample_seconds)
        jobs = self._run_fio(workload.job, self.sample_seconds, parameters)
        written = sum(int(number(job, "write", "io_bytes")) for job in jobs)
        self.bytes_written += written
        if workload.makes_files:
            self._sizes[workload.name] = written
        if workload.afterwards:
            count = int(parameters["FUSETUNE_FILES"])
            jobs[-1][AFTERWARDS] = self._patiently(
                self.sample_seconds,
                lambda most: self._scratch.finish(count, workload.afterwards, most),
            )
        return jobs

    def _parameters(self, workload: Workload, seconds: float) -> dict[str, str]:
        apart = self._apart()
        return {
            "FUSETUNE_RUNTIME": str(int(seconds * 1000)),
            "FUSETUNE_READ_SIZE": str(self._read_size),
            "FUSETUNE_STREAM_SIZE": str(self._stream_size(workload)),
            "FUSETUNE_WRITE_SIZE": str(self._sizes.get(workload.name, 0)),
            "FUSETUNE_SKIPPED": str(apart - _PAGE),
            "FUSETUNE_FAULTS": str(max(1, self._read_size // apart)),
            "FUSETUNE_FILES": str(self._files.get(workload.name, FEWEST_SMALL)),
            "FUSETUNE_LOOPS": str(self._loops.get(workload.name, 1)),
        }

    def _apart(self) -> int:
        """Return how many bytes apart random page faults are."""
        return max(_LEAST_APART, self._read_ahead())

    def _read_ahead(self) -> int:
        """Return the mount's read_ahead_kb in bytes."""
        return values_now(self._host, self.mount).get("read_ahead_kb", 0) << 10

    def _run_fio(
        self, job: str, seconds: float, parameters: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Run a job file that should take ``seconds``; return fio's jobs."""
        return self._patiently(seconds, lambda most: self._checked(job, most, parameters))

    def _patiently(self, seconds: float, run: Callable[[float], T]) -> T:
        """Call ``run``, which should take ``seconds``, with how many it may take.

        Raises `BudgetSpent` if it takes longer only because little of the budget is left.
        """
        patient = seconds * 10 + 5
        patience = max(2.0, min(patient, self.seconds_left))
        try:
            return run(patience)
        except Unanswered as error:
            if (self.evaluations or self.continues) and patience < patient:
                raise BudgetSpent(patience) from error
            raise

    def _checked(
        self, job: str, seconds: float, parameters: Mapping[str, str] | None
    ) -> list[dict[str, Any]]:
        """Run a job; check afterwards, even if it did not end, that the files are still ours."""
        command = self._place.command([self._fio, "--output-format=json+", "-"])
        until = self.seconds + seconds
        with self._checking(job):
            if self._read_size and LAID_OUT in files_of(job, {}):
                self._scratch.prepare(seconds)
            left = until - self.seconds
            ended = worker.run(command, left, self._interruption, job.encode(), parameters)
        same = self._check(job, max(1.0, min(5.0, self.seconds_left)))
        jobs = jobs_of(self.mount, self._fio, *ended)
        if not same:
            raise self._scratch.strange(f"{LAID_OUT} was replaced by another file")
        return jobs

    @contextmanager
    def _checking(self, job: str) -> Iterator[None]:
        """Check the job's files if what is done meanwhile does not end."""
        try:
            yield
        except Unanswered:
            with suppress(Unanswered):
                self._check(job, 1.0)
            raise

    @property
    def _place(self) -> BenchPlace:
        """Where fio runs."""
        return self._scratch

    def _check(self, job: str, seconds: float) -> bool:
        """Check the files that ``job`` names; return whether the one laid out is the same."""
        laid_out = range(self._read_size, self._largest + 1)
        return self._scratch.check(files_of(job, {LAID_OUT: laid_out}), seconds)


def dirty_limit(host: Host, mount: Mount) -> int:
    """Return the mount's dirty limit in bytes: max_ratio percent of the host's.

    0 if the mount has no such limit, or no page of it was ever dirty. The host's limit is in
    pages (/proc/vmstat).
    """
    if dirtied_bytes(host, mount) == 0:
        return 0
    match = re.search(r"^nr_dirty_threshold (\d+)$", host.read("proc/vmstat"), re.MULTILINE)
    pages = int(match[1]) if match else 0
    return pages * _PAGE * values_now(host, mount).get("max_ratio", 0) // 100
