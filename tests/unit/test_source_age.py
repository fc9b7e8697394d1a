# SPDX-License-Identifier: GPL-2.0-or-later
"""How much older a copy of the kernel's or libfuse's code is than the distribution's.

The package manager knows the version of the distribution's package.
"""

import shutil

import pytest

from fusetune.report.doctor import ages, diagnose
from fusetune.report.documents.diagnosis import doctor_report
from fusetune.report.documents.verify import verification
from fusetune.source_age import Age, Source, parse, running_kernel
from tests import schemas
from tests.unit.conftest import Tree

SOURCE = "6.12.94 linux-source-6.12 6.12.94-1"
LIBRARY = "usr/lib/x86_64-linux-gnu"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-10)",
                "osrelease": "6.1.0-56-amd64",
            },
            Source("6.1.192", None, "6.1.192-2"),
        ),
        (
            {"version": "#1 SMP Debian 6.12.117-1~deb12u1 (2026-11-12)"},
            Source("6.12.117", None, "6.12.117-1~deb12u1"),
        ),
        (
            {"version": "#1 SMP Debian 7.3~rc7-1~exp1 (2026-10-12)", "osrelease": "7.3-amd64"},
            Source("7.3.0", None, "7.3~rc7-1~exp1"),
        ),
        ({"version": "#1 SMP Debian 7.3-1~exp1 (date)"}, Source("7.3.0", None, "7.3-1~exp1")),
        ({"version": "#1 SMP", "osrelease": "6.12.9-200.fc41.x86_64"}, Source("6.12.9")),
        ({"version": "#45-Ubuntu SMP", "osrelease": "6.1.0-45-generic"}, None),
        ({}, None),
    ],
)
def test_the_running_kernel(tree: Tree, files: dict[str, str], expected: Source | None) -> None:
    for name, text in files.items():
        tree.write(f"proc/sys/kernel/{name}", text + "\n")
    assert running_kernel(tree.host) == expected


def test_ubuntus_kernel_has_a_signature(tree: Tree) -> None:
    tree.write("proc/sys/kernel/osrelease", "6.12.0-45-generic\n")
    tree.write("proc/version_signature", "Ubuntu 6.12.0-45.45-generic 6.12.12\n")
    assert running_kernel(tree.host) == Source("6.12.12")


@pytest.mark.parametrize("text", ["", "ABC", "6.12", "6.12.94 linux-source-6.12"])
def test_what_is_no_record(text: str) -> None:
    assert parse(text) is None


def _age(source: str, current: str | None) -> Age:
    there = parse(current) if current else None
    made_from = parse(source)
    assert made_from
    return Age("fusetuned", made_from, there)


@pytest.mark.parametrize(
    ("source", "current", "behind", "older"),
    [
        (SOURCE, "6.12.117 linux 6.12.117-1", 23, True),
        ("6.12.94", "6.12.117 linux 6.12.117-1", 23, True),
        ("6.12.117", "6.12.94 linux 6.12.94-1", 0, False),
        ("6.12.94", "6.12.94 linux 6.12.94-9", 0, False),
        ("6.1.192", "6.12.94", None, True),
        ("7.2.1", "6.12.94", None, False),
        (SOURCE, None, None, None),
    ],
)
def test_by_how_much(
    source: str, current: str | None, behind: int | None, older: bool | None
) -> None:
    age = _age(source, current)
    assert (age.behind, age.older) == (behind, older)


@pytest.mark.parametrize(
    ("ours", "theirs", "older"),
    [
        ("6.1.192-1", "6.1.192-2", True),
        ("6.1.192-2", "6.1.192-1", False),
        ("6.1.192-1~deb11u1", "6.1.192-1", True),
        ("7.3~rc7-1~exp1", "7.3~rc8-1~exp1", True),
    ],
)
def test_revisions_compare_as_dpkg_does(ours: str, theirs: str, older: bool) -> None:
    """Without dpkg no kernel has such a version, and none counts as older."""
    age = _age(f"6.1.192 linux-source-6.1 {ours}", f"6.1.192 linux {theirs}")
    assert (age.behind, age.older) == (0, older and bool(shutil.which("dpkg")))


