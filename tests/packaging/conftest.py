# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for the tests of packages; slow ones are made once."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fusetune import __version__
from tests.kernel.suites import SUITES, WHOLE, Suite
from tests.libfuse.suites import SUITES as LIBRARIES
from tests.native.mirror import CHECKOUT
from tests.packaging.trees import build_tree, inside

OLDER = "0.0.9"
_BUILD = """
export LC_ALL=C.UTF-8 DEB_BUILD_OPTIONS="nocheck parallel=2"
mkdir /tmp/build
dpkg-source -x /dist/*.dsc /tmp/build/tree >/dev/null
cd /tmp/build/tree
dpkg-buildpackage -us -uc -b
state=0
lintian --fail-on error,warning --tag-display-limit 0 --pedantic ../*.changes >/out/lintian 2>&1 ||
    state=$?
echo "status $state" >>/out/lintian
cp ../*.deb ../*.changes /out
"""


def sources() -> list[Path]:
    """Return the arguments of dist.py: a kernel source per series, and each suite's fuse3."""
    return [*(suite.source() for suite in SUITES), *(suite.source() for suite in LIBRARIES)]


def make_dist(
    checkout: Path, output: Path, *more: str, given: list[Path] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a checkout's dist.py and return the result; ``given``: sources, by default all."""
    program = checkout / "packaging" / "dist.py"
    command: list[str | Path] = [sys.executable, program, *more, output, *(given or sources())]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def copy_checkout(directory: Path) -> Path:
    """Copy the files that git tracks to a directory, which is not a checkout; return it."""
    listed = ["git", "-C", str(CHECKOUT), "ls-files", "-z"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, directory / name, follow_symlinks=False)
    return directory


def script(name: str, suite: Suite) -> str:
    """Return a function that runs a script of inside/ in a suite's tree."""
    return f"export SUITE={suite.name} OLD={OLDER} NEW={__version__}\nsh /inside/{name}"


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source packages of all suites."""
    output = tmp_path_factory.mktemp("dist")
    suites = (word for suite in WHOLE for word in ("--suite", suite.name))
    done = make_dist(CHECKOUT, output, *suites)
    assert done.returncode == 0, done.stderr
    return output


def build(suite: Suite, dist: Path, out: Path, recipe: str = _BUILD) -> str:
    """Build a suite's packages into ``out``, and return the output."""
    chosen = out.with_name(f"{out.name}-source")
    chosen.mkdir()
    (described,) = dist.glob(f"*{_version(suite)}.dsc")
    for path in (described, *dist.glob(f"{described.stem}.debian.tar.*"), *dist.glob("*.orig*")):
        os.link(path, chosen / path.name)
    out.mkdir()
    done = inside(build_tree(suite), out, recipe, (chosen, "/dist"))
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def _version(suite: Suite) -> str:
    suffixes = {"bookworm": "~deb12u1", "trixie": "~deb13u1", "sid": "~sid1"}
    return suffixes[suite.name]


@pytest.fixture(scope="session")
def packages(
    dist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Suite], Path]]:
    """Return the directory of a suite's packages. All are queued at once, built two at a time."""
    directory = tmp_path_factory.mktemp("packages")

    def make(suite: Suite) -> Path:
        build(suite, dist, directory / suite.name)
        return directory / suite.name

    with ThreadPoolExecutor(2) as pool:
        made = {suite: pool.submit(make, suite) for suite in WHOLE}
        yield lambda suite: made[suite].result()
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment in which GnuPG has a signing key."""
    home = tmp_path_factory.mktemp("gnupg")
    home.chmod(0o700)
    environment = {**os.environ, "GNUPGHOME": str(home)}
    make = ["gpg", "--batch", "--passphrase", "", "--quick-gen-key", "Test <test@test.example>"]
    subprocess.run(make, env=environment, check=True, capture_output=True, timeout=60)
    yield environment
    subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=True, timeout=60)


@pytest.fixture(scope="session")
def repositories(
    packages: Callable[[Suite], Path],
    key: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Suite], tuple[Path, Path]]:
    """Return the repositories of a suite's packages: of this version and of an older one."""
    made: dict[Suite, tuple[Path, Path]] = {}

    def both(suite: Suite) -> tuple[Path, Path]:
        if suite not in made:
            directory = tmp_path_factory.mktemp(f"repositories-{suite.name}")
            for name in ("new", "old"):
                debs = directory / "packages" / name / suite.name
                debs.parent.mkdir(parents=True)
                if name == "new":
                    shutil.copytree(packages(suite), debs)
                else:
                    older = Path(__file__).with_name("older.sh")
                    run([older, packages(suite), debs, __version__, OLDER], key)
                make = CHECKOUT / "packaging" / "repo.sh"
                run([make, debs.parent, directory / name], key)
            made[suite] = (directory / "new", directory / "old")
        return made[suite]

    return both


def run(command: list[str | Path], environment: dict[str, str]) -> None:
    """Run a command, which must succeed; otherwise its output is the error."""
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
