# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes of files in the documents of ``advise``, ``remount`` and ``reset``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.recipes.edit import Edit
from fusetune.report.documents.base import FullPath, Text


@dataclass(frozen=True)
class AdvisedEdit:
    """A change to a file that defines the mount."""

    file: Annotated[FullPath, "Absolute path of the file."]
    diff: Annotated[Text, "The change as a unified diff for patch -p1 -d /."]


def edits_of(edits: Sequence[Edit], secrets: Collection[str]) -> list[AdvisedEdit]:
    """Return edits without secrets; ``secrets``: as for `Edit.diff`."""
    return [AdvisedEdit(str(edit.file), edit.diff(secrets)) for edit in edits]
