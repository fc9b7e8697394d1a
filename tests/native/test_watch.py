# SPDX-License-Identifier: GPL-2.0-or-later
"""The service on real mounts: it sets values as mounts appear.

It runs as started by udev, but without systemd: the tests read its notifications (sd_notify(3)).
The bdi's event comes before the mount is visible, and the reply to INIT overwrites values
(fs/fuse/inode.c, process_init_reply()).
"""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.native.conftest import STOCK, sysfs_values, write_sysfs
from tests.native.mirror import Mirror
from tests.native.program import Fusetune
from tests.native.raw import RawServer
from tests.native.servers import missing, serve
from tests.native.watching import KEPT, LIMIT, PIPE, SECTION, Watching, cleared, has, nothing_left

# New mounts


@pytest.mark.parametrize("server", ["mirrorfs", "sshfs", "bindfs"])
def test_values_are_in_place_after_the_mount(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path, server: str
) -> None:
    if lacking := missing(server):
        pytest.skip(f"missing: {', '.join(lacking)}")
    file = fusetune.configure(SECTION)
    with Watching(fusetune) as watching:
        for count in range(1, 4):
            with serve(server, tmpfs_dir / "source", tmp_path / "mnt") as bdi:
                has(bdi, **KEPT)
                # The service prints nothing about a mount that is already gone.
                lines = watching.saying_lines(count, str(tmp_path / "mnt"))
        assert all(f"read_ahead_kb 128 -> 4096 ({file}:2)" in line for line in lines)
        cleared(fusetune)
        watching.end(signal.SIGTERM)
    nothing_left(fusetune)


