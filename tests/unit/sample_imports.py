# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents of ``import`` for an exported file."""

from pathlib import Path

from fusetune.desired.exported import Exported
from fusetune.desired.transfer import Imported, ImportedSection, Read
from fusetune.mounts.mount import Mount
from fusetune.report.documents.base import Document
from fusetune.report.documents.transfer import imported_file
from tests.unit.sample_run import saved_by


def import_documents(mount: Mount) -> list[Document]:
    """``import``: of a signed file with results and sections, and of an empty one."""
    saved = saved_by(mount, "auto")
    file = Path(f"/etc{mount.path}.json")
    words = f"the server: {mount.source} there, other here"
    results = [
        Imported(saved, file, "imported", None, [words]),
        Imported(saved, file, "kept", f"of {mount.source}"),
        Imported(saved, file, "refused", "it was measured on Linux 6.1, but this host has 6.12"),
    ]
    full = Exported("6.12", [saved], [{"path": mount.path}])
    sections = Path(f"/etc{mount.path}.toml")
    done = [
        ImportedSection({"path": mount.path, "source": mount.source}, "imported"),
        ImportedSection({}, "unchanged"),
        ImportedSection({"path": mount.path}, "kept", f"of {mount.source}"),
    ]
    return [
        imported_file(Read(full, True, mount.source), results, sections, done, dry_run=False),
        imported_file(Read(full, True, None), [], None, [], dry_run=True),
        imported_file(Read(Exported("6.12", [], []), False, None), [], None, [], dry_run=False),
    ]
