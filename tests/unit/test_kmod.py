# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of the tuned module, and what is run to change it, on directory trees.

tests/kernel runs the same with real modules, kernels and DKMS.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetune.errors import FusetuneError, UsageError
from fusetune.kmod import actions, kinds, state
from fusetune.kmod.kinds import Words
from fusetune.report.documents.modules import ModuleReport, module_report
from tests import schemas
from tests.unit.conftest import CHECKOUT, DEVICES, Tree

RUNNING, OLDER, OTHER = "6.12.94+deb13-amd64", "6.12.9+deb13-amd64", "6.5.0-other"
FUSETUNED = kinds.named("fusetuned")
DKMS = "var/lib/dkms/fusetuned"
LOG = """\
DKMS (dkms-3.2.2) make.log for fusetuned/0.1.0 for kernel {} (x86_64)
make: Entering directory
/bin/sh: 1: gcc-14: not found
make[1]: *** [6.12/dev.o] Error 127
"""


class Programs:
    """Runs nothing: notes the words, and answers as told by their first one.

    ``source`` is what modinfo says of the source of an installed module; it is not noted.
    """

    def __init__(self, source: str = "", **answers: tuple[int, str]) -> None:
        self.source = source
        self.ran: list[Words] = []
        self.answers = answers
        self.then: dict[str, Callable[[], object]] = {}

    def __call__(self, words: Words) -> subprocess.CompletedProcess[str]:
        if "tuned_source" in words:
            return subprocess.CompletedProcess(words, 0, f"{self.source}\n", "")
        self.ran.append(words)
        code, said = self.answers.get(words[0], (0, ""))
        if code == 0:
            self.then.get(words[0], lambda: None)()
        out, err = (said, "") if code == 0 else ("", said)
        return subprocess.CompletedProcess(words, code, out, err)


@pytest.fixture
def host_tree(tree: Tree) -> Tree:
    """A host of three kernels with the module's source, nothing built yet."""
    tree.write("proc/sys/kernel/osrelease", RUNNING + "\n")
    for kernel in (RUNNING, OLDER, OTHER):
        tree.write(f"usr/lib/modules/{kernel}/build/include/x.h", "")
    tree.write(
        "usr/src/fusetuned-0.1.0/dkms.conf", 'BUILD_EXCLUSIVE_KERNEL="^(6\\.1|6\\.12|7\\.2)\\."\n'
    )
    tree.write("sys/module/fuse/parameters/enable_uring", "N\n")
    return tree


def installed(tree: Tree, kernel: str = RUNNING) -> None:
    """As DKMS leaves it after a build."""
    tree.write(f"usr/lib/modules/{kernel}/updates/dkms/fusetuned.ko.xz", "")
    tree.write(f"{DKMS}/0.1.0/{kernel}/x86_64/module/fusetuned.ko.xz", "")
    os.symlink(f"0.1.0/{kernel}/x86_64", tree.root / DKMS / f"kernel-{kernel}-x86_64")


def in_kernel(tree: Tree, source: str | None = None) -> None:
    """As the module shows once it is loaded; ``source`` as import_kernel.py records it."""
    facts = {"initstate": "live", "version": "0.1.0", "srcversion": "ABC"}
    if source:
        facts["parameters/source"] = source
    for name, text in facts.items():
        tree.write(f"sys/module/fusetuned/{name}", text + "\n")


def found(tree: Tree, run: Programs | None = None) -> ModuleReport:
    """The document of `status`."""
    return module_report(state.status(tree.host, FUSETUNED, run or Programs()))


def document(tree: Tree, run: Programs | None = None) -> dict[str, Any]:
    """The object of `status`, valid by its schema."""
    return schemas.check(found(tree, run))


def kernels(tree: Tree) -> dict[str, dict[str, Any]]:
    """What `status` says of each kernel."""
    return {one["kernel"]: one for one in document(tree)["modules"][0]["kernels"]}


# Status


def test_nothing_is_there(tree: Tree) -> None:
    tree.write("proc/sys/kernel/osrelease", RUNNING + "\n")
    (only,) = document(tree)["modules"]
    assert (only["loaded"], only["sources"], only["kernels"]) == (None, [], [])
    assert only["stock"] == {"name": "fuse", "replaced": False, "loaded": None, "mounts": []}


