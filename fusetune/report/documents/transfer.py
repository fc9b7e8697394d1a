# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``import``: what became of each result of an exported file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fusetune.desired.transfer import Imported, ImportedSection, Read
from fusetune.report.documents.base import (
    RAW_BYTES,
    Document,
    DryRun,
    FullPath,
    KnobValues,
    MountPoint,
)
from fusetune.report.text import Table
from fusetune.schema import Rule

_ACTIONS = ["imported", "unchanged", "kept", "refused"]
_SECTION_ACTIONS = ["imported", "unchanged", "kept"]


@dataclass(frozen=True)
class ImportedResult:
    """What was done with a result, or would be with --dry-run."""

    path: MountPoint
    fstype: Annotated[str, "Its file system type."]
    knobs: KnobValues
    action: Annotated[
        str,
        "imported; unchanged: already present; kept: the present one is newer; refused.",
        Rule(enum=_ACTIONS),
    ]
    why: Annotated[str | None, "Why it was refused or not imported; null otherwise."]
    differs: Annotated[
        Sequence[Annotated[str, "One difference."]],
        "How the mount differs from the one measured, if it is mounted here.",
    ]
    file: Annotated[FullPath, f"Full path of the saved result. {RAW_BYTES}"]


@dataclass(frozen=True)
class ImportedSectionEntry:
    """What was done with a section of the configuration, or would be with --dry-run."""

    selects: Annotated[
        Mapping[str, Annotated[str, "A pattern."]],
        "Its patterns, by the key that selects mounts; empty if it selects all mounts.",
    ]
    action: Annotated[
        str,
        "imported; unchanged: already present; kept: this host has another one for the same "
        "mounts.",
        Rule(enum=_SECTION_ACTIONS),
    ]
    why: Annotated[str | None, "Why it was not imported; null otherwise."]


@dataclass(frozen=True)
class ImportedFile(Document):
    """What 'import' took from an exported file, or would take with --dry-run."""

    SCHEMA = "import"
    COMMANDS = ("import",)

    dry_run: DryRun
    signed: Annotated[bool, "Whether the file has a signature."]
    signer: Annotated[str | None, "Who signed the file; null if that was not checked."]
    results: Annotated[Sequence[ImportedResult], "The results, in the order of the file."]
    sections: Annotated[int, "Number of configuration sections in the file.", Rule(minimum=0)]
    sections_file: Annotated[
        FullPath | None,
        "The file for imported sections; null without --admin or without sections.",
    ]
    section_results: Annotated[
        Sequence[ImportedSectionEntry],
        "What was done with the sections, one entry for those that select the same mounts; empty "
        "without --admin.",
    ]

    @property
    def refused(self) -> bool:
        """Whether a result was refused."""
        return any(one.action == "refused" for one in self.results)

    def parts(self) -> Iterator[str | Table]:
        """Yield the signer, each result, and the sections."""
        if self.signer:
            yield f"signed by {self.signer}"
        for one in self.results:
            values = " ".join(f"{name}={value}" for name, value in one.knobs.items())
            values = values or "the kernel's defaults"
            why = f" ({one.why})" if one.why else ""
            yield f"{one.path}: {values}: {one.action}{why}"
            for words in one.differs:
                yield f"    differs: {words}"
        for section in self.section_results:
            words = " ".join(f"{key}={word}" for key, word in section.selects.items())
            why = f" ({section.why})" if section.why else ""
            yield f"[[mount]] {words or 'for all mounts'}: {section.action}{why}"
        if count := sum(one.action == "imported" for one in self.section_results):
            yield f"{self.sections_file}: {_sections(count)}"
        if self.sections and not self.sections_file:
            yield f"{_sections(self.sections)} not imported: use --admin to import them"
        if not self.results and not self.sections:
            yield "the file has no results"
        if self.dry_run:
            yield "dry run: nothing was written"


def _sections(count: int) -> str:
    return f"{count} section{'s' * (count != 1)} of the configuration"


def imported_file(
    read: Read,
    results: Sequence[Imported],
    sections_file: Path | None,
    sections: Sequence[ImportedSection],
    dry_run: bool,
) -> ImportedFile:
    """Return the document of an import."""
    return ImportedFile(
        dry_run,
        read.signed,
        read.signer,
        [
            ImportedResult(
                one.saved.path,
                one.saved.fstype,
                one.saved.values,
                one.action,
                one.why,
                list(one.differs),
                str(one.file),
            )
            for one in results
        ],
        len(read.exported.sections),
        str(sections_file) if sections_file else None,
        [ImportedSectionEntry(one.selects, one.action, one.why) for one in sections],
    )
