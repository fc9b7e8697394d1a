# SPDX-License-Identifier: GPL-2.0-or-later
"""Mounts are found from mountinfo and sysfs only, whatever the paths look like.

The lines are those of proc_pid_mountinfo(5), escaped as fs/proc_namespace.c does it.
"""

import os
import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.errors import FusetuneError
from fusetune.mounts.control import still_mounted
from fusetune.mounts.discover import discover, find
from fusetune.mounts.mount import Mount
from fusetune.text import printable, shell_word, unescape
from tests.unit.conftest import Tree, mangle

PATHS = [
    b"/mnt/with space",
    b"/mnt/tab\there",
    b"/mnt/new\nline",
    b"/mnt/carriage\rreturn",
    b"/mnt/hash#mark",
    b"/mnt/back\\slash",
    b"/mnt/looks\\040escaped",
    b"/mnt/not utf-8 \xff\xfe",
    "/mnt/größe 日本".encode(),
    b"/mnt/dash - dash",
    b"/mnt/vertical\x0btab\x0cfeed\x1cseparator",
    "/mnt/next\u0085line\u2028separator".encode(),
]


@given(st.binary())
def test_unescape_undoes_what_the_kernel_escapes(raw: bytes) -> None:
    assert os.fsencode(unescape(mangle(raw))) == raw
    assert os.fsencode(unescape(mangle(raw, b" \t\n\\#"))) == raw


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_any_bytes_is_found(tree: Tree, path: bytes) -> None:
    tree.mount(path, source=b"of " + path)
    mount = tree.only()
    assert os.fsencode(mount.path) == path
    assert os.fsencode(mount.source) == b"of " + path


@given(st.text(st.characters(blacklist_categories=()), max_size=40))
def test_printable_is_one_line_without_control_characters(path: str) -> None:
    shown = printable(path)
    assert shown == " ".join(shown.splitlines() or [""])
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Cf", "Zl", "Zp") for char in shown)
    shown.encode("utf-8")


def test_printable_leaves_ordinary_names_alone() -> None:
    assert printable("/mnt/größe 日本 (1)") == "/mnt/größe 日本 (1)"
    assert printable(os.fsdecode(b"/a\xff\n")) == r"/a\xff\n".replace("\\xff", "\\udcff")


def test_nothing_but_fuse_is_listed(tree: Tree) -> None:
    tree.mount("/sys/fs/fuse/connections", fstype="fusectl")
    tree.mount("/mnt/nfs", fstype="nfs")
    tree.mount("/mnt/other", fstype="notfuse")
    tree.mount("/mnt/fused", fstype="fused")
    assert discover(tree.host) == []


@pytest.mark.parametrize(
    "fstype",
    [
        *("fuse", "fuse.sshfs", "fuseblk", "fuseblk.ntfs-3g", "virtiofs"),
        *("fuse.new\nline", "fuse.\udcff", "fuse.a.b c"),
    ],
)
def test_every_fuse_type_is_listed(tree: Tree, fstype: str) -> None:
    tree.mount("/mnt/one", fstype=fstype)
    assert tree.only().fstype == fstype


def test_options_of_mount_and_super_block(tree: Tree) -> None:
    tree.mount("/mnt/a", flags="ro,nosuid", options="rw,user_id=1000,group_id=100,allow_other")
    tree.mount("/mnt/b", device="0:41", options="ro,user_id=7,group_id=8")
    tree.mount("/mnt/c", device="0:42", options="rw,user_id=x,group_id=")
    a, b, c = discover(tree.host)
    assert (a.owner_uid, a.owner_gid, a.read_only, a.allows_other) == (1000, 100, True, True)
    assert (b.owner_uid, b.owner_gid, b.read_only, b.allows_other) == (7, 8, True, False)
    assert (c.owner_uid, c.owner_gid, c.read_only, c.allows_other) == (0, 0, False, False)


def test_virtiofs_has_no_owner_and_lets_everyone_in(tree: Tree) -> None:
    tree.mount("/mnt/v", fstype="virtiofs", source="tag", options="rw")
    tree.live()
    mount = tree.only()
    assert (mount.owner_uid, mount.allows_other, mount.bdi) == (0, True, "0:40")


def test_an_ordinary_mount_has_bdi_connection_and_instance(tree: Tree, mounted: Mount) -> None:
    assert (mounted.bdi, mounted.connection) == ("0:40", "40")
    assert mounted.instance == os.stat(tree.root / "sys/class/bdi/0:40").st_ino
    assert mounted.control == "sys/fs/fuse/connections"


def test_fuseblk_has_its_own_bdi_name_and_a_number_with_its_major(tree: Tree) -> None:
    number = str(8 << 20 | 1)
    tree.mount("/mnt/ntfs", device="8:1", fstype="fuseblk", source="/dev/sda1")
    tree.live(bdi="8:1-fuseblk", connection=number)
    mount = tree.only()
    assert (mount.bdi, mount.connection) == ("8:1-fuseblk", number)
    assert number == "8388609"
    assert find(tree.host, "8:1-fuseblk").path == "/mnt/ntfs"
    assert find(tree.host, "8:1").path == "/mnt/ntfs"


