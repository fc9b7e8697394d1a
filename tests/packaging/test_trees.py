# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian trees are recreated each month, and old ones are removed."""

from pathlib import Path

import pytest

from tests.system import tree

_FAKE = """#!/bin/sh
for directory; do :; done
mkdir "$directory"
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and an mmdebstrap that makes an empty tree."""
    program = tmp_path / "bin" / "mmdebstrap"
    program.parent.mkdir()
    program.write_text(_FAKE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fusetune" / "trees"


def test_a_tree_is_made_once_a_month(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for month in ("2026-11", "2026-11", "2026-12"):
        monkeypatch.setattr(tree, "_MONTH", month)
        made.append(tree.made("trixie", "kind", ["--variant=minbase"]))
        (made[-1] / "used").touch()
    assert made[0] == made[1] != made[2]
    assert all(directory.parent == kept for directory in made)


def test_a_tree_of_a_month_long_ago_goes(kept: Path) -> None:
    kept.mkdir(parents=True)
    trees = [f"trixie-kind-0123456789ab-{month}" for month in ("2026-10", "2026-11", "2026-12")]
    for name in trees:
        (kept / name).mkdir()
        (kept / name / "file").touch()
        (kept / f"{name}.0123456789ab.source").mkdir()
        (kept / f"{name}-0123456789ab.ext4").touch()
        (kept / f"{name}.lock").touch()
    tree.remove_old(kept, "2027-01")
    left = {path.name for path in kept.iterdir()}
    assert {name for name in trees if name in left} == {trees[2]}
    assert all(name.startswith(trees[2]) for name in left)
    assert len(left) == 4
    tree.remove_old(kept, "2027-01")
    assert len(list(kept.iterdir())) == 4
