# SPDX-License-Identifier: GPL-2.0-or-later
"""A mirrorfs mount with the options that a test gives."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.mirror import Mirror, mounted_at, unmount
from tests.native.mirrorfs.calls import (
    Mount,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


@pytest.fixture
def mountpoint(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "mnt"
    directory.mkdir()
    yield directory
    unmount(directory)


@pytest.fixture
def mount(source: Path, mountpoint: Path) -> Iterator[Mount]:
    """Mount with the given options; everything is removed after the test."""
    started: list[Mirror] = []

    def start(*options: str, binary: Path | None = None) -> Mirror:
        mirror = Mirror(source, mountpoint, *options, binary=binary)
        started.append(mirror)
        return mirror

    yield start
    for mirror in started:
        mirror.__exit__(None, None, None)
    assert mounted_at(mountpoint) is None


@pytest.fixture
def reachable(tmp_path: Path) -> None:
    """Let other users reach the mount, because pytest's directories are private."""
    for directory in (tmp_path, *tmp_path.parents):
        if not directory.stat().st_mode & stat.S_IXOTH:
            directory.chmod(0o755)
