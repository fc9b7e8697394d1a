# SPDX-License-Identifier: GPL-2.0-or-later
"""The rpm packages: built, inspected, and installed by dnf in a Debian tree.

docs/packaging.md says what that does not prove.
"""

import re
from pathlib import Path

import pytest

from fusetune import __version__
from tests.kernel import suites as kernels
from tests.libfuse import suites as libraries
from tests.native.mirror import CHECKOUT
from tests.packaging.conftest import OLDER, copy_checkout, make_dist
from tests.packaging.trees import inside, rpm_tree

_INSIDE = (CHECKOUT / "tests" / "packaging" / "inside", "/inside")
_NAMES = (
    *("f2fs-tuned-dkms", "fusetune", "fusetune-intercept", "fusetune-mirrorfs", "fusetuned-dkms"),
    "libfuse3-tuned",
)


def _run(out: Path, script: str) -> str:
    tree = rpm_tree(kernels.SUITES[0])
    done = inside(tree, out, script, _INSIDE, (CHECKOUT, "/checkout"))
    assert done.returncode == 0, done.stdout
    return done.stdout


def _dist(checkout: Path, output: Path) -> None:
    """Make the source tarballs, of one series each, which the tree can build."""
    sources = [kernels.SUITES[0].source(), libraries.SUITES[0].source()]
    done = make_dist(checkout, output, given=sources)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with an earlier version."""
    directory = copy_checkout(tmp_path_factory.mktemp("older"))
    for name in ("CHANGELOG", "fusetune/__init__.py"):
        text = (directory / name).read_text()
        assert __version__ in text
        (directory / name).write_text(text.replace(__version__, OLDER))
    return directory


@pytest.fixture(scope="module")
def built(older: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources in src/ and src-old/; packages in new/, old/ and, built again, again/rpm/."""
    out = tmp_path_factory.mktemp("built")
    _dist(CHECKOUT, out / "src")
    _dist(older, out / "src-old")
    build = "sh /inside/rpm-build.sh /out"
    again = f"CCACHE_DISABLE=1 {build}/src /out/again/rpm"
    _run(out, f"{build}/src /out/new; {build}/src-old /out/old; {again}")
    return out


def test_reproducible(built: Path) -> None:
    new, again = (sorted((built / name).rglob("*.rpm")) for name in ("new", "again/rpm"))
    assert len(new) == len(_NAMES) + 1
    assert [path.name for path in new] == [path.name for path in again]
    differ = [a.name for a, b in zip(new, again, strict=True) if a.read_bytes() != b.read_bytes()]
    assert differ == []


def test_rpmlint(built: Path) -> None:
    said = _run(
        built,
        # Files that are identical in each series exist only if there are several series.
        "rpmlint --ignore-unused-rpmlintrc -r /checkout/rpm/fusetune.rpmlintrc"
        " /out/src/fusetune.spec /out/new/*.rpm /out/new/source/*.rpm",
    )
    assert re.search(r"\b7 packages and 1 specfiles checked; 0 errors, 0 warnings", said), said


def test_what_they_need_and_give(built: Path) -> None:
    said = _run(
        built,
        "for each in /out/new/*.rpm; do"
        " rpm -qp --qf '%{NAME} %{ARCH}[ %{REQUIRENAME}]\\n' $each;"
        " rpm -qp --qf '[%{=NAME} gives %{PROVIDENAME}\\n]' $each; done",
    )
    assert "python(abi)" not in said
    gives = re.findall(r"^libfuse3-tuned gives (.*)$", said, re.M)
    # Not libfuse3.so.3: other programs must not find it there.
    assert [name for name in gives if not name.startswith("libfuse3-tuned")] == []
    needs = {line.split()[0]: line.split()[1:] for line in said.splitlines() if "gives" not in line}
    assert sorted(needs) == sorted(_NAMES)
    assert [name for name in _NAMES if needs[name][0] != "noarch"] == [
        "fusetune-intercept",
        "fusetune-mirrorfs",
        "libfuse3-tuned",
    ]
    assert "dkms" in needs["fusetuned-dkms"]
    assert "libfuse3.so.3()(64bit)" in needs["fusetune-mirrorfs"]
    assert {"fio", "kmod", "python3-prometheus_client"} <= set(needs["fusetune"])


def test_without_a_source_of_the_systems_libfuse(built: Path) -> None:
    """If there is no source for the system's fuse3, the other packages are built."""
    said = _run(
        built,
        "mkdir /tmp/src; cp /out/src/* /tmp/src 2>/dev/null || true; rm /tmp/src/*fuse3-3-14*;"
        "rpmspec -q --builtrpms --qf '%{NAME}\\n' --define '_sourcedir /tmp/src'"
        " /out/src/fusetune.spec",
    )
    assert sorted(said.split()) == sorted(set(_NAMES) - {"libfuse3-tuned"})


def test_life(built: Path) -> None:
    script = "export OLD={} NEW={} GNUPGHOME=/tmp/gpg; mkdir -m 700 /tmp/gpg; {}".format(
        OLDER,
        __version__,
        "gpg --batch -q --passphrase '' --quick-gen-key test 2>/dev/null;"
        "for each in new old; do mkdir -p /tmp/$each; cp -r /out/$each /tmp/$each/rpm;"
        " sh /inside/rpm-host.sh /tmp/$each/rpm; done;"
        "bash /checkout/packaging/repo.sh /tmp/new /repo;"
        "bash /checkout/packaging/repo.sh /tmp/old /old;"
        "sh /inside/rpm-life.sh",
    )
    assert _run(built, script).rstrip().endswith("passed")
