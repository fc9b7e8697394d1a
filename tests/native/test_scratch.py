# SPDX-License-Identifier: GPL-2.0-or-later
"""The scratch directory on a real mount: its mode, links in its place, and a covered mount.

Only its owner can enter a directory of mode 0700 (inode(7)). The owner of the mount's files can
replace it with a link or another directory, or mount something over the path. None of that may lead
root elsewhere. tests/unit/test_scratch.py tests the single steps.
"""

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusetune.bench.note import scratch_note
from fusetune.bench.scratch import Scratch, remove_left_behind, scratch
from fusetune.bench.worker import Interruption
from fusetune.errors import FusetuneError
from tests.native.mirror import PATIENCE, Mirror
from tests.native.program import Fusetune
from tests.native.requirements import requires
from tests.tmpfs import tmpfs

pytestmark = requires("nsenter", "setpriv")


@contextmanager
def held(fusetune: Fusetune, mirror: Mirror) -> Iterator[tuple[Scratch, Path]]:
    """Yield a scratch directory, and its path below the source."""
    host, mount = fusetune.host, fusetune.find(mirror.mountpoint)
    host.make_dir(host.run_dir)
    with (
        Interruption() as interruption,
        scratch(host, mount, "/bin/sh", 10.0, interruption) as made,
    ):
        (directory,) = mirror.source.glob(".fusetune-*")
        yield made, directory


def shell(made: Scratch, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        made.command(["sh", "-c", line]),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_nobody_else_may_enter_it(fusetune: Fusetune, mirror: Mirror) -> None:
    before = os.umask(0)
    try:
        with held(fusetune, mirror) as (made, directory):
            found = directory.lstat()
            assert stat.S_ISDIR(found.st_mode)
            assert stat.S_IMODE(found.st_mode) == 0o700
            assert len(directory.name) == len(".fusetune-") + 16
            assert shell(made, "echo 1 >write-data").returncode == 0
            assert (directory / "write-data").read_text() == "1\n"
    finally:
        os.umask(before)
    assert list(mirror.source.iterdir()) == []


def test_each_has_a_name_of_its_own(fusetune: Fusetune, mirror: Mirror) -> None:
    names = set()
    for _ in range(2):
        with held(fusetune, mirror) as (_, directory):
            names.add(directory.name)
    assert len(names) == 2


def test_a_link_in_its_place_leads_nowhere(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path
) -> None:
    """The run stays in the directory that it created; the link's target is not touched."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "write-data").write_text("kept")
    with held(fusetune, mirror) as (made, directory):
        # Through the mount, so that the kernel's cache knows the new name.
        name = mirror.mountpoint / directory.name
        name.rename(name.with_name("moved"))
        name.symlink_to(outside)
        assert shell(made, "echo 1 >write-data").returncode == 0
        assert (mirror.source / "moved" / "write-data").read_text() == "1\n"
        with pytest.raises(FusetuneError, match="the scratch directory was replaced"):
            made.check({"write-data": range(10)}, 10.0)
    assert (outside / "write-data").read_text() == "kept"
    assert os.listdir(outside) == ["write-data"]
    assert os.listdir(mirror.source / "moved") == []


def test_a_link_among_its_files_is_told(fusetune: Fusetune, mirror: Mirror, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")

    def meet_a_link() -> None:
        with held(fusetune, mirror) as (made, directory):
            (directory / "write-data").symlink_to(victim)
            with pytest.raises(FusetuneError, match="write-data is now a symbolic link"):
                made.check({"write-data": range(10)}, 10.0)

    with pytest.raises(FusetuneError, match="files that fusetune did not create: write-data"):
        meet_a_link()
    assert victim.read_text() == "kept"
    (left,) = mirror.source.rglob("write-data")
    assert left.is_symlink()


def test_what_the_server_refuses_to_remove_is_told(fusetune: Fusetune, user_mirror: Mirror) -> None:
    """Its files belong to somebody else meanwhile, as with a policy without deletion."""
    kept: list[Path] = []

    def lose_it() -> None:
        with held(fusetune, user_mirror) as (made, directory):
            assert shell(made, "echo 1 >write-data").returncode == 0
            os.chown(directory, 0, 0)
            directory.chmod(0o555)
            kept.append(directory / "write-data")

    with pytest.raises(FusetuneError, match=r"/\.fusetune-\w+ was not removed: Permission denied"):
        lose_it()
    assert kept[0].read_text() == "1\n"


def test_what_was_left_is_not_removed_through_a_link(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path
) -> None:
    """A killed run's note names a directory that has been replaced by a link."""
    host, mount = fusetune.host, fusetune.find(mirror.mountpoint)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "write-data").write_text("kept")
    name = ".fusetune-0123456789abcdef"
    (mirror.source / name).symlink_to(outside)
    note = scratch_note(host, mount)
    host.make_dir(note.parent)
    note.write_text(f'[{mount.instance}, "{name}"]')
    remove_left_behind(host, mount)
    assert (outside / "write-data").read_text() == "kept"
    assert (mirror.source / name).is_symlink()
    assert not note.exists()


def _cover(mirror: Mirror) -> Path:
    return mirror.mountpoint


def _cover_above(mirror: Mirror) -> Path:
    return mirror.mountpoint.parent


@pytest.mark.parametrize("where", [_cover, _cover_above])
def test_a_covered_mount_is_not_measured(
    fusetune: Fusetune, tmp_path: Path, where: Callable[[Mirror], Path]
) -> None:
    """A run neither starts on it nor continues once covered; nothing is created in the cover."""
    (tmp_path / "source").mkdir()
    with Mirror(tmp_path / "source", tmp_path / "above" / "mnt") as mirror:
        host, mount = fusetune.host, fusetune.find(mirror.mountpoint)
        host.make_dir(host.run_dir)
        with tmpfs(where(mirror), "size=1M") as covering, Interruption() as interruption:
            (covering / "mnt").mkdir()
            beginning = scratch(host, mount, "/bin/sh", 10.0, interruption)
            with pytest.raises(FusetuneError, match="leads to another file system"):
                beginning.__enter__()
            assert list(covering.rglob("*")) == [covering / "mnt"]
        with held(fusetune, mirror) as (made, _), tmpfs(where(mirror), "size=1M") as covering:
            with pytest.raises(FusetuneError, match="no longer leads to this mount"):
                made.check_path()
            assert shell(made, "echo 1 >write-data").returncode == 0
            assert os.listdir(covering) == []
        assert os.listdir(mirror.source) == []
