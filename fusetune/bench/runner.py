# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs fio on a mount and returns samples; owns the scratch directory and the budgets."""

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from fusetune.bench import worker
from fusetune.bench.holder import LAID_OUT
from fusetune.bench.scratch import Scratch, failure, scratch
from fusetune.bench.worker import Interruption, Owner, Unanswered
from fusetune.bench.workloads import Workload, number
from fusetune.errors import FusetuneError, UsageError
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.text import printable
from fusetune.untrusted import parse

MIB = 1 << 20
_LARGEST_FILE = 256 * MIB
_SMALLEST_FILE = 4 * MIB
_LEAST_SECONDS = 5.0
_LEAST_BYTES = 64 * MIB
_LEAST_FREE = 16 * MIB
_SAMPLES_WANTED = 24  # that the budget of bytes must pay for


@dataclass(frozen=True)
class Budget:
    """What a whole run may cost: ``seconds`` by the clock, ``bytes_written`` to the mount."""

    seconds: float = 60.0
    bytes_written: int = 2 << 30

    def __post_init__(self) -> None:
        """Raise UsageError for a budget that could not be kept."""
        if self.seconds < _LEAST_SECONDS or self.bytes_written < _LEAST_BYTES:
            raise UsageError(
                f"a run needs a --budget of at least {_LEAST_SECONDS:.0f}s and --budget-bytes of "
                f"at least {_LEAST_BYTES // MIB}M"
            )


class BudgetSpent(Unanswered):
    """The last sample took longer than the rest of the budget; those before it stand."""


