# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount is found by each of its names, without accessing any mount point."""

import os
from pathlib import Path

import pytest

from fusetune.desired.exported import chosen
from fusetune.desired.history import history_of
from fusetune.desired.persist import forget_kept, save_now
from fusetune.desired.profiles import profile_path
from fusetune.desired.results import saved_for
from fusetune.desired.sections import Config
from fusetune.errors import FusetuneError
from fusetune.mounts.discover import discover, find
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree


def test_bind_mounts_are_one_mount(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.mount("/mnt/two", root="/deep")
    tree.mount("/mnt/three")
    tree.mount("/mnt/one")
    mount = tree.only()
    assert (mount.path, mount.also_at) == ("/mnt/one", ("/mnt/two", "/mnt/three"))


def test_any_name_of_a_bind_mount_finds_it(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.mount("/mnt/two")
    found = find(tree.host, "/mnt/two")
    assert (found.path, found.also_at) == ("/mnt/two", ("/mnt/one",))


def test_what_is_saved_by_any_name_of_a_bind_mount_is_for_the_mount(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.mount("/mnt/two")
    tree.live(values={"max_ratio": 20})
    tree.write("proc/sys/kernel/osrelease", "6.12.1\n")
    two = find(tree.host, "/mnt/two")
    save_now(tree.host, two, admin=False, dry_run=False)
    for mount in (tree.only(), two):
        saved = saved_for(tree.host, mount)
        assert saved
        assert (saved.path, saved.values) == ("/mnt/one", {"max_ratio": 20})
        entries, path = history_of(tree.host, mount).entries, profile_path(tree.host, mount)
        assert [entry.command for entry in entries] == ["save"]
        assert path == profile_path(tree.host, two)
    for name in ("/mnt/one", "/mnt/two"):
        assert chosen(tree.host, Config(), [name]).results == [saved]
    forget_kept(tree.host, "/mnt/two", admin=False, dry_run=False)
    assert saved_for(tree.host, tree.only()) is None


def test_of_stacked_mounts_the_topmost_is_meant(tree: Tree) -> None:
    tree.mount("/mnt/one", device="0:40")
    tree.mount("/mnt/one", device="0:41")
    assert [mount.device for mount in discover(tree.host)] == ["0:40", "0:41"]
    assert find(tree.host, "/mnt/one").device == "0:41"
    assert find(tree.host, "0:40").device == "0:40"


def test_covered_by_another_type(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.live()
    tree.mount("/mnt/one", device="0:41", fstype="tmpfs")
    with pytest.raises(FusetuneError, match=r"covered by another mount \(tmpfs\)"):
        find(tree.host, "/mnt/one")
    assert find(tree.host, "0:40").device == "0:40"


def test_covered_and_covered_again(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.mount("/mnt/one", device="0:41", fstype="tmpfs")
    tree.mount("/mnt/one", device="0:42")
    assert find(tree.host, "/mnt/one").device == "0:42"


def test_a_working_directory_that_was_removed(
    tree: Tree, mounted: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find(tree.host, "/mnt/one") == mounted
    with pytest.raises(FusetuneError, match="the working directory was removed"):
        find(tree.host, "one")


def test_unknown_bdi(tree: Tree, mounted: Mount) -> None:
    with pytest.raises(FusetuneError, match="no FUSE mount has the bdi 0:99; 'fusetune list'"):
        find(tree.host, "0:99")


def test_inside_a_mount(tree: Tree) -> None:
    tree.mount("/mnt/a")
    tree.mount("/mnt/a/deeper", device="0:41")
    with pytest.raises(FusetuneError, match=r"is in a FUSE mount .* use /mnt/a/deeper$"):
        find(tree.host, "/mnt/a/deeper/file")
    with pytest.raises(FusetuneError, match=r"use /mnt/a$"):
        find(tree.host, "/mnt/a/deepe")


def test_a_mount_below_a_mount(tree: Tree) -> None:
    tree.mount("/mnt/a")
    tree.mount("/mnt/a/deeper", device="0:41", number=51, parent=50)
    assert find(tree.host, "/mnt/a/deeper/").device == "0:41"


def test_an_older_mount_that_was_moved_onto_another_one(tree: Tree) -> None:
    """Since Linux 6.8, mountinfo has mounts in the order of their creation."""
    tree.mount("/mnt/a", device="0:40", number=50, parent=51)  # was moved: it covers the next
    tree.mount("/mnt/a", device="0:41", number=51, parent=22)
    assert find(tree.host, "/mnt/a").device == "0:40"


def test_not_a_mount(tree: Tree, tmp_path: Path) -> None:
    with pytest.raises(FusetuneError, match="is not a FUSE mount point; 'fusetune list'"):
        find(tree.host, str(tmp_path))
    with pytest.raises(FusetuneError, match="does not exist; 'fusetune list'"):
        find(tree.host, str(tmp_path / "absent"))


def test_errors_are_one_line_for_any_name(tree: Tree, tmp_path: Path) -> None:
    with pytest.raises(FusetuneError) as raised:
        find(tree.host, str(tmp_path / "new\nline") + "\udcff\x1b[31m")
    text = str(raised.value)
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text
    text.encode()


def test_symbolic_links_lead_to_a_mount(tree: Tree, tmp_path: Path) -> None:
    point = tmp_path / "real" / "mnt"
    point.mkdir(parents=True)
    (tmp_path / "absolute").symlink_to(point)
    (tmp_path / "relative").symlink_to("real/mnt")
    (tmp_path / "parent").symlink_to("real")
    (tmp_path / "real" / "up").symlink_to("../parent/./mnt")
    tree.mount(str(point))
    for name in ("absolute", "relative", "parent/mnt", "real/up", "parent/up", "real/mnt/."):
        assert find(tree.host, str(tmp_path / name)).path == str(point), name


def test_dot_dot_after_a_symbolic_link_is_the_links_target(tree: Tree, tmp_path: Path) -> None:
    """As in open(2) (path_resolution(7)): not the directory of the link."""
    (tmp_path / "elsewhere" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("elsewhere/sub")
    tree.mount(str(tmp_path / "elsewhere"))
    assert find(tree.host, f"{tmp_path}/link/..").path == str(tmp_path / "elsewhere")


def test_a_loop_of_links_is_no_mount(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FusetuneError, match="is not a FUSE mount point"):
        find(tree.host, str(tmp_path / "loop"))


def test_a_relative_name(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnt").mkdir()
    tree.mount(str(tmp_path / "mnt"))
    monkeypatch.chdir(tmp_path / "mnt")
    assert find(tree.host, ".").path == str(tmp_path / "mnt")
    assert find(tree.host, "../mnt").path == str(tmp_path / "mnt")


def test_nothing_at_or_beyond_a_mount_point_is_looked_at(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the calls are recorded; test_refusals of the native tests traces the real ones."""
    point = tmp_path / "mnt"
    (point / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("mnt/sub/file")
    tree.mount(str(point))
    touched: list[str] = []
    for name in ("readlink", "lstat", "stat"):
        real = getattr(os, name)

        def recorded(path: object, *rest: object, _real: object = real, **more: object) -> object:
            touched.append(os.fsdecode(os.fspath(path)) if not isinstance(path, int) else "")  # type: ignore[call-overload]
            return _real(path, *rest, **more)  # type: ignore[operator]

        monkeypatch.setattr(os, name, recorded)
    assert find(tree.host, str(point)).path == str(point)
    for name in ("mnt/sub/file", "link", "mnt/sub/../sub"):
        with pytest.raises(FusetuneError, match="is in a FUSE mount"):
            find(tree.host, str(tmp_path / name))
    assert not [path for path in touched if path.startswith(str(point))]
    assert [path for path in touched if path.startswith(str(tmp_path))]
