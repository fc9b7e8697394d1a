# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount of the server oursd in a tree, advise's output, and an fstab that mounts it."""

from typing import Any

import pytest

from fusetune.cli.advise_ import command
from tests.unit.conftest import Tree
from tests.unit.server_options.etc_files import FSTAB
from tests.unit.server_options.oursd import Told, recipe_with, serve


@pytest.fixture
def ours(tree: Tree) -> Tree:
    """A mount of oursd at /mnt/one, served by process 10."""
    recipe_with(tree)
    tree.write("proc/sys/kernel/osrelease", "6.12.1\n")
    tree.write("proc/meminfo", "MemTotal: 2048 kB\n")
    tree.system()
    tree.mount("/mnt/one", fstype="fuse.ours", source="a")
    tree.live()
    return tree


@pytest.fixture
def tell(ours: Tree, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs advise on /mnt/one; returns its exit code and what it printed."""

    def run(*words: str) -> Told:
        done = command.main(
            ["/mnt/one", *words], prog_name="advise", obj=ours.host, standalone_mode=False
        )
        return done, capsys.readouterr().out

    return run


@pytest.fixture
def mounted_by_fstab(ours: Tree) -> Tree:
    """A mount at /mnt/one from fstab, which has secrets in this line and in another."""
    serve(ours)
    ours.write("etc/fstab", FSTAB)
    (ours.root / "etc/fstab").chmod(0o640)
    return ours
