# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of the tuned module that status finds in a directory tree.

tests/kernel runs the same with real modules, kernels and DKMS.
"""

import os
from typing import Any

import pytest

from tests import schemas
from tests.unit.conftest import Tree
from tests.unit.kmod.module_tree import (
    DKMS,
    LOG,
    OLDER,
    OTHER,
    RUNNING,
    Programs,
    found,
    in_kernel,
    installed,
)


def document(tree: Tree, run: Programs | None = None) -> dict[str, Any]:
    """The object of `status`, valid by its schema."""
    return schemas.check(found(tree, run))


def kernels(tree: Tree) -> dict[str, dict[str, Any]]:
    """The `status` of each kernel."""
    return {one["kernel"]: one for one in document(tree)["modules"][0]["kernels"]}


def test_nothing_is_there(tree: Tree) -> None:
    tree.write("proc/sys/kernel/osrelease", RUNNING + "\n")
    (only,) = document(tree)["modules"]
    assert (only["loaded"], only["sources"], only["kernels"]) == (None, [], [])
    assert only["stock"] == {"name": "fuse", "replaced": False, "loaded": None, "mounts": []}


def test_source_without_a_build(host_tree: Tree) -> None:
    found = kernels(host_tree)
    assert list(found) == [OTHER, OLDER, RUNNING]
    assert found[RUNNING]["state"] == "none"
    assert found[RUNNING]["reason"] == f"not built: run 'fusetune module build --kernel {RUNNING}'"
    assert found[OTHER]["state"] == "skipped"
    assert found[OTHER]["reason"].startswith(
        "it is not for this kernel, only for those that match ^(6"
    )


def test_kernels_with_and_without_it(host_tree: Tree) -> None:
    installed(host_tree)
    host_tree.write(f"{DKMS}/0.1.0/{OLDER}/x86_64/module/fusetuned.ko", "")
    found = kernels(host_tree)
    assert (found[RUNNING]["state"], found[RUNNING]["version"]) == ("installed", "0.1.0")
    assert found[RUNNING]["reason"] is None
    assert (found[OLDER]["state"], found[OLDER]["version"]) == ("built", "0.1.0")


def test_headers_that_are_missing_are_named(host_tree: Tree) -> None:
    (host_tree.root / f"usr/lib/modules/{OLDER}/build").rename(host_tree.root / "gone")
    found = kernels(host_tree)[OLDER]
    assert found["state"] == "skipped"
    assert found["reason"] == (
        f"its headers are missing: apt install linux-headers-{OLDER}, or dnf install "
        f"kernel-devel-{OLDER}"
    )


def test_a_failed_build_says_why(host_tree: Tree) -> None:
    log = host_tree.write(f"{DKMS}/0.1.0/build/make.log", LOG.format(RUNNING))
    found = kernels(host_tree)
    assert found[RUNNING]["state"] == "failed"
    assert found[RUNNING]["reason"] == "/bin/sh: 1: gcc-14: not found"
    assert found[RUNNING]["log"][-1] == "make[1]: *** [6.12/dev.o] Error 127"
    assert found[RUNNING]["log_file"] == str(log)
    assert found[OLDER]["state"] == "none"


@pytest.mark.parametrize("text", ["", LOG])
def test_a_full_disk_is_the_reason(
    host_tree: Tree, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    host_tree.write(f"{DKMS}/0.1.0/build/make.log", text.format(RUNNING))
    real = os.statvfs(host_tree.root)
    parts = list(real)
    parts[4] = 3  # blocks that are available
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(parts))
    found = kernels(host_tree)[RUNNING]
    assert found["state"] == "failed"
    assert found["reason"].startswith(f"no space left: {3 * real.f_frsize >> 10} KiB are free in ")


def test_loaded_and_as_installed_or_not(host_tree: Tree) -> None:
    installed(host_tree)
    in_kernel(host_tree)
    said = Programs(modinfo=(0, "ABC\n"))
    (only,) = document(host_tree, said)["modules"]
    assert only["loaded"] == {"version": "0.1.0", "srcversion": "ABC", "built_in": False}
    assert only["as_installed"] is True
    assert only["stock"]["loaded"]["built_in"] is True
    assert said.ran[0][:3] == ("modinfo", "-F", "srcversion")
    for code, out, expected in ((0, "DEF\n", False), (1, "", None)):
        (only,) = document(host_tree, Programs(modinfo=(code, out)))["modules"]
        assert only["as_installed"] is expected


def test_mounts_of_either_kind(host_tree: Tree) -> None:
    in_kernel(host_tree)
    host_tree.mount("/mnt/a", device="0:41", fstype="fusetuned.mirrorfs")
    host_tree.mount("/mnt/b", device="8:2", fstype="fusetunedblk")
    host_tree.mount("/mnt/c", device="0:43", fstype="fuse.sshfs")
    host_tree.mount("/mnt/d", device="0:44", fstype="fusectl")
    (only,) = document(host_tree)["modules"]
    assert only["mounts"] == ["/mnt/a", "/mnt/b"]
    assert only["stock"]["mounts"] == ["/mnt/c"]


@pytest.mark.parametrize(
    ("lockdown", "enforce", "enforced"),
    [
        ("[none] integrity confidentiality", "N", False),
        ("none [integrity] confidentiality", "N", True),
        ("[none] integrity confidentiality", "Y", True),
        (None, "N", False),
    ],
)
def test_signatures(host_tree: Tree, lockdown: str | None, enforce: str, enforced: bool) -> None:
    variable = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    path = host_tree.write(f"sys/firmware/efi/efivars/{variable}", "")
    path.write_bytes(b"\x06\0\0\0\x01" if enforced else b"\x06\0\0\0\0")
    if lockdown:
        host_tree.write("sys/kernel/security/lockdown", lockdown + "\n")
    host_tree.write("sys/module/module/parameters/sig_enforce", enforce + "\n")
    found = document(host_tree)
    assert found["secure_boot"] is enforced
    assert found["signatures_enforced"] is enforced
    assert bool(found["enrol"]) is enforced
    if not enforced:
        return
    assert found["enrol"][0] == "apt install openssl mokutil"
    key = host_tree.write("var/lib/dkms/mok.pub", "")
    assert document(host_tree)["enrol"] == [f"mokutil --import {key}"]
    in_kernel(host_tree)
    assert document(host_tree)["enrol"] == []


def test_text_names_all_of_it(host_tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    installed(host_tree)
    in_kernel(host_tree)
    host_tree.mount("/mnt/a", device="0:41", fstype="fusetuned.mirrorfs")
    said = found(host_tree, Programs(modinfo=(0, "DEF"))).as_text().splitlines()
    assert said == [
        f"kernel {RUNNING}",
        "fusetuned: 0.1.0, loaded; another version is installed: run 'fusetune module unload', "
        "then 'load'",
        "  beside fuse (built in)",
        "  mounted by fusetuned: /mnt/a",
        f"  {OTHER}: skipped: it is not for this kernel, only for those that match "
        r"^(6\.1|6\.12|7\.2|7\.3)[.-]",
        f"  {OLDER}: none: not built: run 'fusetune module build --kernel {OLDER}'",
        f"* {RUNNING}: installed 0.1.0",
    ]


def test_text_says_how_old_it_is(host_tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    installed(host_tree)
    why = "older than the kernel, 6.12.118-1: coccinelle is not installed"
    log = f"{DKMS}/0.1.0/{RUNNING}/x86_64/log/make.log"
    host_tree.write(log, f"DKMS (dkms-3.2.2) make.log\nfusetune: {why}\nmake: done\n")
    in_kernel(host_tree, "6.12.94 linux-source-6.12 6.12.94-1")
    host_tree.write("proc/sys/kernel/version", "#1 SMP Debian 6.12.117-1 (2026-11-12)\n")
    status = found(host_tree, Programs("6.12.117 linux-source-6.12 6.12.117-1"))
    said = status.as_text().splitlines()
    assert said[3] == (
        "  fusetuned is made from 6.12.94-1, older than the running kernel, 6.12.117-1, by 23 "
        "point releases"
    )
    assert said[-1] == f"* {RUNNING}: installed 0.1.0, made from 6.12.117-1, {why}"
    (only,) = schemas.check(status)["modules"]
    assert (only["age"]["releases_behind"], only["age"]["older"]) == (23, True)
    assert [one["source"] for one in only["kernels"]] == [
        None,
        None,
        {"version": "6.12.117", "package": "linux-source-6.12", "package_version": "6.12.117-1"},
    ]
