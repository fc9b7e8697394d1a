# SPDX-License-Identifier: GPL-2.0-or-later
"""The package fusetune alone, made by debhelper as debian/rules does: without modules and library.

`make test-packaging` builds all packages, which takes minutes.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.native.mirror import CHECKOUT
from tests.packaging.conftest import copy_checkout

_CHANGELOG = """
import sys, pathlib; sys.path.insert(0, 'packaging'); import dist
entries = dist.releases(pathlib.Path('CHANGELOG').read_text())
pathlib.Path('debian/changelog').write_text(dist.debian_changelog(entries, sys.argv[1]))
"""
_STEPS = (
    "make --silent install install-completion DESTDIR={tree}/debian/fusetune",
    "dh_python3 -p fusetune /usr/share/fusetune",
    "dh_installdocs -p fusetune",
    "dh_compress -p fusetune",
    "dh_fixperms -p fusetune",
    "dh_installdeb -p fusetune",
    "dh_gencontrol -p fusetune",
    "dh_md5sums -p fusetune",
    "dh_builddeb -p fusetune --destdir=..",
)


def make_package(directory: Path, suite: str) -> Path:
    """Build it in ``directory``, and return the directory of this suite's packages."""
    packages = directory / suite
    tree = copy_checkout(packages / "tree")
    changelog = [sys.executable, "-c", _CHANGELOG, suite]
    for step in (changelog, *(words.format(tree=tree).split() for words in _STEPS)):
        done = subprocess.run(
            step, cwd=tree, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{step}: {done.stdout}{done.stderr}"
    shutil.rmtree(tree)
    return packages


def build_image(packages: Path, output: Path) -> Path:
    """Build the image of the package in ``packages``, and return its archive."""
    command = [CHECKOUT / "kubernetes" / "image.sh", packages, output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return output
