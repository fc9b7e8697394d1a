# SPDX-License-Identifier: GPL-2.0-or-later
"""What native tests need on the host, and the message if it is missing."""

import os
import shutil
from pathlib import Path

import pytest

from tests.native.mirror import BINARY, CHECKOUT


def requires(*programs: str, binary: Path = BINARY) -> pytest.MarkDecorator:
    """A mark that skips a test and names what is missing: root, /dev/fuse, server or program."""
    missing = []
    if os.geteuid() != 0:
        missing.append("root")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        missing.append("/dev/fuse")
    if not os.access(binary, os.X_OK):
        missing.append(f"{binary.relative_to(CHECKOUT)} (make -C mirrorfs)")
    missing += [program for program in ("fusermount3", *programs) if not shutil.which(program)]
    return pytest.mark.skipif(bool(missing), reason="missing: " + ", ".join(missing))