def _loaded(tree: Tree, kernel: str, module: str = "fusetuned") -> None:
    for name, text in (("initstate", "live"), ("version", "0.1.0"), ("parameters/source", SOURCE)):
        tree.write(f"sys/module/{module}/{name}", text + "\n")
    tree.write("proc/sys/kernel/version", f"#1 SMP Debian {kernel} (date)\n")


def _library(tree: Tree, source: str, theirs: str) -> None:
    tree.write(f"{LIBRARY}/fusetune/libfuse3.so.4", "")
    tree.write(f"{LIBRARY}/fusetune/libfuse3.source", source + "\n")
    tree.write(f"{LIBRARY}/libfuse3.so.{theirs}", "")
    (tree.root / LIBRARY / "libfuse3.so.4").symlink_to(f"libfuse3.so.{theirs}")


def test_doctor_finds_what_is_older(tree: Tree) -> None:
    _loaded(tree, "6.12.117-1")
    _library(tree, "3.17.2 fuse3 3.17.2-3", "3.17.4")
    diagnosis = diagnose(tree.host)
    found = {finding.name: finding for finding in diagnosis.findings}
    assert found["old-module"].what == (
        "fusetuned is made from 6.12.94-1, older than the running kernel, 6.12.117-1, by 23 point "
        "releases: it lacks later fixes"
    )
    assert found["old-module"].remedy == (
        "apt install linux-source-6.12 coccinelle, or install a newer fusetuned-dkms; then "
        "'fusetune module build fusetuned', 'unload fusetuned' and 'load fusetuned'"
    )
    assert found["old-library"].what.startswith(
        "libfuse3-tuned is made from 3.17.2-3, older than the distribution's libfuse3, 3.17.4, by "
        "2 point releases"
    )
    document = schemas.check(doctor_report(diagnosis))
    assert [one["releases_behind"] for one in document["sources"]] == [23, 2]


def test_doctor_finds_an_older_f2fs(tree: Tree) -> None:
    _loaded(tree, "6.12.117-1", "f2fs")
    (found,) = (each for each in diagnose(tree.host).findings if each.name == "old-module")
    assert found.what.startswith("f2fs-tuned is made from 6.12.94-1, older than the running kernel")
    assert "fusetune module build f2fs-tuned" in found.remedy


def test_doctor_is_silent_where_nothing_is_older(tree: Tree) -> None:
    _loaded(tree, "6.12.94-1")
    _library(tree, "3.17.2 fuse3 3.17.2-3", "3.17.2")
    diagnosis = diagnose(tree.host)
    assert not [finding for finding in diagnosis.findings if finding.name.startswith("old-")]
    assert [one.older for one in diagnosis.ages] == [False, False]


def test_a_module_without_a_record_has_no_age(tree: Tree) -> None:
    _loaded(tree, "6.12.94-1")
    (tree.root / "sys/module/fusetuned/parameters/source").unlink()
    assert ages(tree.host) == []


def test_a_library_of_a_package_is_compared_by_its_source_package(tree: Tree) -> None:
    _library(tree, "3.17.2 fuse3 3.17.2-3", "3.17.2")
    tree.write(
        "var/lib/dpkg/status",
        "Package: libfuse3-4\nStatus: install ok installed\nArchitecture: amd64\n"
        "Source: fuse3 (3.17.2-3+deb13u1)\nVersion: 3.17.2-3+deb13u1+b2\n"
        "Maintainer: x <x@x.example>\nDescription: x\n",
    )
    (age,) = ages(tree.host)
    expected = Source("3.17.2", "fuse3", "3.17.2-3+deb13u1")
    assert age.current == (expected if shutil.which("dpkg-query") else Source("3.17.2"))
    assert age.older is bool(shutil.which("dpkg-query"))


def test_verify_notes_it(tree: Tree) -> None:
    """What is older is no difference from what is kept."""
    _loaded(tree, "6.12.117-1")
    document = verification([], ages(tree.host))
    schemas.check(document)
    assert document.differences == 0
    assert document.as_text().splitlines()[1] == (
        "note: fusetuned is made from 6.12.94-1, older than the running kernel, 6.12.117-1, by 23 "
        "point releases"
    )