class Bench:
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
    ) -> None:
        """Prepare nothing yet. ``size``: bytes of a scratch file, None: as fits.

        ``sample_seconds``: how long one fio run may take, None: as the budget allows.

        Raises FusetuneError if fio is missing or this user may not act as the mount's owner.
        """
        self.mount = mount
        self.workloads = list(workloads)
        self.budget = budget
        self.bytes_written = 0
        self.evaluations = 0
        self._host = host
        self._interruption = interruption
        self._asked_size = size
        Owner.of(mount).check()
        fio = shutil.which("fio")
        if not fio:
            raise FusetuneError("fio is not installed: apt install fio, or dnf install fio")
        self._fio = os.path.realpath(fio)
        self._scratch: Scratch
        self._sizes: dict[str, int] = {}
        self._read_size = 0
        self._files = 0
        self._cost: list[float] = []
        self._contexts = ExitStack()
        # Short samples, many of them: a host's drift is slower than a pair.
        self.sample_seconds = sample_seconds or min(2.0, max(0.2, budget.seconds / 200))
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def seconds_left(self) -> float:
        """Seconds of the budget that are left for measuring; some are kept for cleaning up."""
        return self.budget.seconds - min(2.0, self.budget.seconds / 10) - self.seconds

    @property
    def bytes_left(self) -> int:
        """Bytes of the budget that may still be written."""
        return self.budget.bytes_written - self.bytes_written

    def affordable(self) -> int:
        """Return how many more evaluations the budget pays for, by the cost of the last ones.

        It is one less than that, because the last may take longer.
        """
        if not self._cost:
            return 0
        recent = self._cost[-8:]
        count = self.seconds_left / (sum(recent) / len(recent)) - 1
        writes = sum(self._sizes[w.name] for w in self.workloads if w.writes)
        if writes:
            count = min(count, self.bytes_left / writes)
        return max(0, int(count))

    def __enter__(self) -> Self:
        with ExitStack() as contexts:
            seconds = max(1.0, min(5.0, self.seconds_left))
            self._scratch = contexts.enter_context(
                scratch(self._host, self.mount, self._fio, seconds, self._interruption)
            )
            self._fit(self._scratch.free)
            self._lay_out()
            self._contexts = contexts.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._contexts.__exit__(kind, error, trace)

    def measure(self) -> dict[str, float]:
        """Measure every workload once; return the figure of each, in its unit.

        Raises FusetuneError where fio or the mount fails, `Unanswered`, `Interrupted`.
        """
        began = self.seconds
        figures = {
            workload.name: workload.figure(self._run_workload(workload))
            for workload in self.workloads
        }
        self._cost.append(self.seconds - began)
        self.evaluations += 1
        return figures

    def _fit(self, free: int | None) -> None:
        """Choose file sizes (bytes) that fit the free space and the budget."""
        files = 1 + any(w.reads for w in self.workloads)
        room = _LARGEST_FILE if free is None else free // (2 * files)
        if free is not None and (self._asked_size or _LEAST_FREE) * files > free:
            raise FusetuneError(
                f"{printable(self.mount.path)} has {free // MIB} MiB free, less than the scratch "
                "files need; free some, or use a smaller --size"
            )
        share = self.budget.bytes_written // 8
        largest = self._asked_size or min(_LARGEST_FILE, room, share)
        self._largest = max(_SMALLEST_FILE, largest // MIB * MIB)
        self._sizes = {w.name: min(self._largest, 8 * MIB) for w in self.workloads}

    def _lay_out(self) -> None:
        """Write the file that reads use, and learn the cost of an evaluation."""
        if any(workload.reads for workload in self.workloads):
            self._read_size = self._write_read_data()
        for workload in self.workloads:
            if workload.writes:
                self._size_writes(workload)
            if workload.makes_files:
                self._size_files(workload)
        self.measure()
        self.evaluations -= 1  # a warm-up, not a sample

    def _write_read_data(self) -> int:
        """Write the file that reads use in at most a tenth of the budget; return its bytes."""
        seconds = max(1.0, self.budget.seconds / 10)
        job = (
            "[global]\nthread\nclocksource=clock_gettime\nioengine=psync\nfallocate=none\n"
            f"[{LAID_OUT}]\nfilename={LAID_OUT}\nrw=write\nbs=1m\nsize={self._largest}\n"
            f"runtime={int(seconds * 1000)}ms\nend_fsync=1\n"
        )
        written = int(number(self._run_fio(job, seconds)[0], "write", "io_bytes"))
        self.bytes_written += written
        if written < MIB:
            raise FusetuneError(
                f"{printable(self.mount.path)} takes less than 1 MiB in {seconds:.0f} s; "
                "give it a larger --budget"
            )
        return written // MIB * MIB

    def _size_writes(self, workload: Workload) -> None:
        """Let a sample write for about ``sample_seconds``, but leave bytes for enough samples.

        The size is found in a few steps, because the first megabytes may be written much faster or
        slower than the rest.
        """
        writers = sum(w.writes for w in self.workloads)
        for _ in range(4):
            jobs = self._run_workload(workload)
            written = sum(number(job, "write", "io_bytes") for job in jobs)
            seconds = max(number(job, "write", "runtime") for job in jobs) / 1000
            size = self._sizes[workload.name]
            wanted = int(written * self.sample_seconds / max(seconds, 0.001))
            most = min(self._largest, self.bytes_left // (_SAMPLES_WANTED * writers), 8 * size)
            least = workload.least_bytes
            self._sizes[workload.name] = max(least, min(wanted, most) // MIB * MIB)
            if self._sizes[workload.name] <= size:
                return

    def _size_files(self, workload: Workload) -> None:
        """Let a sample make as many small files as it can in about ``sample_seconds``."""
        self._files = 10
        rate = workload.figure(self._run_workload(workload))
        self._files = max(10, min(500, int(rate * self.sample_seconds / 4)))

    def _run_workload(self, workload: Workload) -> list[dict[str, Any]]:
        jobs = self._run_fio(workload.job, self.sample_seconds, self._parameters(workload))
        self.bytes_written += sum(int(number(job, "write", "io_bytes")) for job in jobs)
        return jobs

    def _parameters(self, workload: Workload) -> dict[str, str]:
        return {
            "FUSETUNE_RUNTIME": str(int(self.sample_seconds * 1000)),
            "FUSETUNE_READ_SIZE": str(self._read_size),
            "FUSETUNE_WRITE_SIZE": str(self._sizes[workload.name]),
            "FUSETUNE_FILES": str(self._files),
        }

    def _run_fio(
        self, job: str, seconds: float, parameters: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Run a job file that should take ``seconds``; return fio's jobs."""
        patient = seconds * 10 + 5
        patience = max(2.0, min(patient, self.seconds_left))
        try:
            return self._checked(job, patience, parameters)
        except Unanswered as error:
            if self.evaluations and patience < patient:
                raise BudgetSpent(patience) from error
            raise

    def _checked(
        self, job: str, seconds: float, parameters: Mapping[str, str] | None
    ) -> list[dict[str, Any]]:
        """Run a job; check afterwards, even if it did not end, that the files are still ours."""
        command = self._scratch.command([self._fio, "--output-format=json", "-"])
        sizes = self._sizes_of(job)
        try:
            ended = worker.run(command, seconds, self._interruption, job.encode(), parameters)
        except Unanswered:
            with suppress(Unanswered):
                self._scratch.check(sizes, 1.0)
            raise
        same = self._scratch.check(sizes, max(1.0, min(5.0, self.seconds_left)))
        jobs = self._jobs(*ended)
        if not same:
            raise self._scratch.strange(f"{LAID_OUT} is another file now")
        return jobs

    def _sizes_of(self, job: str) -> dict[str, range]:
        """Return the files that a job names, and which sizes (bytes) they may have after it."""
        sizes = dict.fromkeys(re.findall(r"^filename=(\S+)$", job, re.MULTILINE), range(1 << 63))
        if LAID_OUT in sizes:
            sizes[LAID_OUT] = range(self._read_size, self._largest + 1)
        return sizes

    def _jobs(self, status: int, stdout: bytes, stderr: bytes) -> list[dict[str, Any]]:
        try:
            # fio may print warnings before the JSON document.
            jobs = parse(stdout[max(0, stdout.find(b"{")) :])["jobs"]
            if not jobs:
                raise ValueError("no jobs")
            errors = [int(job["error"]) for job in jobs]
        except (ValueError, KeyError, TypeError) as problem:
            lines = (stderr + stdout).decode("utf-8", "replace").strip().splitlines()
            said = f": {printable(lines[-1][:200])}" if lines else ""
            raise FusetuneError(
                f"{self._fio} ended with status {status} and no result that can be read{said}"
            ) from problem
        if any(errors):
            raise failure(self.mount, next(filter(None, errors)), "measure")
        if status:
            raise FusetuneError(f"{self._fio} ended with status {status} on its own jobs")
        result: list[dict[str, Any]] = jobs
        return result
