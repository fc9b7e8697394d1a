# SPDX-License-Identifier: GPL-2.0-or-later
"""fio job files, and what each of them measures.

A new workload is a job file ``NAME.fio`` and an entry here. A job file may use the environment's
``FUSETUNE_RUNTIME`` (milliseconds), ``FUSETUNE_READ_SIZE``, ``FUSETUNE_STREAM_SIZE`` and
``FUSETUNE_WRITE_SIZE`` (bytes), ``FUSETUNE_FILES`` and ``FUSETUNE_LOOPS``, how often they are
opened, and the files ``read-data`` (laid out beforehand) and ``write-data``. ``FUSETUNE_FAULTS``
pages of ``read-data`` are further apart than the kernel reads around one, with ``FUSETUNE_SKIPPED``
bytes between them. Names of other files must be added to ``holder.is_scratch_file``, otherwise they
are not removed.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from typing import TypeVar

from fusetune.bench.figures import (
    Job,
    bytes_in_all,
    bytes_per_second,
    bytes_per_second_in_write,
    files_in_all,
    operations_by_clock,
    operations_in_turn,
    share_in_time,
)
from fusetune.errors import UsageError

T = TypeVar("T")
DEFAULT = "mixed"
#: Its replacement if nothing can be written.
DEFAULT_READS = ("seq-read", "rand-read")


class Access(StrEnum):
    """A way of using a mount that a knob may affect."""

    BUFFERED_READ = "buffered read"
    BUFFERED_WRITE = "buffered write"
    DIRECT_READ = "direct read"
    DIRECT_WRITE = "direct write"
    METADATA = "metadata"


@dataclass(frozen=True)
class Workload:
    """A fio job, the unit of its figure (higher is better), and the files it needs.

    ``accesses``: the knobs that affect these are searched; ``reads``: it reads a file laid out
    beforehand; ``writes``: it writes a chosen number of bytes; ``makes_files``: it creates small
    files. ``figure`` returns the figure from fio's jobs. ``text``: the job, if it is not in a file.
    ``least_bytes``: the smallest file that it can read or write. ``streams``: the number of its own
    files that it reads, which together have the size of the shared one. ``afterwards``: what the
    holder of the scratch directory then does to its files and no fio job can do: a request to
    `Directory` with its arguments. ``weight``: its weight in the gain that a search maximizes.
    ``waits``: the operations whose latency counts, in fio's names: ``read``, ``write``, ``sync``.
    ``per_operation``: its CPU time is per 1,000 operations instead of per GiB. ``reads_once``: its
    last job is the only one that reads the laid-out file then: cold, buffered, no byte twice.
    ``opens``: it only opens and reads the small files, so any existing ones will do.
    """

    name: str
    measures: str
    accesses: frozenset[Access]
    reads: bool = False
    writes: bool = False
    makes_files: bool = False
    unit: str = "bytes_per_second"
    figure: Callable[[Sequence[Job]], float] = bytes_per_second
    text: str = ""
    least_bytes: int = 1 << 20
    streams: int = 0
    afterwards: tuple[str, ...] = ()
    weight: float = 1.0
    waits: tuple[str, ...] = ("read", "write")
    per_operation: bool = False
    reads_once: bool = False
    opens: bool = False

    @property
    def only_reads(self) -> bool:
        """Whether it can read any files instead of those laid out for it."""
        return self.opens or (self.reads and not self.writes)

    @property
    def maps(self) -> bool:
        """Whether it reads mapped files."""
        return "ioengine=mmap" in self.job

    @property
    def ends_all(self) -> bool:
        """Whether a job that is done ends the others."""
        return bool(re.search("^exitall$", self.job, re.MULTILINE))

    @property
    def job(self) -> str:
        """Text of the fio job file."""
        return self.text or (files(__package__) / f"{self.name}.fio").read_text(encoding="utf-8")


_READ = frozenset({Access.BUFFERED_READ})
_WRITE = frozenset({Access.BUFFERED_WRITE})
_METADATA = frozenset({Access.METADATA})
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "mixed",
            "a reader, a writer and a random reader concurrently",
            _READ | _WRITE,
            reads=True,
            writes=True,
        ),
        Workload("seq-read", "cold sequential reads", _READ, reads=True, reads_once=True),
        Workload(
            "seq-write", "sequential writes in 128 KiB blocks, with fsync", _WRITE, writes=True
        ),
        Workload(
            "small-write",
            "a burst of 4 KiB buffered writes, timed until the program continues",
            _WRITE,
            writes=True,
            figure=bytes_per_second_in_write,
        ),
        Workload("rand-read", "cold random 4 KiB reads", _READ, reads=True, reads_once=True),
        Workload("rand-write", "random 4 KiB buffered writes, with fsync", _WRITE, writes=True),
        Workload(
            "shared-write",
            "four direct writers in one file",
            frozenset({Access.DIRECT_WRITE}),
            writes=True,
        ),
        Workload(
            "metadata",
            "create, write, open, read, stat and unlink of small files",
            _METADATA,
            makes_files=True,
            unit="operations_per_second",
            per_operation=True,
            figure=operations_in_turn,
        ),
        Workload(
            "mmap-read",
            "cold page faults in a mapped file, sequential and random",
            _READ,
            reads=True,
            reads_once=True,
        ),
        Workload(
            "many-streams",
            "32 concurrent cold sequential readers of separate files",
            _READ,
            reads=True,
            streams=32,
            least_bytes=4 << 20,
        ),
        Workload(
            "large-read",
            "cold reads in 4 MiB blocks: buffered, then direct",
            _READ | {Access.DIRECT_READ},
            reads=True,
            least_bytes=4 << 20,
        ),
        Workload(
            "open-storm",
            "open, read 4 KiB and close, of many files",
            _METADATA,
            makes_files=True,
            opens=True,
            unit="operations_per_second",
            per_operation=True,
            figure=operations_by_clock,
        ),
        Workload(
            "tree-copy",
            "stat, read, write and set the times of many small files, as cp -a does",
            _METADATA,
            makes_files=True,
            unit="operations_per_second",
            per_operation=True,
            figure=files_in_all,
            afterwards=("copy_times", "source", "copy"),
        ),
        Workload(
            "log-append",
            "small appends, with fdatasync after each",
            _WRITE,
            waits=("sync",),
            writes=True,
            unit="operations_per_second",
            per_operation=True,
            figure=operations_by_clock,
        ),
        Workload(
            "database",
            "random 8 KiB reads, concurrent with random 8 KiB writes, each followed by fsync",
            _READ | _WRITE,
            waits=("read", "write", "sync"),
            reads=True,
            writes=True,
            unit="operations_per_second",
            per_operation=True,
            figure=operations_by_clock,
        ),
        Workload(
            "video",
            "four readers at 6.25 MiB/s each: the share of blocks that arrive within 20 ms",
            _READ,
            reads=True,
            unit="share",
            figure=share_in_time,
        ),
        Workload(
            "checkpoint",
            "one large write, fsync, and rename over the previous file",
            _WRITE,
            writes=True,
            figure=bytes_in_all,
            afterwards=("rename", "write-data", "checkpoint-data"),
        ),
    )
}


def sections_of(job: str) -> tuple[str, dict[str, str]]:
    """Return what precedes a job file's sections, and the options of each, by its name."""
    head, *sections = re.split(r"^\[(?!global\])", job, flags=re.MULTILINE)
    found = {}
    for section in sections:
        name, options = section.split("]\n", 1)
        found[name] = options
    return head, found


