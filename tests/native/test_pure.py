# SPDX-License-Identifier: GPL-2.0-or-later
"""The pure parts of the module fusetuned as user programs, with sanitizers.

Their C tests are in tests/kernel/pure; a header there replaces the kernel's fuse_i.h.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.kernel.suites import DKMS
from tests.native.mirror import CHECKOUT

_PURE = CHECKOUT / "tests" / "kernel" / "pure"
_TUNED = DKMS / "fusetuned" / "tuned"
_FLAGS = (
    *("-O1", "-g", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"),
    *("-Wno-unused-function", "-Wno-unused-parameter", "-Wno-sign-compare"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
#: Headers that both the host and the kernel have.
_OF_BOTH = {"types.h", "fuse.h"}


def _run(name: str, directory: Path, tuned: Path = _TUNED) -> subprocess.CompletedProcess[str]:
    """Build and run a program of pure/ with our files in ``tuned``, and return the result.

    fuse_i.h replaces the kernel's headers; those of other names are empty.
    """
    (directory / "linux").mkdir(parents=True)
    for file in tuned.glob("*.[ch]"):
        for header in re.findall(r"#include <linux/(\w+\.h)>", file.read_text()):
            if header not in _OF_BOTH:
                (directory / "linux" / header).touch()
    program = directory / name
    include = (f"-I{directory}", f"-I{_PURE}", f"-I{tuned}")
    command: list[str | Path] = ["gcc", *_FLAGS, *include, _PURE / f"{name}.c", "-o", program]
    subprocess.run(command, check=True, timeout=120)
    return subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", ["extents", "histogram", "limits"])
def test_pure_part(name: str, tmp_path: Path) -> None:
    done = _run(name, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    ("name", "file", "right", "wrong", "said"),
    [
        (
            "extents",
            "extend.c",
            "end = max(end, write->end)",
            "end = min(end, write->end)",
            "Assertion",
        ),
        ("histogram", "statistics.c", "BUCKETS - 1)", "BUCKETS)", "heap-buffer-overflow"),
        ("limits", "options.c", "pages > most", "pages > most + 1", "Assertion"),
    ],
)
def test_a_mistake_is_found(
    name: str, file: str, right: str, wrong: str, said: str, tmp_path: Path
) -> None:
    spoilt = tmp_path / "tuned"
    spoilt.mkdir()
    for path in _TUNED.glob("*.[ch]"):
        text = path.read_text()
        if path.name == file:
            assert right in text
            text = text.replace(right, wrong)
        (spoilt / path.name).write_text(text)
    done = _run(name, tmp_path / "out", spoilt)
    assert done.returncode != 0
    assert said in done.stderr, done.stderr