def test_fuseblk_with_a_subtype_has_the_same_bdi_name(tree: Tree) -> None:
    tree.mount("/mnt/ntfs", device="8:1", fstype="fuseblk.ntfs-3g")
    tree.live(bdi="8:1-fuseblk", connection=None)
    assert tree.only().bdi == "8:1-fuseblk"


def test_a_minor_number_beyond_8_bits(tree: Tree) -> None:
    tree.mount("/mnt/many", device="0:1048575")
    tree.live(bdi="0:1048575", connection="1048575")
    assert tree.only().connection == "1048575"


def test_the_tuned_module_has_its_own_types_and_control_directory(tree: Tree) -> None:
    tree.mount("/mnt/t", fstype="fusetuned.mirrorfs")
    tree.mount("/mnt/b", device="8:2", fstype="fusetunedblk")
    tree.live(control="sys/fs/fusetuned/connections")
    tree.live(bdi="8:2-fusetunedblk", connection=None)
    # The stock module may have a connection of the same number.
    tree.live(bdi=None, connection="40", values={"max_background": 99})
    tuned, block = discover(tree.host)
    assert (tuned.bdi, tuned.connection) == ("0:40", "40")
    assert tuned.control == "sys/fs/fusetuned/connections"
    assert (block.bdi, block.connection) == ("8:2-fusetunedblk", None)


def test_without_bdi_and_connection(tree: Tree) -> None:
    tree.mount("/mnt/gone")
    mount = tree.only()
    assert (mount.bdi, mount.connection, mount.instance) == (None, None, None)
    assert still_mounted(tree.host, mount)


def test_a_mount_that_came_back_is_another_one(tree: Tree, mounted: Mount) -> None:
    assert still_mounted(tree.host, mounted)
    directory = tree.root / "sys/class/bdi/0:40"
    directory.rename(directory.with_name("was"))
    assert not still_mounted(tree.host, mounted)
    tree.live()
    assert not still_mounted(tree.host, mounted)


def test_lines_that_are_no_mountinfo_are_skipped(tree: Tree) -> None:
    for line in (b"", b"garbage", b"1 2 0:9 / /x rw", b"1 2 0:9 / /x rw - fuse", b" - fuse a b"):
        tree.line(line)
    tree.mount("/mnt/one")
    assert tree.only().path == "/mnt/one"


@given(st.binary(max_size=200))
def test_no_mountinfo_breaks_it(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    tree = Tree(tmp_path_factory.mktemp("tree"))
    tree.line(text)
    tree.line(b"1 2 0:40 " + text + b" /x rw - fuse source rw")
    tree.line(b"1 2 0:41 / /x rw " + text + b" - fuse source rw")
    tree.line(b"1 2 0:42 / /x rw - fuse" + text)
    for mount in discover(tree.host):
        assert mount.fstype


def test_no_mountinfo_at_all(tree: Tree) -> None:
    (tree.root / "proc/self/mountinfo").unlink()
    with pytest.raises(FusetuneError, match="cannot read /proc/self/mountinfo: No such file"):
        discover(tree.host)


def test_the_order_is_that_of_mounting(tree: Tree) -> None:
    for number in range(300, 200, -1):
        tree.mount(f"/mnt/{number}", device=f"0:{number}")
    assert [m.device for m in discover(tree.host)] == [f"0:{n}" for n in range(300, 200, -1)]


@pytest.mark.parametrize("path", ["/mnt/x", "/mnt/a b", "/a'b", "/a\nb\udcff'c\\", "/größe"])
def test_a_path_as_a_shell_word(path: str) -> None:
    """What is printed for copying means the same path to a shell."""
    done = subprocess.run(
        ["bash", "-c", f"printf %s {shell_word(path)}"], capture_output=True, check=True
    )
    assert os.fsdecode(done.stdout) == path


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"50",
        b"50 22 0:40 / /mnt rw",
        b"50 22 0:40 / /mnt rw -",
        b"50 22 0:40 / /mnt rw - fuse.x",
        b"50 22 0:40 / - fuse.x source rw",
        b"\xff\xfe",
    ],
)
def test_a_line_of_another_form_is_passed_over(tree: Tree, line: bytes) -> None:
    tree.line(line)
    tree.mount("/mnt/one")
    assert [mount.path for mount in discover(tree.host)] == ["/mnt/one"]


def test_a_line_without_optional_fields(tree: Tree) -> None:
    """proc_pid_mountinfo(5): there may be none, or several, before the separator."""
    tree.line(b"50 22 0:40 / /mnt/none rw - fuse.x source rw,user_id=7,group_id=8")
    tree.line(b"51 22 0:41 / /mnt/two rw shared:1 master:2 - fuse.x source rw,user_id=9,group_id=0")
    found = [(mount.path, mount.owner_uid, mount.source) for mount in discover(tree.host)]
    assert found == [("/mnt/none", 7, "source"), ("/mnt/two", 9, "source")]