def only_job(workload: Workload, section: str) -> Workload:
    """Return a workload with a single one of its jobs, named after both."""
    head, sections = sections_of(workload.job)
    text = f"{head}[{section}]\n{sections[section]}"
    return replace(workload, name=f"{workload.name} ({section})", text=text)


@dataclass(frozen=True)
class WorkloadSet:
    """Workloads that represent a use together, and the share of each.

    The shares are estimates, not measurements; they sum to 1.
    """

    name: str
    stands_for: str
    shares: Mapping[str, float]

    @property
    def text(self) -> str:
        """What it represents, and its workloads with their shares in percent."""
        parts = (f"{name} {share:.0%}" for name, share in self.shares.items())
        return f"{self.stands_for}: {', '.join(parts)}"


SETS = {
    one.name: one
    for one in (
        WorkloadSet(
            "model-loading",
            "a store of models, whose weights are mapped or read completely",
            {"mmap-read": 0.5, "large-read": 0.3, "many-streams": 0.2},
        ),
        WorkloadSet(
            "home",
            "home directories: programs start, browsers keep databases, editors save",
            {"open-storm": 0.3, "mmap-read": 0.3, "database": 0.2, "small-write": 0.2},
        ),
        WorkloadSet(
            "media",
            "films and music, played by several people while more is stored",
            {"video": 0.5, "many-streams": 0.3, "seq-write": 0.2},
        ),
        WorkloadSet(
            "backup",
            "backups: large archives and trees of files are written, and read for verification",
            {"seq-write": 0.4, "tree-copy": 0.3, "large-read": 0.3},
        ),
        WorkloadSet(
            "build",
            "building software: many small files are read, written and created",
            {"open-storm": 0.4, "tree-copy": 0.3, "small-write": 0.2, "mmap-read": 0.1},
        ),
    )
}


def chosen(names: Sequence[str], sets: Mapping[str, WorkloadSet] = SETS) -> list[Workload]:
    """Return the named workloads, each once with its weight, or the default without names.

    The name of one of the ``sets`` stands for its workloads, and all names count equally. Raises
    UsageError for an unknown name.
    """
    weights: dict[str, float] = {}
    picked("workload", {**WORKLOADS, **sets}, names)
    for name in dict.fromkeys(names or (DEFAULT,)):
        shares = sets[name].shares if name in sets else {name: 1.0}
        for workload, share in shares.items():
            weights[workload] = weights.get(workload, 0.0) + share
    return [replace(WORKLOADS[name], weight=weight) for name, weight in weights.items()]


def members(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the workloads that these names stand for.

    Raises UsageError for an unknown name.
    """
    return tuple(workload.name for workload in chosen(names)) if names else ()


def picked(what: str, known: Mapping[str, T], names: Iterable[str]) -> list[T]:
    """Return the ``known`` entries of these names, each once. UsageError for an unknown one."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            raise UsageError(f"unknown {what} {name!r}; known are {', '.join(known)}")
    return [known[name] for name in wanted]
