# SPDX-License-Identifier: GPL-2.0-or-later
"""The package fusetune alone, made by debhelper as debian/rules does: without modules and library.

`make test-packaging` builds all packages, which takes minutes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.native.mirror import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "packaging"))

import dist  # noqa: E402

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
    tree = packages / "tree"
    listed = subprocess.run(
        ["git", "-C", CHECKOUT, "ls-files", "-z"], check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (CHECKOUT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, tree / name)
    entries = dist.releases((tree / "CHANGELOG").read_text())
    (tree / "debian" / "changelog").write_text(dist.debian_changelog(entries, suite))
    for step in _STEPS:
        done = subprocess.run(
            step.format(tree=tree).split(),
            cwd=tree,
            env={**os.environ, "SOURCE_DATE_EPOCH": f"{entries[0].day.timestamp():.0f}"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{step}: {done.stdout}{done.stderr}"
    shutil.rmtree(tree)
    return packages
