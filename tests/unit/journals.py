# SPDX-License-Identifier: GPL-2.0-or-later
"""Records of a journal, and the files that fusetune has in /run."""

from pathlib import Path

from fusetune.changes.journal import Journal, Record
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree

RECORDS = [
    Record("max_ratio", 1, 20, "set", 1.5),
    Record("read_ahead_kb", 128, 1024, "set", 1.5),
    Record("max_ratio", 20, 50, 'why "not"\n\x00 größe', 2.5),
]


def journal_with(host: Host, mount: Mount | None, records: list[Record]) -> Path:
    journal = Journal(host, mount)
    journal.append(records)
    return journal.path


def files_of_run(tree: Tree) -> list[str]:
    return [path.name for path in tree.host.run_dir.iterdir()]
