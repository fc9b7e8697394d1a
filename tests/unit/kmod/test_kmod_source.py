# SPDX-License-Identifier: GPL-2.0-or-later
"""The Linux versions of a package and a kernel, as found by dkms/source.sh."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.conftest import CHECKOUT

_VERSION_H = """\
#define LINUX_VERSION_MAJOR 7
#define LINUX_VERSION_PATCHLEVEL 3
#define LINUX_VERSION_SUBLEVEL 0
"""


def _said(script: str, path: Path | None = None) -> str:
    """Return the output of a script that begins with source.sh; ``path`` precedes PATH."""
    source = CHECKOUT / "dkms" / "source.sh"
    ran = subprocess.run(
        ["sh", "-ec", f". {source}\n{script}"],
        env={"PATH": f"{path or ''}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return ran.stdout.strip()


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("6.12.117-1~deb12u1", "6.12.117"),
        ("7.2.13-1", "7.2.13"),
        ("7.3~rc7-1~exp1", "7.3.0"),
        ("7.3-1~exp1", "7.3.0"),
        ("7.10~rc1-1", "7.10.0"),
        ("", ""),
    ],
)
def test_the_version_in_a_packages(package: str, version: str) -> None:
    assert _said(f"upstream '{package}'") == version


@pytest.mark.skipif(not shutil.which("dpkg"), reason="no dpkg here")
@pytest.mark.parametrize(
    ("theirs", "why"),
    [("7.3~rc8-1~exp1", "linux-source-7.3 is not installed"), ("7.3~rc7-1~exp1", "")],
)
def test_a_candidate_for_a_release(theirs: str, why: str, tmp_path: Path) -> None:
    """The kernel's name has no third number, and the next candidate is newer."""
    query = tmp_path / "bin" / "dpkg-query"
    query.parent.mkdir()
    query.write_text(f"#!/bin/sh\necho {theirs}\n")
    query.chmod(0o755)
    header = tmp_path / "include/generated/uapi/linux/version.h"
    header.parent.mkdir(parents=True)
    header.write_text(_VERSION_H)
    (tmp_path / "7.3.source").write_text("7.3.0 linux-source-7.3 7.3~rc7-1~exp1\n")
    script = f"""
        sources={tmp_path}
        choose {tmp_path} 7.3-amd64 {tmp_path}
        echo "$series, $theirs, $why"
    """
    assert _said(script, query.parent) == f"7.3, 7.3.0 {theirs}, {why}".strip()
