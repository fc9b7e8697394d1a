# SPDX-License-Identifier: GPL-2.0-or-later
"""Which processes and mounts use a mount and thus prevent a remount."""

import os

import pytest

from fusetune.mounts.mount import Mount
from fusetune.remount.in_use import users
from fusetune.syscalls import device_below
from tests.unit.conftest import Tree, process


def test_who_uses_a_mount(tree: Tree) -> None:
    """The host's /proc replaces the mount: a file system in which files can be open."""
    device = device_below("/proc")
    major, minor = (int(part) for part in device.split(":"))
    for pid, cwd, fd in ((20, "/proc", None), (21, "/", "/proc/version"), (22, "/", None)):
        process(tree, pid, "busy", fds={}, cwd=cwd)
        tree.write(f"proc/{pid}/comm", f"busy-{pid}\n")
        tree.write(f"proc/{pid}/maps", f"1-2 r--p 0 {major:02x}:{minor:02x} 9 /x\n" * (pid == 22))
        os.symlink("/", tree.root / f"proc/{pid}/root")
        if fd:
            os.symlink(fd, tree.root / f"proc/{pid}/fd/3")
    process(tree, 23, "idle", fds={})
    tree.write("proc/23/maps", "1-2 r--p 0 08:01 9 /x\n")
    mount = Mount("/mnt/one", "fuse.ours", "a", device)
    assert users(tree.host, mount) == [f"busy-{pid} (pid {pid})" for pid in (20, 21, 22)]


#: The root is shared, and the mount lies on it. This host does not have the device: the kernel uses
#: the lowest free number, which may be that of the directory in which these processes run.
OURS = (
    "22 1 8:1 / / rw shared:1 - ext4 a rw\n50 22 0:999999 / /mnt/one rw shared:7 - fuse.ours a rw\n"
)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (
            "62 61 0:999999 / /in/one rw - fuse.ours a rw\n",
            ["the mount namespace of busy (pid 20), at"],
        ),
        ("62 60 0:999999 / /in/one rw master:7 - fuse.ours a rw\n", []),
        ("63 60 8:2 / /in rw shared:9 master:3 - ext4 b rw\n", []),
    ],
)
def test_a_copy_elsewhere_counts_unless_it_goes_with_the_mount(
    tree: Tree, lines: str, found: list[str]
) -> None:
    """As in systemd's sandboxes: unmounts are propagated to their root."""
    process(tree, 20, "busy", fds={})
    tree.write("proc/20/comm", "busy\n")
    tree.write("proc/self/mountinfo", OURS)
    there = "60 1 8:1 / / rw master:1 - ext4 a rw\n61 60 8:3 / /in rw - ext4 c rw\n"
    tree.write("proc/20/mountinfo", there + lines)
    for number, pid in enumerate(("self", "20")):
        (tree.root / f"proc/{pid}/ns").mkdir()
        os.symlink(f"mnt:[{number}]", tree.root / f"proc/{pid}/ns/mnt")
    seen = users(tree.host, Mount("/mnt/one", "fuse.ours", "a", "0:999999"))
    assert [words.partition(" /")[0] for words in seen] == found


def test_mounts_upon_it_and_binds_count(tree: Tree) -> None:
    upon = "51 50 8:2 / /mnt/one/sub rw - ext4 b rw\n52 22 0:999999 /d /srv rw - fuse.ours a rw\n"
    tree.write("proc/self/mountinfo", OURS + upon)
    assert users(tree.host, Mount("/mnt/one", "fuse.ours", "a", "0:999999")) == [
        "the mount on top of it at /mnt/one/sub",
        "its bind mount at /srv",
    ]
