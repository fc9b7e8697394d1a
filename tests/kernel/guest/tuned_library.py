# SPDX-License-Identifier: GPL-2.0-or-later
"""Mounts by servers that load the tuned libfuse3, with its options."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kernel.guest.opening import (
    make_files,
)
from tests.kernel.guest.rig import (
    stock,
)
from tests.native.mirror import (
    CHECKOUT,
    Mirror,
)

LIBRARY = CHECKOUT / "build" / "libfuse"


@contextmanager
def environment(options: str) -> Iterator[None]:
    """Let servers that start meanwhile use the tuned library with these options."""
    own = {"LD_LIBRARY_PATH": str(LIBRARY), "FUSETUNE_OPTIONS": options}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]


@contextmanager
def served(options: str, *own_options: str, files: int = 0) -> Iterator[Mirror]:
    """Mount this many files with the tuned library and these options, without the module."""
    make_files(files)
    with environment(options), stock(*own_options) as mirror:
        yield mirror
