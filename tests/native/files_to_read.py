# SPDX-License-Identifier: GPL-2.0-or-later
"""Files for tests of reading."""

import random
from pathlib import Path

MIB = 1 << 20


def fill(file: Path, size: int, seed: int = 0) -> Path:
    """Write a file that cannot be compressed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(random.Random(seed).randbytes(size))
    return file
