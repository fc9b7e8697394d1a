# SPDX-License-Identifier: GPL-2.0-or-later
"""A temporary tmpfs or tracefs for a test."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")


@contextmanager
def tmpfs(directory: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs on ``directory`` and unmount it afterwards, also after a failure."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "fusetune-test", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


@contextmanager
def tracefs() -> Iterator[None]:
    """Mount tracefs where bpftrace looks for it, unless it is mounted."""
    if (TRACING / "events").is_dir():
        yield
        return
    subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", TRACING], check=True)
