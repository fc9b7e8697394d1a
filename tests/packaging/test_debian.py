# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian packages: built, inspected, installed, upgraded and removed in every suite."""

import hashlib
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.by_suite import by_suite
from tests.kernel.suites import WHOLE, Suite
from tests.native.mirror import CHECKOUT
from tests.packaging.conftest import build, script
from tests.packaging.trees import inside, user_tree

_INSIDE = (
    (Path(__file__).with_name("inside"), "/inside"),
    (CHECKOUT / "debian" / "tests", "/debian-tests"),
)
#: The most MiB that `fusetune` may add, besides fio and python3.
_MOST_BROUGHT = 25
#: How a package's build runs the tests. On the tree's overlay a file may have another device number
#: than its directory, so the tests' files are on another file system.
_TESTS = """
mount -t tmpfs tmpfs /var/tmp
export TMPDIR=/var/tmp
dpkg-source -x /dist/*.dsc /tmp/tree >/dev/null
cd /tmp/tree
debian/rules override_dh_auto_test-indep
"""
#: The same build on another day, with another directory, locale, time zone and umask.
_ELSEWHERE = """
export LC_ALL=C TZ=Asia/Tokyo DEB_BUILD_OPTIONS=nocheck HOME=/nonexistent CCACHE_DISABLE=1
umask 077
mkdir /var/tmp/elsewhere
dpkg-source -x /dist/*.dsc /var/tmp/elsewhere/fusetune >/dev/null
cd /var/tmp/elsewhere/fusetune
dpkg-buildpackage -us -uc -b
cp ../*.deb /out
"""
_BROUGHT = """
brought() {
    apt-get -s --no-install-recommends -o Dir::State::status=/tmp/none install "$@" |
        sed -n 's/^Inst \\([^ ]*\\) .*/\\1/p' | sort
}
: >/tmp/none
. /inside/common.sh
offer /repo
brought fio python3 >/tmp/least
brought fusetune >/tmp/all
apt-cache show --no-all-versions $(comm -13 /tmp/least /tmp/all) | sed -n 's/^Installed-Size: //p'
"""


def _each(*seldom: str) -> pytest.MarkDecorator:
    return by_suite(WHOLE, seldom, "name")


@_each()
def test_lintian_finds_nothing(suite: Suite, packages: Callable[[Suite], Path]) -> None:
    said = (packages(suite) / "lintian").read_text()
    assert said.endswith("\nstatus 0\n"), said
    assert not re.findall(r"^[EW]: .*$", said, re.M), said
    assert "rror" not in said, said


@_each("bookworm", "trixie")
def test_unit_tests_pass_on_its_python(suite: Suite, dist: Path, tmp_path: Path) -> None:
    """The packages are built without them. ``make check`` also uses Debian 12's Python."""
    said = build(suite, dist, tmp_path / "tested", _TESTS)
    assert re.search(r"^\d{3,} passed", said, re.M), said


@_each("trixie", "sid")
def test_a_life(suite: Suite, repositories: Callable[[Suite], tuple[Path, Path]]) -> None:
    """Install, upgrade, use, downgrade, remove, reinstall and purge without a trace.

    On trixie, piuparts does most of this.
    """
    assert _ended(suite, repositories(suite), "life.sh").splitlines()[-1] == "passed"


@_each("trixie", "sid")
def test_kernels(suite: Suite, repositories: Callable[[Suite], tuple[Path, Path]]) -> None:
    """Kernels installed later get the modules; if one does not build, apt does not fail.

    For trixie, test_age.py installs later kernels.
    """
    assert _ended(suite, repositories(suite), "kernel.sh").splitlines()[-1] == "passed"


@_each("bookworm", "sid")
def test_piuparts(
    suite: Suite, repositories: Callable[[Suite], tuple[Path, Path]], tmp_path: Path
) -> None:
    """With piuparts: install and purge; then install an older version, upgrade and purge."""
    new, old = repositories(suite)
    debs = sorted(path for path in new.glob("apt/pool/**/*.deb") if "dbgsym" not in path.name)
    older = f"deb [trusted=yes] file:{old}/apt {suite.name} main"
    command: list[str | Path] = [
        # Its mounts end with the namespace, also if it fails.
        *("unshare", "--mount", "piuparts", "--no-eatmydata", "--skip-minimize"),
        *(f"--tmpdir={tmp_path}", f"--existing-chroot={user_tree(suite)}"),
        *("-d", suite.name, f"--bindmount={old}", f"--extra-repo={older}"),
        *debs,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
    assert len(debs) == 6
    for passed in ("Installation and purging test", "Installation, upgrade and purging tests"):
        assert f"INFO: PASS: {passed}." in done.stdout, done.stdout[-8000:]


def _ended(suite: Suite, repositories: tuple[Path, Path], name: str) -> str:
    new, old = repositories
    binds = ((new, "/repo"), (old, "/old"), *_INSIDE)
    done = inside(user_tree(suite), new, script(name, suite), *binds)
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def test_built_again_elsewhere_they_are_the_same(
    packages: Callable[[Suite], Path], dist: Path, tmp_path: Path
) -> None:
    suite = WHOLE[1]
    build(suite, dist, tmp_path / "again", _ELSEWHERE)
    first, again = (
        {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in directory.glob("*.deb")
        }
        for directory in (packages(suite), tmp_path / "again")
    )
    assert len(first) == 8  # two of them with debugging symbols
    assert again == first


def test_fusetune_alone_brings_little(
    repositories: Callable[[Suite], tuple[Path, Path]], tmp_path: Path
) -> None:
    suite = WHOLE[0]
    binds = ((repositories(suite)[0], "/repo"), *_INSIDE)
    done = inside(user_tree(suite), tmp_path, f"export SUITE={suite.name}\n{_BROUGHT}", *binds)
    assert done.returncode == 0, done.stdout
    sizes = [int(line) for line in done.stdout.split()]
    assert 5 < len(sizes) < 40, done.stdout
    assert sum(sizes) < _MOST_BROUGHT * 1024, done.stdout