def test_source_without_a_build(host_tree: Tree) -> None:
    found = kernels(host_tree)
    assert list(found) == [OTHER, OLDER, RUNNING]
    assert found[RUNNING]["state"] == "none"
    assert found[RUNNING]["reason"] == f"not built: fusetune module build --kernel {RUNNING}"
    assert found[OTHER]["state"] == "skipped"
    assert found[OTHER]["reason"].startswith("not for this kernel, but for those that match ^(6")


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
    assert found["reason"] == f"its headers are not there: apt install linux-headers-{OLDER}"


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
        "fusetuned: 0.1.0, loaded; a different one is installed: run 'fusetune module unload', "
        "then 'load'",
        "  beside fuse (built in)",
        "  mounted by fusetuned: /mnt/a",
        f"  {OTHER}: skipped: not for this kernel, but for those that match "
        r"^(6\.1|6\.12|7\.2)\.",
        f"  {OLDER}: none: not built: fusetune module build --kernel {OLDER}",
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


# f2fs, in place of the kernel's own

F2FS = kinds.named("f2fs-tuned")
VERSION_H = """\
#define LINUX_VERSION_CODE 393664
#define LINUX_VERSION_MAJOR 6
#define LINUX_VERSION_PATCHLEVEL 12
#define LINUX_VERSION_SUBLEVEL {}
"""


@pytest.fixture
def f2fs(host_tree: Tree) -> Tree:
    """A host whose kernels are 6.12.94 and 6.12.9, and f2fs-tuned made from 6.12.90."""
    directory = "usr/src/f2fs-tuned-0.1.0"
    filled = {"#VERSION#": "0.1.0", "#PACKAGE#": "f2fs-tuned", "#REPLACES#": "f2fs"}
    for file in ("dkms.conf", "source.sh"):
        text = (CHECKOUT / "dkms" / file).read_text().replace("#KERNELS#", r"6\.12")
        for mark, value in filled.items():
            text = text.replace(mark, value)
        host_tree.write(f"{directory}/{file}", text)
    host_tree.write(f"{directory}/6.12.source", "6.12.90 linux-source-6.12 6.12.90-1\n")
    for kernel, sublevel in ((RUNNING, 94), (OLDER, 9)):
        header = f"usr/lib/modules/{kernel}/build/include/generated/uapi/linux/version.h"
        host_tree.write(header, VERSION_H.format(sublevel))
    return host_tree


def f2fs_kernels(tree: Tree) -> dict[str, dict[str, Any]]:
    """What `status` says of f2fs-tuned for each kernel, with the real bash and dkms.conf."""
    said = schemas.check(module_report(state.status(tree.host, F2FS)))
    return {one["kernel"]: one for one in said["modules"][0]["kernels"]}