def test_a_mount_that_was_there_before(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.configure(SECTION)
    with Watching(fusetune, idle=0.2) as watching:
        watching.end()
        assert len(watching.said()) == 1
    assert sysfs_values(mirror.bdi) == KEPT
    fusetune.json("verify")
    with Watching(fusetune, idle=0.2) as watching:
        watching.end()
        assert watching.said() == []
    fusetune.json("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == STOCK


def test_what_auto_or_save_kept_is_in_place_at_the_next_mount(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    with serve("mirrorfs", tmpfs_dir / "source", tmp_path / "mnt") as bdi:
        fusetune.json("set", bdi, "read_ahead_kb=1M")
        fusetune.json("save", bdi)
    with Watching(fusetune), serve("mirrorfs", tmpfs_dir / "source", tmp_path / "mnt") as bdi:
        has(bdi, read_ahead_kb=1024)
        with serve("mirrorfs", tmpfs_dir / "source", tmp_path / "other") as other:
            assert sysfs_values(other) == STOCK


def test_an_unanswered_init_hinders_no_other_mount(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    fusetune.configure(SECTION)
    with RawServer(tmp_path / "raw") as raw, Watching(fusetune, idle=0.2) as watching:
        has(raw.device, **KEPT)
        with serve("mirrorfs", tmpfs_dir / "source", tmp_path / "mnt") as bdi:
            has(bdi, **KEPT)
        assert watching.process.poll() is None
        watching.saying("its server has not replied to INIT for 30 s", 45)
        # Nor does it poll while it waits, which would take CPU time.
        fields = Path(f"/proc/{watching.process.pid}/stat").read_text().rpartition(")")[2].split()
        assert sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") < 10
        watching.end()
        assert len(watching.said(str(raw.point))) == 2


def test_a_server_with_values_of_its_own(fusetune: Fusetune, tmp_path: Path) -> None:
    """Its reply to INIT overwrites our values, also long after they were set."""
    fusetune.configure(SECTION)
    with Watching(fusetune) as watching:
        with RawServer(tmp_path / "raw") as raw:
            raw.answer(64 << 10, 30)
            has(raw.device, **KEPT)
            watching.saying_lines(1)
        with RawServer(tmp_path / "raw") as raw:
            has(raw.device, **KEPT)  # after half a second
            watching.saying_lines(2)
            raw.answer(64 << 10, 30)
            last = watching.saying_lines(3)[-1]
            assert sysfs_values(raw.device) == KEPT
            assert re.search(r"read_ahead_kb 64 -> 4096 .*max_background 30 -> 64", last)
            assert "max_ratio" not in last
        cleared(fusetune)
        watching.end(signal.SIGTERM)
        assert len(watching.said()) == 3
    nothing_left(fusetune)


def test_a_server_that_asks_for_more_than_we_want(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    fusetune.configure("[[mount]]\nmax_background = 16\nread_ahead_kb = 32\n")
    options = ("max_background=100", "max_readahead=64K")
    with Watching(fusetune), Mirror(tmpfs_dir / "source", tmp_path / "mnt", *options) as mirror:
        has(mirror.bdi, max_background=16, read_ahead_kb=32, congestion_threshold=75)


# Values of the administrator


def test_what_was_set_by_hand_since_is_left_alone_and_said_once(
    fusetune: Fusetune, mirror: Mirror
) -> None:
    fusetune.configure(SECTION)
    told = "max_ratio=7 was set by another program or user and is left alone"
    with Watching(fusetune) as watching:
        has(mirror.bdi, **KEPT)
        write_sysfs(mirror.bdi, max_ratio=7)
        for _ in range(2):
            watching.reload()
        watching.saying(told)
        watching.end(signal.SIGTERM)
        assert len(watching.said(told)) == 1
    with Watching(fusetune, idle=0.2) as watching:
        watching.end()
        assert watching.said() == []
    assert sysfs_values(mirror.bdi) == KEPT | {"max_ratio": 7}
    assert fusetune.json("verify", code=3)["differences"] == 1
    fusetune.json("apply", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == KEPT


@pytest.mark.alone
def test_a_number_that_is_reused_at_once(fusetune: Fusetune, tmp_path: Path) -> None:
    """A mount is replaced by another with its device number while the service is stopped.

    The kernel gives out the lowest free number, so no other test may mount meanwhile.
    """
    fusetune.configure(
        "[[mount]]\nfstype = 'fuse.raw'\nmax_ratio = 20\n"
        "[[mount]]\nfstype = 'fuse.other'\nmax_background = 33\n"
    )
    with Watching(fusetune) as watching:
        with RawServer(tmp_path / "one") as one:
            one.answer()
            has(one.device, max_ratio=20)
            watching.saying("max_ratio")  # once it has read the value back
            write_sysfs(one.device, max_ratio=7)
            watching.reload()
            watching.saying("left alone")
            watching.process.send_signal(signal.SIGSTOP)
        with RawServer(tmp_path / "one", "fuse.other") as other:
            other.answer()
            assert other.device == one.device
            watching.process.send_signal(signal.SIGCONT)
            has(other.device, max_background=33)
            watching.saying_lines(1, "fuse.other")
        cleared(fusetune)
        watching.end(signal.SIGTERM)
    nothing_left(fusetune)


def test_two_file_systems_on_one_mount_point(fusetune: Fusetune, tmp_path: Path) -> None:
    fusetune.configure(
        f"[[mount]]\npath = '{tmp_path}/mnt'\nmax_ratio = 20\n"
        f"[[mount]]\npath = '{tmp_path}/mnt'\nfstype = 'fuse.other'\nmax_background = 33\n"
    )
    with (
        Watching(fusetune),
        RawServer(tmp_path / "mnt") as below,
        RawServer(tmp_path / "mnt", "fuse.other") as above,
    ):
        for raw in (above, below):
            raw.answer()
        has(below.device, max_ratio=20)
        has(above.device, max_ratio=20, max_background=33)


def test_the_directory_of_the_mount_point_is_renamed(fusetune: Fusetune, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    fusetune.configure(
        f"[[mount]]\npath = '{tmp_path}/old/mnt'\nmax_ratio = 20\n"
        f"[[mount]]\npath = '{tmp_path}/new/mnt'\nmax_ratio = 30\n"
    )
    with Watching(fusetune) as watching, RawServer(tmp_path / "old" / "mnt") as raw:
        raw.answer()
        has(raw.device, max_ratio=20)
        (tmp_path / "old").rename(tmp_path / "new")
        raw.point = tmp_path / "new" / "mnt"
        watching.reload()
        has(raw.device, max_ratio=30)


# The host's limits


@pytest.mark.alone
def test_the_hosts_limits_follow_a_mount_that_needs_more(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path
) -> None:
    """Raised when it appears, for its next mount; restored when no mount needs them."""
    pages = [LIMIT] * LIMIT.exists()
    found = [int(file.read_text()) for file in (PIPE, *pages)]
    fusetune.configure(f"[[mount]]\npath = '{mirror.mountpoint}'\nmax_write = '2M'\n")
    with Watching(fusetune, idle=1.0) as watching:
        line = f"fs.pipe-max-size {found[0]} -> {4 << 20}, for its next mount"
        assert watching.saying_lines(1 + len(pages), "for its next mount")[0].endswith(line)
        watching.end()
    raised = [int(file.read_text()) for file in (PIPE, *pages)]
    assert raised == [4 << 20, 512][: len(found)]
    with serve("mirrorfs", mirror.source, tmp_path / "other") as other:
        fusetune.json("set", other, "max_ratio=5")
        fusetune.json("reset", other)
        assert [int(file.read_text()) for file in (PIPE, *pages)] == raised
        changes = fusetune.json("reset", mirror.mountpoint)["changes"]
    assert [change["after"] for change in changes] == found[::-1]
    assert [int(file.read_text()) for file in (PIPE, *pages)] == found


@pytest.mark.alone
def test_a_larger_limit_stays(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.configure(f"[[mount]]\npath = '{mirror.mountpoint}'\npipe_max_size = '4M'\n")
    before = PIPE.read_text()
    try:
        PIPE.write_text(f"{16 << 20}\n")
        with Watching(fusetune, idle=1.0) as watching:
            watching.end()
            assert watching.said("for its next mount") == []
        assert int(PIPE.read_text()) == 16 << 20
    finally:
        PIPE.write_text(before)
