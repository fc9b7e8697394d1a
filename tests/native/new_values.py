# SPDX-License-Identifier: GPL-2.0-or-later
"""Values that tests of several commands set, and how long a command may take."""

from pathlib import Path

NEW = {
    "read_ahead_kb": 1024,
    "max_background": 64,
    "congestion_threshold": 48,
    "max_ratio": 20,
    "strict_limit": 0,
}
WORDS = [f"{name}={value}" for name, value in NEW.items()]
PIPE = Path("/proc/sys/fs/pipe-max-size")
#: Seconds within which a command that asks no server must end, including the start of Python.
AT_ONCE = 5.0
