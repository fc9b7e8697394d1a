# SPDX-License-Identifier: GPL-2.0-or-later
"""The note that names a benchmark's scratch directory while it exists."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fusetune.changes.journal import key_of
from fusetune.errors import FusetuneError, as_root, reason
from fusetune.files import remove
from fusetune.host import Host
from fusetune.mounts.mount import Mount


def scratch_note(host: Host, mount: Mount) -> Path:
    """Return the file that names a benchmark's scratch directory while it exists.

    The next run uses it to remove the directory of a run that was killed.
    """
    return host.run_dir / f"{key_of(mount)}.scratch"


@contextmanager
def noted(note: Path, text: str) -> Iterator[None]:
    """Keep ``text`` in the file ``note`` while the context lasts. Raises FusetuneError."""
    try:
        note.write_bytes(os.fsencode(text))
    except OSError as error:
        raise FusetuneError(f"cannot write {note}: {reason(error)}{as_root(error)}") from error
    try:
        yield
    finally:
        remove(note)
