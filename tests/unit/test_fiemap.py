# SPDX-License-Identifier: GPL-2.0-or-later
"""The extents of files are read without following links that their owners plant.

The ioctl is FS_IOC_FIEMAP (Documentation/filesystems/fiemap.rst); O_NOFOLLOW
refuses links (open(2)).
"""

import os
from pathlib import Path

import pytest

from fusetune.report import fiemap

LARGE = 8192


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a large file, and another in a subdirectory."""
    directory = tmp_path / "backing"
    for path in (directory / "a", directory / "in" / "b"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(LARGE))
    (directory / "small").write_bytes(b"x")
    return directory


def seen(directory: Path, *besides: Path, most: int = 10) -> set[str]:
    found = fiemap._large_files(directory, LARGE, most, {str(path) for path in besides})
    return {str(path.relative_to(directory)) for path, _ in found}


def test_large_files_alone_and_no_links(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(bytes(LARGE))
    (directory / "link").symlink_to(tmp_path / "outside")
    (directory / "in" / "up").symlink_to("..")
    os.mkfifo(directory / "fifo")
    before = os.listdir("/proc/self/fd")
    assert seen(directory) == {"a", "in/b"}
    assert len(seen(directory, most=1)) == 1
    assert os.listdir("/proc/self/fd") == before


def test_a_mount_point_is_not_touched(directory: Path) -> None:
    assert seen(directory, directory / "in") == {"a"}


@pytest.mark.parametrize("by", ["fifo", "link", "nothing", "file", "directory"])
def test_what_is_replaced_meanwhile_is_left_out(
    directory: Path, tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner can replace it at any time between stat and open."""
    (tmp_path / "secret").write_bytes(bytes(LARGE))
    real = os.open

    def late(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a":
            os.rename(directory / "a", directory / "kept")
            if by == "fifo":
                os.mkfifo(directory / "a")
            elif by == "link":
                (directory / "a").symlink_to(tmp_path / "secret")
            elif by == "file":
                (directory / "a").write_bytes(bytes(LARGE))
            elif by == "directory":
                (directory / "a").mkdir()
        return real(path, flags, mode, dir_fd=dir_fd)

    (directory / "in" / "b").unlink()
    monkeypatch.setattr(os, "open", late)
    assert seen(directory) <= {"kept"}


def test_directories_without_end(tmp_path: Path) -> None:
    path = tmp_path
    for _ in range(fiemap._DEEPEST + 5):
        path /= "d"
    path.mkdir(parents=True)
    (path / "file").write_bytes(bytes(LARGE))
    assert seen(tmp_path) == set()
