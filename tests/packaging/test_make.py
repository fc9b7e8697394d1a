# SPDX-License-Identifier: GPL-2.0-or-later
"""The Makefile's targets for packages, from the download to the repository.

For every change, other tests run what they call (dist.py, repo.sh, the recipes). The targets and
the download are tested by ``make test-long``.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fusetune import __version__
from tests.kernel.suites import SUITES, USERLAND, Suite
from tests.packaging.conftest import copy_checkout, sources
from tests.packaging.trees import build_tree, inside, rpm_tree

pytestmark = pytest.mark.long


def _make(checkout: Path, *words: str, environment: dict[str, str] | None = None) -> None:
    command = ["make", "-C", str(checkout), *words]
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project, for its build/."""
    return copy_checkout(tmp_path / "checkout")


def test_dist_downloads_every_source(checkout: Path, dist: Path) -> None:
    _make(checkout, "dist", f"SUITE={USERLAND.name}")
    names = {path.name for path in (checkout / "build" / "dist").iterdir()}
    assert names >= {path.name for path in dist.iterdir() if ".orig" in path.name}
    assert f"fusetune_{__version__}-1~deb13u1.dsc" in names


def _made_inside(tree: Path, checkout: Path, out: Path, target: str, given: list[Path]) -> set[str]:
    """Run a target in a tree, which has no network; return the names of its packages."""
    out.mkdir()
    binds = {path: f"/sources/{number}" for number, path in enumerate(given)}
    script = f"""
        mount -t tmpfs tmpfs /tmp
        cp -r /checkout /tmp/checkout
        make -C /tmp/checkout {target} DIST_SOURCES="{" ".join(binds.values())}"
        cp -r /tmp/checkout/build/packages/* /out
    """
    done = inside(tree, out, script, (checkout, "/checkout"), *binds.items(), timeout=3600)
    assert done.returncode == 0, done.stdout[-8000:]
    return {path.name.partition("_")[0] for path in out.rglob("*.[dr][ep][bm]")}


def test_deb(checkout: Path, tmp_path: Path) -> None:
    """With libfuse's tests and ours, because nothing disables them."""
    made = _made_inside(build_tree(USERLAND), checkout, tmp_path / "out", "deb", sources())
    names = {"fusetune", "fusetune-intercept", "fusetune-mirrorfs"}
    names |= {"fusetuned-dkms", "f2fs-tuned-dkms", "libfuse3-tuned"}
    assert {name for name in made if "dbgsym" not in name} == names


def test_rpm(checkout: Path, tmp_path: Path) -> None:
    given = [path for number, path in enumerate(sources()) if number % len(SUITES) == 0]
    made = _made_inside(rpm_tree(SUITES[0]), checkout, tmp_path / "out", "rpm", given)
    assert len([name for name in made if not name.endswith(".src.rpm")]) >= 6, made


def test_repo(checkout: Path, packages: Callable[[Suite], Path], key: dict[str, str]) -> None:
    directory = checkout / "build" / "packages"
    directory.mkdir(parents=True)
    (directory / USERLAND.name).symlink_to(packages(USERLAND))
    _make(checkout, "repo", environment=key)
    assert list((checkout / "build" / "repo").glob("apt/dists/*/InRelease"))


def test_demo() -> None:
    _make(Path(__file__).parents[2], "demo")
