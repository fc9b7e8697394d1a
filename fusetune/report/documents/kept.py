# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents of ``save`` and ``forget``: the values kept for a mount in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.desired.kept import Remembered
from fusetune.report.documents.base import RAW_BYTES, Document, DryRun, FullPath, KnobValues
from fusetune.report.text import Table
from fusetune.schema import Rule

KeptFilePath = Annotated[
    FullPath,
    f"Full path of the file. {RAW_BYTES}",
]
KeptBefore = Annotated[
    KnobValues | None,
    "Values that the file kept for the mount before, by knob name; empty if it kept the kernel's "
    "defaults; null if it kept nothing or could not be read.",
]


@dataclass(frozen=True)
class SavedFile:
    """The file that keeps values for the mount."""

    file: KeptFilePath
    before: KeptBefore
    after: Annotated[
        KnobValues,
        "The values that it keeps now, by knob name, in the unit stated for each.",
        Rule(minProperties=1),
    ]


@dataclass(frozen=True)
class ForgottenFile:
    """A file, or a section of one, that kept values for the mount."""

    file: KeptFilePath
    before: KeptBefore
    after: Annotated[None, "Always null: it keeps nothing now."]


@dataclass(frozen=True)
class SavedFiles(Document):
    """What 'save' wrote, or would write with --dry-run."""

    SCHEMA = "save"
    COMMANDS = ("save",)

    dry_run: DryRun
    files: Annotated[Sequence[SavedFile], "The one file.", Rule(minItems=1, maxItems=1)]

    def parts(self) -> Iterator[str | Table]:
        """Yield what the file keeps before and after."""
        return _parts(self.files, self.dry_run)


@dataclass(frozen=True)
class ForgottenFiles(Document):
    """What 'forget' removed, or would remove with --dry-run."""

    SCHEMA = "forget"
    COMMANDS = ("forget",)

    dry_run: DryRun
    files: Annotated[
        Sequence[ForgottenFile],
        "The saved results, then the sections in the order of files and lines.",
    ]

    def parts(self) -> Iterator[str | Table]:
        """Yield what each file keeps before and after."""
        return _parts(self.files, self.dry_run)


def saved_files(written: Remembered, dry_run: bool) -> SavedFiles:
    """Return what 'save' wrote."""
    one = SavedFile(str(written.file), written.before, written.after or {})
    return SavedFiles(dry_run, [one])


def forgotten_files(removed: Sequence[Remembered], dry_run: bool) -> ForgottenFiles:
    """Return what 'forget' removed."""
    return ForgottenFiles(dry_run, forgotten(removed))


def forgotten(removed: Sequence[Remembered]) -> list[ForgottenFile]:
    """Return the files that were removed."""
    return [ForgottenFile(str(one.file), one.before, None) for one in removed]


def kept(one: SavedFile | ForgottenFile) -> str:
    """Return what a file keeps before and after."""
    return f"{one.file}: {_values(one.before)} -> {_values(one.after)}"


def _parts(files: Sequence[SavedFile | ForgottenFile], dry_run: bool) -> Iterator[str]:
    yield from map(kept, files)
    if not files:
        yield "no values are kept"
    if dry_run:
        yield "dry run: nothing was written"


def _values(values: Mapping[str, int] | None) -> str:
    if values is None:
        return "nothing"
    return " ".join(f"{name}={value}" for name, value in values.items()) or "the kernel's defaults"
