# SPDX-License-Identifier: GPL-2.0-or-later
"""A tmpfs for as long as a test needs it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def tmpfs(directory: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs on ``directory`` and unmount it afterwards, also after a failure."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "fusetune-test", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)
