# SPDX-License-Identifier: GPL-2.0-or-later
"""Which program serves a mount.

On newer kernels /proc/PID/fdinfo names a server's connection (fs/fuse/dev.c,
fuse_dev_show_fdinfo()).
"""

import os
from pathlib import Path

import pytest

from fusetune.mounts import daemons
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree, process
from tests.unit.kept_values import resolver


def served_by(tree: Tree, program: str, mount: Mount) -> bool:
    ours = resolver(tree, f"[[mount]]\nserver = '{program}'\nmax_ratio = 20\n")
    return bool(ours.expected(mount))


def test_a_server_that_closes_a_file_meanwhile(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(tree, 10, "one", "/mnt/one", fds={4: "40"})
    real = os.listdir

    def late(path: str | Path) -> list[str]:
        return [*["3"] * str(path).endswith("proc/10/fd"), *real(path)]

    monkeypatch.setattr(os, "listdir", late)
    assert served_by(tree, "one", mounted)


def test_the_server_that_the_kernel_names(tree: Tree, mounted: Mount) -> None:
    process(tree, 10, "one", "/mnt/two", fds={3: "7", 4: "40"})
    process(tree, 11, "other", "/mnt/one", fds={3: "41"})
    assert served_by(tree, "one", mounted)
    assert served_by(tree, "/usr/bin/o?e", mounted)
    assert not served_by(tree, "/usr/sbin/one", mounted)
    assert not served_by(tree, "other", mounted)


def test_the_server_of_a_block_device(tree: Tree) -> None:
    tree.mount("/mnt/one", device="8:1", fstype="fuseblk.ntfs")
    tree.live(bdi="8:1-fuseblk", connection=str(8 << 20 | 1))
    process(tree, 10, "ntfs-3g", fds={3: str(8 << 20 | 1)})
    process(tree, 11, "other", fds={3: "1"})
    assert served_by(tree, "ntfs-3g", tree.only())
    assert not served_by(tree, "other", tree.only())


def test_a_subtype_does_not_make_a_block_device(tree: Tree) -> None:
    tree.mount("/mnt/one", fstype="fuse.s3blkfs")
    tree.live()
    assert tree.only().bdi == "0:40"


@pytest.mark.parametrize(
    ("word", "cwd"), [("/mnt/one", "/"), ("one/", "/mnt"), ("./../one", "/mnt/a")]
)
def test_the_server_where_the_kernel_does_not_name_it(
    tree: Tree, mounted: Mount, word: str, cwd: str
) -> None:
    process(tree, 10, "one", "-o", "x", word, fds={3: ""}, cwd=cwd)
    process(tree, 11, "no-server", word, fds={}, cwd=cwd)
    process(tree, 12, "elsewhere", "/mnt/two", fds={3: ""})
    assert served_by(tree, "one", mounted)
    assert not served_by(tree, "no-server", mounted)
    assert not served_by(tree, "elsewhere", mounted)


def test_the_server_whose_argument_is_another_path_of_the_mount(tree: Tree) -> None:
    """In a pod: the volume is mounted at a path of the container's, and at the kubelet's."""
    tree.mount("/volume")
    tree.mount("/var/lib/kubelet/pods/1/mount")
    tree.live()
    process(tree, 10, "one", "/var/lib/kubelet/pods/1/mount", fds={3: ""})
    assert served_by(tree, "one", tree.only())


def test_a_process_that_ends_meanwhile_and_one_replaced(tree: Tree, mounted: Mount) -> None:
    tree.write("proc/9/cmdline", "gone\0")
    process(tree, 10, "half", fds={3: "40"})
    (tree.root / "proc/10/exe").unlink()
    process(tree, 11, "new (deleted)", fds={3: "40"})
    assert served_by(tree, "new", mounted)
    assert not served_by(tree, "half", mounted)


def test_a_file_that_is_only_named_fuse_is_no_device(
    tree: Tree, mounted: Mount, tmp_path: Path
) -> None:
    file = tmp_path / "fuse"
    file.write_text("any")
    process(tree, 10, "spoof", "/mnt/one", fds={3: ""}, device=file)
    process(tree, 11, "liar", fds={3: "40"}, device=file)
    assert not served_by(tree, "spoof", mounted)
    assert not served_by(tree, "liar", mounted)


def test_lines_that_a_process_may_word_itself_tell_no_connection(
    tree: Tree, mounted: Mount
) -> None:
    """The name of a dma-buf, which may have reused the descriptor's number."""
    process(tree, 10, "liar", fds={3: "40"})
    with (tree.root / "proc/10/fdinfo/3").open("a") as file:
        file.write("name:\tx\n")
    assert not served_by(tree, "liar", mounted)


@pytest.mark.parametrize(
    ("owner", "uids", "counts"),
    [
        (0, "0\t0\t0\t0", True),
        (0, "1000\t1000\t1000\t1000", False),
        (0, "1000\t0\t0\t0", False),  # a setuid program that uid 1000 started
        (1000, "1000\t1000\t1000\t1000", True),
        (1000, "0\t0\t0\t0", True),
        (1000, "1001\t1001\t1001\t1001", False),
    ],
)
def test_a_stranger_is_no_mounts_server(tree: Tree, owner: int, uids: str, counts: bool) -> None:
    """If the kernel names no connection, a user cannot claim another user's mount."""
    tree.mount("/mnt/one", options=f"rw,user_id={owner},group_id={owner}")
    tree.live(owner=owner)
    process(tree, 10, "one", "/mnt/one", fds={3: ""}, uids=uids)
    assert served_by(tree, "one", tree.only()) is counts


@pytest.mark.parametrize("separator", ["\r", "\v", "\f", "\x1c", "\x85", "\u2028"])
def test_a_process_cannot_claim_a_uid_by_its_name(tree: Tree, separator: str) -> None:
    """The kernel escapes only the newline and the backslash in it (proc_task_name())."""
    tree.mount("/mnt/one", options="rw,user_id=0,group_id=0")
    tree.live()
    uids = "1000 1000 1000 1000"
    process(tree, 10, f"{separator}Uid:\t0", "/mnt/one", fds={3: ""}, uids=uids)
    assert Daemons(tree.host).of(tree.only()) == set()


def test_an_empty_file_has_no_lines(tree: Tree) -> None:
    """Such as the cgroup of a process on a host without control groups."""
    tree.write("proc/10/cgroup", "")
    assert tree.host.lines("proc/10/cgroup") == []


def test_a_process_that_only_stays_in_a_mount_does_not_serve_it(tree: Tree, mounted: Mount) -> None:
    process(tree, 10, "one", "/mnt/other", fds={3: ""}, cwd="/mnt/one")
    assert Daemons(tree.host).of(mounted) == set()


def test_a_process_that_lets_one_wait_hides_no_other(tree: Tree, mounted: Mount) -> None:
    """A FIFO without a writer simulates a cmdline blocked by the mmap_lock."""
    for pid in (10, 11, 12):
        process(tree, pid, f"server{pid}", "/mnt/one", fds={3: ""})
    file = tree.root / "proc/11/cmdline"
    file.unlink()
    os.mkfifo(file)
    found = Daemons(tree.host).of(mounted)
    assert found == {"/usr/bin/server10", "/usr/bin/server12"}


def test_roots_servers_are_found_whatever_others_have_open(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(tree, 10, "two", fds={3: "40"})
    process(tree, 11, "one", fds={3: "40"})
    os.chown(tree.root / "proc/10", 1000, 1000)
    assert served_by(tree, "two", mounted)
    monkeypatch.setattr(daemons, "_OTHERS_SECONDS", -1.0)
    assert served_by(tree, "one", mounted)
    assert not served_by(tree, "two", mounted)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("fstype = 'fuse.mirrorfs'", "server = 'o*'"),
        ("server = 'one'", "source = '*'"),
        ("server = 'one'", "path = '**'"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_server_counts_more_than_a_type_and_less_than_a_source(
    tree: Tree, mounted: Mount, less: str, more: str, order: int
) -> None:
    process(tree, 10, "one", fds={3: "40"})
    sections = [f"[[mount]]\n{less}\nmax_ratio = 1\n", f"[[mount]]\n{more}\nmax_ratio = 2\n"]
    expected = resolver(tree, "".join(sections[::order])).expected(mounted)
    assert expected["max_ratio"].value == 2


def test_new_servers_are_seen_once_asked_for(tree: Tree, mounted: Mount) -> None:
    ours = resolver(tree, "[[mount]]\nserver = 'one'\nmax_ratio = 20\n")
    assert ours.expected(mounted) == {}
    process(tree, 10, "one", fds={3: "40"})
    ours.forget_daemons()
    assert ours.expected(mounted)["max_ratio"].value == 20
