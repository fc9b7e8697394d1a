# SPDX-License-Identifier: GPL-2.0-or-later
"""Where files lie is looked up without following what their owners put in their way."""

import os
from pathlib import Path

import pytest

from fusetune.report import fiemap

LARGE = 8192


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a large file in it, and one in a folder of its own."""
    folder = tmp_path / "backing"
    for path in (folder / "a", folder / "in" / "b"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(LARGE))
    (folder / "small").write_bytes(b"x")
    return folder


def seen(folder: Path, *besides: Path, most: int = 10) -> set[str]:
    found = fiemap._large_files(folder, LARGE, most, {str(path) for path in besides})
    return {str(path.relative_to(folder)) for path, _ in found}


def test_large_files_alone_and_no_links(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(bytes(LARGE))
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "in" / "up").symlink_to("..")
    os.mkfifo(folder / "fifo")
    before = os.listdir("/proc/self/fd")
    assert seen(folder) == {"a", "in/b"}
    assert len(seen(folder, most=1)) == 1
    assert os.listdir("/proc/self/fd") == before


def test_a_mount_point_is_not_touched(folder: Path) -> None:
    assert seen(folder, folder / "in") == {"a"}


@pytest.mark.parametrize("by", ["fifo", "link", "nothing", "file", "folder"])
def test_what_is_replaced_meanwhile_is_left_out(
    folder: Path, tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at it and its opening, as its owner can do at any time."""
    (tmp_path / "secret").write_bytes(bytes(LARGE))
    real = os.open

    def late(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a":
            os.rename(folder / "a", folder / "kept")
            if by == "fifo":
                os.mkfifo(folder / "a")
            elif by == "link":
                (folder / "a").symlink_to(tmp_path / "secret")
            elif by == "file":
                (folder / "a").write_bytes(bytes(LARGE))
            elif by == "folder":
                (folder / "a").mkdir()
        return real(path, flags, mode, dir_fd=dir_fd)

    (folder / "in" / "b").unlink()
    monkeypatch.setattr(os, "open", late)
    assert seen(folder) <= {"kept"}


def test_folders_without_end(tmp_path: Path) -> None:
    path = tmp_path
    for _ in range(fiemap._DEEPEST + 5):
        path /= "d"
    path.mkdir(parents=True)
    (path / "file").write_bytes(bytes(LARGE))
    assert seen(tmp_path) == set()
