# SPDX-License-Identifier: GPL-2.0-or-later
"""What load and unload run, and what they refuse, on a directory tree.

tests/kernel runs the same with real modules, kernels and DKMS.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from fusetune.errors import FusetuneError, UsageError
from fusetune.kmod import actions, kinds, state
from fusetune.report.documents.modules import module_report
from tests import schemas
from tests.unit.conftest import DEVICES, Tree
from tests.unit.kmod.module_tree import FUSETUNED, RUNNING, Programs, in_kernel, installed


@pytest.fixture
def ready(host_tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """It is installed. A tree has no mounts, so the control file system exists once loaded."""
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
    with pytest.raises(FusetuneError, match="fusetuned serves /mnt/1, /mnt/2: unmount these first"):
        actions.unload(ready.host, FUSETUNED, run=run)
    assert not run.ran


def test_unload_counts_mounts_elsewhere(ready: Tree) -> None:
    in_kernel(ready)
    ready.write("sys/fs/fusetuned/connections/50/waiting", "0\n")
    with pytest.raises(FusetuneError, match="serves 1 mount in other mount namespaces"):
        actions.unload(ready.host, FUSETUNED, run=Programs())


def test_a_module_in_use_leaves_all_as_it_was(ready: Tree) -> None:
    """The user is named: a process with the device open, or mounts elsewhere."""
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
    named = (
        "in use; held by name20 (PID 20), name22 (PID 22), name23 (PID 23), through an open device"
    )
    with pytest.raises(FusetuneError, match=re.escape(named)):
        actions.unload(ready.host, FUSETUNED, run=run)
    assert [words[0] for words in run.ran] == ["umount", "rmmod", "mount"]
    ready.write("fusetuned", "a file of that name is no device")
    for pid, device in ((25, DEVICES["fusetuned"]), (26, ready.root / "fusetuned")):
        ready.write(f"proc/{pid}/comm", f"name{pid}\n")
        (ready.root / f"proc/{pid}/fd").mkdir()
        (ready.root / f"proc/{pid}/fd/0").symlink_to(device)
    with pytest.raises(
        FusetuneError, match=r"name23 \(PID 23\) and 1 more, through an open device"
    ):
        actions.unload(ready.host, FUSETUNED, run=run)


def test_unload_of_nothing(host_tree: Tree) -> None:
    run = Programs()
    assert actions.unload(host_tree.host, FUSETUNED, run=run).commands == ()


def test_a_module_in_place_of_the_kernels_own(host_tree: Tree) -> None:
    """It is ours if it has a version; the kernel's own prevents loading ours."""
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
    with pytest.raises(FusetuneError, match="f2fs-tuned serves /mnt/a: unmount these first"):
        actions.unload(host_tree.host, f2fs, run=Programs())


def test_names() -> None:
    assert kinds.named(None) == (*FUSETUNED, *kinds.named("f2fs-tuned"))
    with pytest.raises(UsageError, match="fusetune has no module 'fuse'; give one of fusetuned,"):
        kinds.named("fuse")


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(FusetuneError, match="no-such-program is not installed: apt install dkms"):
        kinds.run_program(("no-such-program",))
