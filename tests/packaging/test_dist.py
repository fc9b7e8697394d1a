# SPDX-License-Identifier: GPL-2.0-or-later
"""Source packages are reproducible, and their changelogs come from CHANGELOG."""

import hashlib
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from fusetune import __version__
from tests.kernel.suites import SUITES
from tests.native.mirror import CHECKOUT
from tests.packaging.conftest import copy_checkout, make_dist, sources

_COMPONENTS = {
    *("linux-6-1", "linux-6-12", "linux-7-2", "linux-7-3"),
    *("fuse3-3-14", "fuse3-3-17", "fuse3-3-18"),
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project for tests to break."""
    return copy_checkout(tmp_path / "checkout")


def _hashes(directory: Path) -> dict[str, str]:
    files = (path for path in directory.iterdir() if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_source_packages_are_the_same_again(dist: Path, checkout: Path, tmp_path: Path) -> None:
    again, download = tmp_path / "again", checkout / "build" / "sources" / "linux.deb"
    download.parent.mkdir(parents=True)
    download.touch()  # not packed, in a tree without git either
    done = make_dist(checkout, again, given=sources()[2:4])
    assert done.returncode == 0, done.stderr
    packed = {name: value for name, value in _hashes(again).items() if ".orig" in name}
    assert len(packed) == 3  # ours, a kernel's, a fuse3's
    assert packed.items() <= _hashes(dist).items()


def test_components_hold_what_their_names_say(dist: Path) -> None:
    for name in _COMPONENTS:
        with tarfile.open(dist / f"fusetune_{__version__}.orig-{name}.tar.xz") as archive:
            members = archive.getnames()
        assert {member.split("/")[0] for member in members} == {name}
        expected = "fs/f2fs/segment.c" if name.startswith("linux") else "lib/fuse_lowlevel.c"
        assert f"{name}/{expected}" in members
    # A tarball of ours and one per component; a .dsc and a .debian.tar.xz per suite; the spec.
    assert len(_hashes(dist)) == 1 + len(_COMPONENTS) + 2 * 3 + 1
    with tarfile.open(dist / f"fusetune_{__version__}.orig.tar.xz") as archive:
        assert not any("/debian/" in member for member in archive.getnames())


def test_a_kernels_source_may_be_a_package(dist: Path, tmp_path: Path) -> None:
    """As downloaded by fetch.sh: only the files that the modules need are packed."""
    suite = SUITES[0]
    package = tmp_path / "package"
    for directory in ("DEBIAN", "usr/src"):
        (package / directory).mkdir(parents=True)
    (package / "DEBIAN" / "control").write_text(
        f"Package: linux-source-{suite.series}\nVersion: {suite.source_version()}\n"
        "Architecture: all\nMaintainer: Test <test@test.example>\nDescription: test\n"
    )
    name = f"linux-source-{suite.series}"
    archive = package / "usr" / "src" / f"{name}.tar.xz"
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(suite.source(), name)
    deb = tmp_path / f"{name}_1_all.deb"
    subprocess.run(["dpkg-deb", "-b", package, deb], check=True, stdout=subprocess.DEVNULL)
    done = make_dist(CHECKOUT, tmp_path / "out", given=[deb])
    assert done.returncode == 0, done.stderr
    component = f"fusetune_{__version__}.orig-linux-{suite.series.replace('.', '-')}.tar.xz"
    assert _hashes(tmp_path / "out")[component] == _hashes(dist)[component]


def test_changelogs_are_that_of_the_project(dist: Path) -> None:
    changes = re.split(r"^- ", (CHECKOUT / "CHANGELOG").read_text(), flags=re.M)[1:]
    said = [re.sub(r"\W+", " ", change).strip() for change in changes]
    assert said
    spec = re.sub(r"\W+", " ", (dist / "fusetune.spec").read_text())
    (packed,) = dist.glob("*deb12u1.debian.tar.xz")
    with tarfile.open(packed) as archive:
        member = archive.extractfile("debian/changelog")
        assert member
        debian = member.read().decode()
    assert debian.startswith(f"fusetune ({__version__}-1~deb12u1) bookworm; ")
    for change in said:
        assert change in spec
        assert change in re.sub(r"\W+", " ", debian)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fusetune 0.9.9 (2026-11-21)\n\n- x\n", "CHANGELOG: 0.9.9 on top; fusetune is"),
        ("fusetune next\n\n- x\n", "CHANGELOG: 'fusetune next', not"),
    ],
)
def test_a_changelog_that_is_wrong_is_refused(
    checkout: Path, tmp_path: Path, text: str, says: str
) -> None:
    (checkout / "CHANGELOG").write_text(text)
    done = make_dist(checkout, tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.startswith(f"dist.py: {says}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "says"), [(".", ""), ("none", ": no such source; ")])
def test_a_source_that_is_none_is_refused(tmp_path: Path, name: str, says: str) -> None:
    source = tmp_path / name
    done = make_dist(CHECKOUT, tmp_path / "out", given=[source])
    assert done.returncode == 1
    assert done.stderr.startswith(f"dist.py: {source}{says}" if says else "dist.py: ")
    assert done.stderr.count("\n") == 1


def test_everything_is_installed_below_a_relative_directory(checkout: Path) -> None:
    command = ["make", "--silent", "-C", str(checkout), "install", "DESTDIR=stage"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    found = {path.name for path in checkout.glob("*/stage/**/*.py")}
    assert not found
    assert (checkout / "stage/usr/share/fusetune/fusetune/cli/__init__.py").exists()
    assert (checkout / "stage/usr/bin/fusetune").exists()
