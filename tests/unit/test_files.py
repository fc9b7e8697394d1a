# SPDX-License-Identifier: GPL-2.0-or-later
"""A file is replaced atomically, and no other user's link redirects the write.

rename(2) replaces a name atomically; O_NOFOLLOW refuses a link at the end of a path (open(2)).
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from fusetune.errors import FusetuneError
from fusetune.files import open_directory, write_whole
from fusetune.host import Host

STRANGER = 4242


@contextmanager
def foreign(link: Path, target: Path) -> Iterator[None]:
    """Make a symbolic link that belongs to neither root nor the user who writes."""
    link.symlink_to(target)
    if os.geteuid() == 0:
        os.lchown(link, STRANGER, STRANGER)
        yield
    else:
        with mock.patch("os.geteuid", return_value=STRANGER):
            yield


def test_it_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("first\n", "größer\n", ""):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0, 0o644)])
def test_nobody_else_may_write_it(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


@pytest.mark.parametrize("mask", [0, 0o002, 0o077])
def test_the_umask_does_not_decide_who_uses_a_directory(tmp_path: Path, mask: int) -> None:
    there = tmp_path / "there"
    there.mkdir(0o700)
    there.chmod(0o700)
    before = os.umask(mask)
    try:
        made = Host().make_dir(there / "state" / "undo")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (there, made.parent, made)]
    assert modes == [0o700, 0o755, 0o755]
    (made / "file").touch()
    for path in (made / "file", made / "file" / "below"):
        with pytest.raises(FusetuneError, match="cannot create"):
            Host().make_dir(path)


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_the_mode_of_an_existing_file_stays(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.touch(mode)
    if os.geteuid() == 0:
        os.chown(file, 0, STRANGER)
    group = file.stat().st_gid
    write_whole(file, "text")
    assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_gid) == (mode, group)


def test_a_strangers_mode_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o666)
    with mock.patch("os.geteuid", return_value=STRANGER):
        write_whole(file, "text")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_link_at_a_name_that_one_can_guess_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's alone")
    directory = tmp_path / "directory"
    directory.mkdir()
    for name in (".report.new", "report.new", ".report", ".fusetune"):
        (directory / name).symlink_to(secret)
    write_whole(directory / "report", "text")
    assert secret.read_text() == "root's alone"
    assert (directory / "report").read_text() == "text"
    assert not (directory / "report").is_symlink()


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    for name in ("link", "fifo", "directory"):
        with pytest.raises(FusetuneError, match="not a regular file"):
            write_whole(tmp_path / name, "text")
    assert sorted(os.listdir(tmp_path)) == ["directory", "fifo", "link"]
    assert (tmp_path / "link").is_symlink()


def test_a_strangers_link_on_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    wrong = pytest.raises(FusetuneError, match="symbolic link on the way belongs to uid")
    with foreign(tmp_path / "way", tmp_path / "elsewhere"), wrong:
        write_whole(tmp_path / "way" / "file", "text")
    assert not os.listdir(tmp_path / "elsewhere")


def test_links_of_ones_own_lead_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "absolute").symlink_to(tmp_path / "a")
    (tmp_path / "relative").symlink_to("absolute/b/..")
    monkeypatch.chdir(tmp_path)
    for number, way in enumerate((tmp_path / "relative" / "b", Path("relative/b/../b"))):
        write_whole(way / f"{number}", "text")
    assert sorted(os.listdir(tmp_path / "a" / "b")) == ["0", "1"]


def test_a_link_of_proc_leads_where_the_kernel_says(tmp_path: Path) -> None:
    """The text of the link is a path that leads elsewhere."""
    gone, decoy = tmp_path / "gone", tmp_path / "gone (deleted)"
    gone.mkdir()
    fd = os.open(gone, os.O_RDONLY | os.O_DIRECTORY)
    gone.rmdir()
    decoy.mkdir()
    try:
        with pytest.raises(FusetuneError, match="No such file or directory"):
            write_whole(Path(f"/proc/self/fd/{fd}/file"), "text")
    finally:
        os.close(fd)
    assert not os.listdir(decoy)


def test_a_ring_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "ring").symlink_to("ring")
    with pytest.raises(FusetuneError, match="Too many levels of symbolic links"):
        write_whole(tmp_path / "ring" / "file", "text")


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(".")
    before = os.listdir("/proc/self/fd")
    os.close(open_directory(tmp_path / "link" / "link"))
    write_whole(tmp_path / "file", "text")
    for way in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(FusetuneError, match="cannot write"):
            write_whole(way / "file", "text")
    assert os.listdir("/proc/self/fd") == before
