# SPDX-License-Identifier: GPL-2.0-or-later
"""The same requests, counted by the kernel and by mirrorfs."""

import json
import mmap
import os
import random
import subprocess
from pathlib import Path
from typing import Any

from tests.native.mirror import PATIENCE, Mirror

BLOCK = 4096
#: The server counts these, but the kernel has no tracepoint for them.
UNTRACED = {"FORGET", "BATCH_FORGET"}


def bpf_programs() -> list[dict[str, Any]]:
    """Return the kernel's BPF programs, as listed by bpftool."""
    done = subprocess.run(
        ["bpftool", "--json", "prog", "show"], capture_output=True, check=True, timeout=PATIENCE
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def programs() -> list[str]:
    """Return the kernel's programs on FUSE's tracepoints."""
    names = (one.get("name", "") for one in bpf_programs())
    return [name for name in names if name.startswith("fuse_request")]


def ops(mirror: Mirror) -> dict[str, Any]:
    """Return the server's own counts by operation."""
    found: dict[str, Any] = mirror.counters()["ops"]
    return found


def fill(mirror: Mirror, blocks: int) -> Path:
    """Create a file of this many blocks, and return its path in the mount."""
    (mirror.source / "file").write_bytes(os.urandom(BLOCK) * blocks)
    return mirror.mountpoint / "file"


def read_direct(file: Path, seed: int, count: int, blocks: int) -> None:
    """Read random blocks, each with one request."""
    seeded = random.Random(seed)
    with mmap.mmap(-1, BLOCK) as buffer:
        fd = os.open(file, os.O_RDONLY | os.O_DIRECT)
        for _ in range(count):
            os.preadv(fd, [buffer], seeded.randrange(blocks) * BLOCK)
        os.close(fd)


def served(mirror: Mirror) -> dict[str, int]:
    """Return the server's counts of the requests that the kernel has tracepoints for."""
    counted = {name: one["count"] for name, one in ops(mirror).items() if name not in UNTRACED}
    return {name: count for name, count in counted.items() if count}
