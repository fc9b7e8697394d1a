# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's checkers find nothing in our files; imported files are not checked."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kernel.suites import DKMS, SUITES, USERLAND, Suite

_OURS = sorted(DKMS.glob("*/tuned/*.[ch]"))
#: From 7.2 on the kernel needs a newer sparse than Debian 12's, and builds without it.
_CHECKED = [suite for suite in SUITES if suite.series in ("6.1", "6.12")]
#: ENOSYS is part of FUSE's protocol; macros that hide differences may leave out arguments.
_IGNORED = "ENOSYS,MACRO_ARG_REUSE,MACRO_ARG_UNUSED"
#: Makes a user pointer a kernel pointer.
_SPOIL = "sed -i 's/const char __user [*]buf/const char *buf/' tuned/control.c"


@pytest.fixture(scope="session")
def checkpatch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel's checkpatch.pl, with the lists it reads."""
    directory = tmp_path_factory.mktemp("checkpatch")
    names = ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")
    how = ("--strip-components=2", "--wildcards", "--no-wildcards-match-slash")
    wanted = (f"*/scripts/{name}" for name in names)
    subprocess.run(["tar", "-C", directory, "-xf", USERLAND.archive(), *how, *wanted], check=True)
    return directory / "checkpatch.pl"


@pytest.fixture(scope="session")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with sparse, for use in a suite's tree."""
    program = shutil.which("sparse")
    assert program
    directory = tmp_path_factory.mktemp("sparse")
    shutil.copy(program, directory)
    return directory


def complaints(checkpatch: Path, *files: Path) -> str:
    """Return what checkpatch says about files, "" if nothing."""
    how = ("--no-tree", "--strict", "--terse", "--no-summary", "--max-line-length=100")
    command: list[str | Path] = ["perl", checkpatch, *how, "--ignore", _IGNORED, "-f", *files]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.stdout + said.stderr


def findings(suite: Suite, module: Path, sparse: Path, out: Path, before: str = "true") -> str:
    """Build a module with sparse, after a command; return its findings in our files."""
    script = f"""
        cp -r /module /tmp/module
        cd /tmp/module
        {before}
        make -C /lib/modules/{suite.kernel()}/build M=/tmp/module C=1 CHECK=/sparse/sparse modules
    """
    done = suite.inside(out, {module: "/module", sparse: "/sparse"}, script)
    assert done.returncode == 0, done.stdout
    checked = set(re.findall(r"^  CHECK +.*/tuned/(\w+\.c)$", done.stdout, re.MULTILINE))
    assert checked == {path.name for path in (module / "tuned").glob("*.c")}
    ours = r"^/tmp/module/tuned/.*(?:warning|error):.*$"
    return "\n".join(re.findall(ours, done.stdout, re.MULTILINE))


def test_checkpatch(checkpatch: Path, tmp_path: Path) -> None:
    assert complaints(checkpatch, *_OURS) == ""
    spoilt = tmp_path / "spoilt.c"
    text = (DKMS / "fusetuned" / "tuned" / "options.c").read_text()
    spoilt.write_text(text.replace("\tif (", "\tif("))
    assert "ERROR: space required before the open parenthesis" in complaints(checkpatch, spoilt)


@pytest.mark.parametrize("suite", _CHECKED, ids=lambda suite: suite.series)
def test_sparse(suite: Suite, modules: dict[str, Path], sparse: Path, tmp_path: Path) -> None:
    assert findings(suite, modules["fusetuned"], sparse, tmp_path) == ""


def test_sparse_finds_a_mistake(modules: dict[str, Path], sparse: Path, tmp_path: Path) -> None:
    found = findings(USERLAND, modules["fusetuned"], sparse, tmp_path, _SPOIL)
    assert "different address spaces" in found
