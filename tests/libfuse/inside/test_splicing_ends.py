# SPDX-License-Identifier: GPL-2.0-or-later
"""A thread that spliced its last request reads the next one; libfuse looked for it in the pipe."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.libfuse.inside.libfuse_servers import STOCK, TUNED

_SOURCE = Path(__file__).with_name("splicing_ends.c")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
    )
    program = tmp_path / "splicing_ends"
    how = ("gcc", "-Wall", "-Wextra", "-Werror", "-o", program, _SOURCE)
    subprocess.run([*how, *shlex.split(found.stdout)], check=True)
    return program


@pytest.mark.parametrize(("directory", "answered"), [(TUNED, 2), (STOCK, 1)])
def test_a_write_after_a_spliced_one_is_answered(
    program: Path, directory: Path, answered: int
) -> None:
    """The distribution's library never answers it; once it does, the hook can go."""
    done = subprocess.run(
        [program],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={"LD_LIBRARY_PATH": str(directory)},
        stdin=subprocess.DEVNULL,
    )
    assert int(done.stdout) == answered, done.stderr
