# SPDX-License-Identifier: GPL-2.0-or-later
"""repo.sh replaces its output, however that is written. The package is made for this test."""

import subprocess
from pathlib import Path

import pytest

from tests.native.mirror import CHECKOUT
from tests.packaging.conftest import run

_CONTROL = """\
Package: repo-test
Version: 1
Architecture: all
Section: misc
Priority: optional
Maintainer: x <x@x.example>
Description: made for a test
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A directory with one package for trixie."""
    control = tmp_path / "tree" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(_CONTROL)
    suite = tmp_path / "packages" / "trixie"
    suite.mkdir(parents=True)
    build: list[str | Path] = [
        "dpkg-deb",
        "--build",
        tmp_path / "tree",
        suite / "repo-test_1_all.deb",
    ]
    subprocess.run(build, check=True, capture_output=True)
    return suite.parent


@pytest.mark.parametrize("output", ["repo", "repo/", "./repo//"])
def test_a_repository_is_replaced(
    tmp_path: Path, packages: Path, key: dict[str, str], output: str
) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "old").touch()
    program = CHECKOUT / "packaging" / "repo.sh"
    run([program, packages, f"{tmp_path}/{output}"], key)
    assert sorted(path.name for path in (tmp_path / "repo").iterdir()) == ["apt", "fusetune.asc"]
    assert list((tmp_path / "repo" / "apt" / "pool").rglob("repo-test_1_all.deb"))
    assert not list(tmp_path.glob("repo?*")), "a new directory is left over"
