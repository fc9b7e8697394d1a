# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents of ``lib``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fusetune.libfuse.switch import FileChange
from fusetune.libfuse.users import Server
from fusetune.report.documents.base import Document, DryRun, FullPath
from fusetune.report.documents.sources import Sources, source_ages
from fusetune.report.text import Table
from fusetune.schema import Rule
from fusetune.source_age import Age

_USES = {
    "tuned": "the tuned libfuse3",
    "stock": "the distribution's libfuse3",
    "libfuse2": "libfuse 2, and cannot use the tuned libfuse3",
    "none": "no libfuse, and cannot use the tuned one",
    "unknown": "its memory map could not be read in time",
}


@dataclass(frozen=True)
class ServerProcess:
    """A process with a FUSE device open."""

    pid: Annotated[int, "Process id.", Rule(minimum=1)]
    program: Annotated[FullPath, "Absolute path of its program."]
    library: Annotated[
        FullPath | None, "Absolute path of the libfuse that it has loaded; null if none."
    ]
    uses: Annotated[
        str,
        "tuned or stock: which libfuse3; libfuse2 and none cannot use the tuned one; unknown: the "
        "memory map could not be read in time.",
        Rule(enum=list(_USES)),
    ]


@dataclass(frozen=True)
class LibStatus(Document):
    """Which libfuse each process with a FUSE device open uses."""

    SCHEMA = "lib-status"
    COMMANDS = ("lib status",)

    folders: Annotated[
        Sequence[Annotated[FullPath, "Absolute path of a directory."]],
        "Directories that hold a tuned libfuse3.",
    ]
    sources: Sources
    servers: Annotated[Sequence[ServerProcess], "The processes, by pid."]

    def parts(self) -> Iterator[str | Table]:
        """Yield where the tuned libfuse3 is, and a table of the processes."""
        if self.folders:
            yield f"the tuned libfuse3 is installed in {', '.join(self.folders)}"
        else:
            yield "the tuned libfuse3 is not installed"
        yield from (one.summary for one in self.sources)
        yield ""
        yield Table(
            ("pid", "program", "uses"),
            [(str(one.pid), one.program, _USES[one.uses]) for one in self.servers],
            right="pid",
        )


@dataclass(frozen=True)
class LibChange(Document):
    """The file that was written or removed, or would be with --dry-run."""

    SCHEMA = "lib-change"
    COMMANDS = ("enable", "disable", "lib enable", "lib disable")

    dry_run: DryRun
    file: Annotated[FullPath, "Absolute path of the file."]
    before: Annotated[str | None, "Its previous text; null if there was no file."]
    after: Annotated[str | None, "Its new text; null if it was removed."]
    remedy: Annotated[
        str | None, "What must be done for it to take effect; null if nothing changed."
    ]

    def parts(self) -> Iterator[str]:
        """Yield the file's new text, and what must be done for it to take effect."""
        if self.before == self.after:
            yield f"{self.file} is unchanged"
            return
        would = "would be " if self.dry_run else ""
        yield f"{self.file} {would}{'removed' if self.after is None else 'written'}"
        yield from (f"  {line}" for line in (self.after or "").splitlines())
        yield f"then: {self.remedy}"


def lib_status(
    directories: Sequence[Path], servers: Sequence[Server], ages: Sequence[Age] = ()
) -> LibStatus:
    """Return which process uses which libfuse; ``ages``: how old the tuned libfuse3 is."""
    return LibStatus(
        [str(directory) for directory in directories],
        source_ages(ages),
        [ServerProcess(one.pid, one.program, one.library, one.uses) for one in servers],
    )


def lib_change(change: FileChange, dry_run: bool) -> LibChange:
    """Return what 'enable' or 'disable' changed."""
    remedy = change.remedy if change.before != change.after else None
    return LibChange(dry_run, str(change.path), change.before, change.after, remedy)