def test_an_older_f2fs_is_not_built(f2fs: Tree) -> None:
    found = f2fs_kernels(f2fs)
    assert found[RUNNING]["state"] == "skipped"
    assert found[RUNNING]["reason"] == (
        "its source, Linux 6.12.90-1, is older than the kernel's own f2fs, 6.12.94, and "
        "linux-source-6.12 is not installed; for the older one all the same, put the line "
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
    assert f2fs_kernels(f2fs)[RUNNING]["reason"].startswith("not built: fusetune module build")


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


def test_a_build_without_a_log_gives_dkms_last_words(host_tree: Tree) -> None:
    run = Programs(dkms=(1, "first\nError! You must be root\n"))
    with pytest.raises(FusetuneError, match=r": Error! You must be root$"):
        actions.build(host_tree.host, FUSETUNED, run=run)


def test_what_cannot_be_built_is_not_tried(host_tree: Tree) -> None:
    run = Programs()
    for kernel, why in ((OTHER, "not for this kernel"), ("6.12.1", "no kernel 6.12.1 in /lib")):
        with pytest.raises(FusetuneError, match=why):
            actions.build(host_tree.host, FUSETUNED, kernel, run=run)
    (host_tree.root / "usr/src/fusetuned-0.1.0/dkms.conf").unlink()
    with pytest.raises(FusetuneError, match="there is no source of fusetuned in /usr/src"):
        actions.build(host_tree.host, FUSETUNED, run=run)
    assert not run.ran


# Load and unload


@pytest.fixture
def ready(host_tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """It is installed. A directory tree has no mounts: loaded, the control file system is there."""
    installed(host_tree)
    directory = host_tree.root / "sys/fs/fusetuned/connections"
    for user in (state, actions):
        monkeypatch.setattr(user, "control_mounted", lambda host, control: directory.is_dir())
    return host_tree


def test_load_and_unload(ready: Tree) -> None:
    run, directory = Programs(), ready.host.path("sys/fs/fusetuned/connections")
    run.then = {
        "modprobe": lambda: in_kernel(ready),
        "mount": lambda: Path(directory).mkdir(0o755, True),
    }
    Path(directory).parent.mkdir(parents=True)
    actions.load(ready.host, FUSETUNED, run=run)
    mount = ("mount", "-t", "fusetunedctl", "fusetunedctl", directory)
    assert run.ran[:2] == [("modprobe", "fusetuned"), mount]
    run.ran.clear()
    actions.load(ready.host, FUSETUNED, run=run)
    assert not [words for words in run.ran if words[0] != "modinfo"]
    actions.unload(ready.host, FUSETUNED, run=run)
    changed = [words for words in run.ran if words[0] != "modinfo"]
    assert changed == [("umount", directory), ("rmmod", "fusetuned")]


def test_with_systemd_the_unit_mounts(ready: Tree) -> None:
    ready.write("run/systemd/system/x", "")
    ready.write("usr/lib/systemd/system/sys-fs-fusetuned-connections.mount", "")
    unit = "sys-fs-fusetuned-connections.mount"
    report = actions.load(ready.host, FUSETUNED, dry_run=True, run=Programs())
    assert report.commands[-1] == ("systemctl", "start", unit)
    in_kernel(ready)
    (ready.root / "sys/fs/fusetuned/connections").mkdir(parents=True)
    report = actions.unload(ready.host, FUSETUNED, dry_run=True, run=Programs())
    assert report.commands == (("systemctl", "stop", unit), ("rmmod", "fusetuned"))


def test_dry_run_runs_nothing(ready: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    run = Programs()
    report = actions.load(ready.host, FUSETUNED, dry_run=True, run=run)
    shown = module_report(report, dry_run=True)
    schemas.check(shown)
    assert shown.as_text().splitlines()[0] == "modprobe fusetuned"
    assert not run.ran


def test_load_says_why_it_is_not_there(host_tree: Tree) -> None:
    with pytest.raises(FusetuneError, match=f"fusetune module build --kernel {re.escape(RUNNING)}"):
        actions.load(host_tree.host, FUSETUNED, run=Programs())


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("could not insert 'fusetuned': Key was rejected by service", "mokutil --import"),
        ("could not insert 'fusetuned': Exec format error", "fusetune module build"),
    ],
)
def test_what_the_kernel_refuses_has_a_remedy(ready: Tree, said: str, remedy: str) -> None:
    ready.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    with pytest.raises(FusetuneError) as raised:
        actions.load(
            ready.host, FUSETUNED, run=Programs(modprobe=(1, f"modprobe: ERROR: {said}\n"))
        )
    assert said in str(raised.value)
    assert remedy in str(raised.value)


def test_unload_names_what_is_mounted(ready: Tree) -> None:
    in_kernel(ready)
    for number in (1, 2):
        ready.mount(f"/mnt/{number}", device=f"0:4{number}", fstype="fusetuned.x")
    run = Programs()
    with pytest.raises(FusetuneError, match="fusetuned serves /mnt/1, /mnt/2: unmount first"):
        actions.unload(ready.host, FUSETUNED, run=run)
    assert not run.ran


def test_unload_counts_mounts_elsewhere(ready: Tree) -> None:
    in_kernel(ready)
    ready.write("sys/fs/fusetuned/connections/50/waiting", "0\n")
    with pytest.raises(FusetuneError, match="serves 1 mounts of other mount namespaces"):
        actions.unload(ready.host, FUSETUNED, run=Programs())


def test_a_module_in_use_leaves_all_as_it_was(ready: Tree) -> None:
    """And who keeps it is named: by its device, or by mounts elsewhere."""
    in_kernel(ready)
    for pid in range(20, 25):
        ready.write(f"proc/{pid}/comm", f"name{pid}\n")
        ready.write(f"proc/{pid}/mountinfo", "21 1 0:21 / / rw - tmpfs tmpfs rw\n")
        (ready.root / f"proc/{pid}/fd").mkdir()
    ready.write("proc/19/comm", "ended\n")
    (ready.root / "proc/20/fd/3").symlink_to(DEVICES["fusetuned"])
    (ready.root / "proc/21/fd/3").symlink_to(DEVICES["fuse"])
    for pid, fstype in ((22, "fusetunedctl"), (23, "fusetuned.sshfs"), (24, "fuse.sshfs")):
        line = f"22 21 0:22 / /mnt rw,relatime - {fstype} x rw\n"
        ready.write(f"proc/{pid}/mountinfo", line)
    (ready.root / "sys/fs/fusetuned/connections").mkdir(parents=True)
    run = Programs(rmmod=(1, "rmmod: ERROR: Module fusetuned is in use\n"))
    named = "in use; kept by name20 (PID 20), name22 (PID 22), name23 (PID 23), by an open device"
    with pytest.raises(FusetuneError, match=re.escape(named)):
        actions.unload(ready.host, FUSETUNED, run=run)
    assert [words[0] for words in run.ran] == ["umount", "rmmod", "mount"]
    ready.write("fusetuned", "a file of that name is no device")
    for pid, device in ((25, DEVICES["fusetuned"]), (26, ready.root / "fusetuned")):
        ready.write(f"proc/{pid}/comm", f"name{pid}\n")
        (ready.root / f"proc/{pid}/fd").mkdir()
        (ready.root / f"proc/{pid}/fd/0").symlink_to(device)
    with pytest.raises(FusetuneError, match=r"name23 \(PID 23\) and 1 more, by an open device"):
        actions.unload(ready.host, FUSETUNED, run=run)


def test_unload_of_nothing(host_tree: Tree) -> None:
    run = Programs()
    assert actions.unload(host_tree.host, FUSETUNED, run=run).commands == ()


def test_a_module_in_place_of_the_kernels_own(host_tree: Tree) -> None:
    """It is ours if it has a version; the kernel's own is in the way of loading ours."""
    f2fs = kinds.named("f2fs-tuned")
    host_tree.write(f"usr/lib/modules/{RUNNING}/updates/dkms/f2fs.ko.xz", "")
    host_tree.mount("/mnt/a", device="8:2", fstype="f2fs")

    def seen() -> dict[str, Any]:
        report = state.status(host_tree.host, f2fs, Programs(modinfo=(0, "DEF")))
        (only,) = schemas.check(module_report(report))["modules"]
        return {**only, "stock mounts": only["stock"]["mounts"]}

    assert seen()["stock"]["replaced"] is True
    host_tree.write("sys/module/f2fs/initstate", "live\n")
    assert (seen()["loaded"], seen()["mounts"], seen()["stock mounts"]) == (None, [], ["/mnt/a"])
    with pytest.raises(FusetuneError, match="the kernel's own f2fs is loaded: unmount"):
        actions.load(host_tree.host, f2fs, run=Programs())
    assert actions.unload(host_tree.host, f2fs, run=Programs()).commands == ()
    host_tree.write("sys/module/f2fs/version", "0.1.0\n")
    host_tree.write("sys/module/f2fs/srcversion", "ABC\n")
    assert (seen()["as_installed"], seen()["mounts"]) == (False, ["/mnt/a"])
    assert seen()["stock"]["loaded"] is None
    with pytest.raises(FusetuneError, match="f2fs-tuned serves /mnt/a: unmount first"):
        actions.unload(host_tree.host, f2fs, run=Programs())


def test_names() -> None:
    assert kinds.named(None) == (*FUSETUNED, *kinds.named("f2fs-tuned"))
    with pytest.raises(UsageError, match="fusetune has no module 'fuse'; it has fusetuned,"):
        kinds.named("fuse")


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(FusetuneError, match="no-such-program is not installed: apt install dkms"):
        kinds.run_program(("no-such-program",))
