# SPDX-License-Identifier: GPL-2.0-or-later
"""What build and install run, and which sources they use, on a directory tree.

tests/kernel runs the same with real modules, kernels and DKMS.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fusetune.cli.module_ import run_told
from fusetune.errors import FusetuneError
from fusetune.kmod import actions, kinds, state
from fusetune.kmod.kinds import Words
from fusetune.report.documents.modules import module_report
from tests import schemas
from tests.unit.conftest import Tree
from tests.unit.kmod.module_tree import (
    DKMS,
    FUSETUNED,
    LOG,
    OLDER,
    OTHER,
    RUNNING,
    Programs,
    installed,
)

# f2fs, which replaces the kernel's own


F2FS = kinds.named("f2fs-tuned")


def f2fs_kernels(tree: Tree) -> dict[str, dict[str, Any]]:
    """The `status` of f2fs-tuned for each kernel, with the real bash and dkms.conf."""
    said = schemas.check(module_report(state.status(tree.host, F2FS)))
    return {one["kernel"]: one for one in said["modules"][0]["kernels"]}


def test_an_older_f2fs_is_not_built(f2fs: Tree) -> None:
    found = f2fs_kernels(f2fs)
    assert found[RUNNING]["state"] == "skipped"
    assert found[RUNNING]["reason"] == (
        "its source, Linux 6.12.90-1, is older than the kernel's own f2fs, 6.12.94, and "
        "linux-source-6.12 is not installed; to use the older one anyway, put the line "
        f"'f2fs=yes' into {f2fs.host.admin_dir}/older.conf"
    )
    assert found[OLDER]["state"] == "none"
    with pytest.raises(FusetuneError, match="is older than the kernel's own f2fs"):
        actions.build(f2fs.host, F2FS)


def test_an_older_f2fs_by_the_administrators_word(f2fs: Tree) -> None:
    f2fs.host.admin_dir.mkdir(exist_ok=True)
    conf = f2fs.host.admin_dir / "older.conf"
    for text, seen in (("libfuse=yes\n", "skipped"), ("libfuse=yes\nf2fs=yes\n", "none")):
        conf.write_text(text)
        assert f2fs_kernels(f2fs)[RUNNING]["state"] == seen


def test_an_f2fs_as_new_as_the_kernel_is_built(f2fs: Tree) -> None:
    f2fs.write("usr/src/f2fs-tuned-0.1.0/6.12.source", "6.12.94\n")
    assert {one["state"] for one in f2fs_kernels(f2fs).values()} == {"skipped", "none"}
    assert f2fs_kernels(f2fs)[RUNNING]["reason"].startswith("not built: run 'fusetune module build")


# Build


def test_build_runs_dkms(host_tree: Tree) -> None:
    run = Programs()
    run.then["dkms"] = lambda: installed(host_tree)
    actions.build(host_tree.host, FUSETUNED, run=run)
    command = ("dkms", "install", "fusetuned/0.1.0", "-k", RUNNING)
    assert run.ran == [command]
    run.ran.clear()
    actions.build(host_tree.host, FUSETUNED, dry_run=True, run=run)
    report = actions.build(host_tree.host, FUSETUNED, dry_run=True, run=run)
    assert report.commands == (("dkms", "unbuild", *command[2:]), command)


def test_build_takes_the_newest_source(host_tree: Tree) -> None:
    for version in ("0.9.0", "0.10.0"):
        host_tree.write(f"usr/src/fusetuned-{version}/dkms.conf", "")
    report = actions.build(host_tree.host, FUSETUNED, OLDER, dry_run=True, run=Programs())
    assert report.commands == (("dkms", "install", "fusetuned/0.10.0", "-k", OLDER),)


def test_a_build_that_fails_names_the_first_error(host_tree: Tree) -> None:
    run = Programs(dkms=(10, "Error! Bad return status"))
    log = host_tree.write(f"{DKMS}/0.1.0/build/make.log", LOG.format(RUNNING))
    with pytest.raises(FusetuneError) as raised:
        actions.build(host_tree.host, FUSETUNED, run=run)
    assert str(raised.value) == (
        f"fusetuned was not built for {RUNNING}: /bin/sh: 1: gcc-14: not found; see {log}"
    )


@pytest.mark.parametrize(
    ("built", "failure"),
    [
        (None, (10, "Error! Bad return status")),
        ("new", (6, "Error! No space left on device")),
    ],
    ids=["built", "installed"],
)
def test_a_rebuild_that_fails_keeps_the_module(
    host_tree: Tree, built: str | None, failure: tuple[int, str]
) -> None:
    installed(host_tree)
    kernel = host_tree.root / DKMS / "0.1.0" / RUNNING
    module = kernel / "x86_64/module/fusetuned.ko.xz"
    module.write_text("old")
    file = host_tree.root / f"usr/lib/modules/{RUNNING}/updates/dkms/fusetuned.ko.xz"

    def dkms(words: Words) -> tuple[int, str]:
        """Remove at "unbuild"; copy what is built at "install", but fail to build."""
        if words[1] == "unbuild":
            shutil.rmtree(kernel)
            file.unlink()
        elif not module.exists():
            if built:
                module.parent.mkdir(parents=True)
                module.write_text(built)
            return failure
        else:
            shutil.copy(module, file)
        return 0, ""

    run = Programs()
    run.does["dkms"] = dkms
    with pytest.raises(FusetuneError, match=f"fusetuned was not built for .*: {failure[1]}"):
        actions.build(host_tree.host, FUSETUNED, run=run)
    assert [words[1] for words in run.ran] == ["unbuild", "install", "install"]
    assert (module.read_text(), file.read_text()) == ("old", "old")


def test_what_cannot_be_copied_is_not_rebuilt(
    host_tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(host_tree)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    run = Programs()
    with pytest.raises(FusetuneError, match="because the present build could not be copied: "):
        actions.build(host_tree.host, FUSETUNED, run=run)
    assert run.ran == []


def test_a_build_without_a_log_gives_dkms_last_words(host_tree: Tree) -> None:
    run = Programs(dkms=(1, "first\nError! You must be root\n"))
    with pytest.raises(FusetuneError, match=r": Error! You must be root$"):
        actions.build(host_tree.host, FUSETUNED, run=run)


def test_what_cannot_be_built_is_not_tried(host_tree: Tree) -> None:
    run = Programs()
    for kernel, why in ((OTHER, "not for this kernel"), ("6.12.1", "kernel 6.12.1 is not in /lib")):
        with pytest.raises(FusetuneError, match=why):
            actions.build(host_tree.host, FUSETUNED, kernel, run=run)
    (host_tree.root / "usr/src/fusetuned-0.1.0/dkms.conf").unlink()
    for name, remedy in (
        ("fusetuned", "fusetuned-dkms, or run 'make install-dkms' in a checkout"),
        ("f2fs-tuned", "f2fs-tuned-dkms, or run 'make install-dkms MODULE=f2fs' in a checkout"),
    ):
        missing = f"the source of {name} is missing in /usr/src: install the package {remedy}"
        with pytest.raises(FusetuneError, match=missing):
            actions.build(host_tree.host, kinds.named(name), run=run)
    assert not run.ran


def test_what_compiles_is_told_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dkms = tmp_path / "dkms"
    dkms.write_text("#!/bin/sh\necho $*\n")
    dkms.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        assert run_told(("dkms", "install", "fusetuned/1", "-k", "6.12")).stdout.startswith(
            "install"
        )
        assert run_told(("true",)).returncode == 0
    said = capsys.readouterr()
    assert said.err == "fusetune: running dkms install fusetuned/1 -k 6.12\n"
    assert said.out == ""
