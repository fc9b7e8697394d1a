# SPDX-License-Identifier: GPL-2.0-or-later
"""The collection passes ansible-test sanity, with the tools that it installs from PyPI."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.native.mirror import CHECKOUT
from tests.native.requirements import requires
from tests.system import tree

pytestmark = requires("ansible-test", "shellcheck")

# ansible-core 2.14 takes the installer of this version of pip from a server of its own, or from its
# cache. Debian's Python has the same in ensurepip, so PyPI alone is needed.
_GET_PIP = "get_pip_21_3_1.py"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_BY_ENSUREPIP = """\
import ensurepip, subprocess, sys
ensurepip.bootstrap()
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *sys.argv[1:]]))
"""


def test_ansible_test_finds_nothing(tmp_path: Path) -> None:
    """The virtual environments of its tools are made once, which takes minutes."""
    home = tree.cache("ansible-test")
    collection = tmp_path / "ansible_collections" / "fusetune" / "fusetune"
    shutil.copytree(CHECKOUT / "ansible", collection, ignore=shutil.ignore_patterns("__pycache__"))
    with tree.locked(home):
        cache = home / ".ansible" / "test" / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        (cache / _GET_PIP).write_text(_BY_ENSUREPIP)
        done = subprocess.run(
            ["ansible-test", "sanity", "--local", "--color", "no", "--python", _PYTHON],
            cwd=collection,
            env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-8000:]
    ran = set(re.findall(r'^Running sanity test "([\w-]+)"', done.stdout, re.M))
    assert {"import", "pep8", "pylint", "validate-modules", "yamllint"} <= ran
    assert len(ran) >= 30, ran
    assert "Skipping sanity test" not in done.stdout
