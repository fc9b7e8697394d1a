# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mount a path leads to, from mountinfo only.

The lines are as the kernel writes them: parents by number, with the topmost mount at a path last
(proc_pid_mountinfo(5)).
"""

import os
from pathlib import Path

import pytest

from fusetune.host import Host
from fusetune.mounts.tree import Place, leads_to, mount_of, places
from tests.unit.conftest import Tree

ROOT, HOME, MOUNT, COVER, STACKED, UNDER = (22, 30, 41, 42, 43, 44)


def place(number: int, parent: int, path: str) -> Place:
    return Place(number, parent, f"0:{number}", path)


ABOVE = [place(ROOT, 1, "/"), place(HOME, ROOT, "/home")]
OURS = place(MOUNT, HOME, "/home/u/d/mnt")


@pytest.mark.parametrize(
    ("every", "number"),
    [
        ([*ABOVE, OURS], MOUNT),
        ([OURS, *reversed(ABOVE)], MOUNT),
        (ABOVE, HOME),
        # d was renamed
        ([*ABOVE, place(MOUNT, HOME, "/home/u/e/mnt")], HOME),
        # something was mounted on it, and on a directory above
        ([*ABOVE, OURS, place(STACKED, MOUNT, "/home/u/d/mnt")], STACKED),
        ([*ABOVE, OURS, place(COVER, HOME, "/home/u/d")], COVER),
        ([*ABOVE, OURS, place(COVER, HOME, "/home")], COVER),
        # what lies under a mount does not cover what is in it
        ([*ABOVE, OURS, place(UNDER, ROOT, "/home/u/d")], MOUNT),
        # another's name that begins alike, and a mount within ours
        ([*ABOVE, OURS, place(COVER, HOME, "/home/u/d/mn")], MOUNT),
        ([*ABOVE, OURS, place(STACKED, MOUNT, "/home/u/d/mnt/in")], MOUNT),
        # a root that is its own parent, and a chroot that is no mount point
        ([place(ROOT, ROOT, "/"), place(MOUNT, ROOT, "/home/u/d/mnt")], MOUNT),
        ([place(MOUNT, 5, "/home/u/d/mnt"), place(HOME, 5, "/proc")], MOUNT),
    ],
)
def test_leads_to(every: list[Place], number: int) -> None:
    found = leads_to(every, "/home/u/d/mnt")
    assert found
    assert found.number == number


def test_leads_to_no_mount() -> None:
    assert leads_to([place(HOME, 5, "/proc")], "/home") is None


def test_places_are_read_with_their_escapes(tree: Tree) -> None:
    tree.write(
        "proc/self/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "41 22 0:43 / /a\\040b\\012 rw,relatime shared:7 - fuse.sshfs host: rw,user_id=0\n"
        "42 22 0:44 / /a\rb\x85 rw,relatime - fuse.sshfs host: rw,user_id=1000\n",
    )
    assert places(tree.host) == [
        Place(22, 1, "8:1", "/"),
        Place(41, 22, "0:43", "/a b\n"),
        Place(42, 22, "0:44", "/a\rb\x85"),  # not escaped by the kernel
    ]


def test_the_mount_of_a_descriptor_is_where_its_path_leads(tmp_path: Path) -> None:
    host = Host()
    path = tmp_path.resolve()
    fd = os.open(path, os.O_PATH)
    try:
        found = leads_to(places(host), str(path))
        assert found
        assert mount_of(host, fd) == found.number
    finally:
        os.close(fd)
