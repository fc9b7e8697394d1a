# SPDX-License-Identifier: GPL-2.0-or-later
"""doctor names what limits FUSE, for the right mount.

The limits are the kernel's: fs.pipe-max-size, max_user_bgreq, fs.fuse.max_pages_limit.
"""

import os
from pathlib import Path

import pytest

from fusetune.desired import history
from fusetune.desired.results import Conditions, Run
from fusetune.errors import UsageError
from fusetune.mounts.mount import Mount
from fusetune.report.doctor import diagnose
from tests.unit.conftest import Tree


def named(tree: Tree) -> dict[str, list[str | None]]:
    """Name of a finding -> paths of its mounts."""
    found: dict[str, list[str | None]] = {}
    for finding in diagnose(tree.host).findings:
        found.setdefault(finding.name, []).append(finding.mount.path if finding.mount else None)
    return found


def test_an_empty_host(tree: Tree) -> None:
    diagnosis = diagnose(tree.host)
    assert all(feature.value is None and feature.absent for feature in diagnosis.features)
    assert not any(finding.mount for finding in diagnosis.findings)


def test_features_have_their_values(tree: Tree, mounted: Mount) -> None:
    tree.system()
    values = {feature.knob.name: feature.value for feature in diagnose(tree.host).features}
    assert values["fs.pipe-max-size"] == 1 << 20
    assert values["max_ratio"] == 1


def test_what_limits_the_host(tree: Tree, mounted: Mount) -> None:
    tree.system()
    found = named(tree)
    assert {"pipe-max-size", "max_pages_limit"} <= set(found)
    assert ("permission" in found) == (os.geteuid() != 0)
    tree.write("proc/sys/fs/pipe-max-size", "2097152\n")
    tree.write("proc/sys/fs/fuse/max_pages_limit", "1024\n")
    assert not {"pipe-max-size", "max_pages_limit"} & set(named(tree))


def test_without_fusectl(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.live(connection=None)
    assert "fusectl" in named(tree)


def test_a_stock_mount_and_a_tuned_one(tree: Tree, mounted: Mount) -> None:
    tree.mount("/mnt/two", device="0:41")
    tree.live(bdi="0:41", connection="41", values={"max_ratio": 20})
    assert named(tree)["stock"] == ["/mnt/one"]


def test_a_mount_that_another_one_covers_is_not_to_be_tuned(tree: Tree, mounted: Mount) -> None:
    tree.mount("/mnt/one", device="0:41", number=51, parent=50)
    tree.live(bdi="0:41", connection="41", values={"max_ratio": 20})
    assert "stock" not in named(tree)


def test_a_dead_mount_is_not_to_be_tuned(tree: Tree, mounted: Mount) -> None:
    """The control file of an aborted connection shows the largest number (fs/fuse/control.c)."""
    tree.live(values={"max_background": 2**32 - 1})
    found = named(tree)
    assert found["dead"] == ["/mnt/one"]
    assert "stock" not in found


def test_a_mount_that_was_measured_in_vain(tree: Tree, mounted: Mount) -> None:
    """Until anything is done to it, or until another kernel runs."""
    units = {"seq-read": "MiB/s"}

    def measured(kernel: str) -> None:
        conditions = Conditions("/usr/bin/mirrorfs", None, kernel, 0, units)
        history.record(tree.host, mounted, "auto", run=Run(conditions, []))

    tree.write("proc/sys/kernel/osrelease", "6.12.94+deb13-amd64\n")
    measured("6.1")
    assert named(tree)["stock"] == ["/mnt/one"]
    measured("6.12")
    assert "stock" not in named(tree)
    history.record(tree.host, mounted, "reset")
    assert named(tree)["stock"] == ["/mnt/one"]
    history.record(tree.host, mounted, "auto --live")
    assert "stock" not in named(tree)


def test_a_mount_left_alone_is_not_spoken_of(tree: Tree) -> None:
    tree.mount("/var/lib/lxcfs", fstype="fuse.lxcfs")
    tree.live(waiting=3)
    assert not any(path for paths in named(tree).values() for path in paths)


@pytest.mark.parametrize(
    "text",
    [
        "[policy]\nexclude = ['fuse.mirrorfs']\n",
        "[[mount]]\npath = '/mnt/one'\nleave_alone = true\n",
    ],
)
def test_a_mount_that_the_configuration_leaves_alone(tree: Tree, mounted: Mount, text: str) -> None:
    """No command would be allowed to do what a finding asks for."""
    assert named(tree)["stock"] == ["/mnt/one"]
    tree.write("etc/fusetune.toml", text)
    assert "stock" not in named(tree)


def test_links_to_a_backing_directory_are_resolved(tree: Tree, tmp_path: Path) -> None:
    """Nothing in the mount is accessed, and a path that only passes it by name is accepted."""
    point = tmp_path / "mnt"
    (point / "inside").mkdir(parents=True)
    (tmp_path / "backing").mkdir()
    tree.mount(str(point))
    tree.live()
    (tmp_path / "link").symlink_to(point / "inside")
    with pytest.raises(UsageError, match="is in the FUSE mount"):
        diagnose(tree.host, backing=tmp_path / "link")
    diagnose(tree.host, backing=point / ".." / "backing")


def test_a_busy_server(tree: Tree, mounted: Mount) -> None:
    tree.live(waiting=3)
    (finding,) = (f for f in diagnose(tree.host).findings if f.name == "waiting")
    assert finding.mount == mounted
    assert finding.what.startswith("3 requests wait for the server of /mnt/one")
    assert "echo 1 > /sys/fs/fuse/connections/40/abort" in finding.remedy


def test_a_busy_server_below_another_mount(tree: Tree) -> None:
    """For two mounts stacked on one path, waiting requests are counted separately."""
    for number in (40, 41):
        tree.mount("/mnt/one", device=f"0:{number}")
    tree.live(waiting=3)
    tree.live(bdi="0:41", connection="41")
    found = [
        f.mount.device for f in diagnose(tree.host).findings if f.name == "waiting" and f.mount
    ]
    assert found == ["0:40"]


def test_no_writeback_cache(tree: Tree, mounted: Mount) -> None:
    assert "writeback-cache" not in named(tree)
    tree.write("sys/kernel/debug/bdi/0:40/stats", "BdiDirtied:     0 kB\n")
    assert named(tree)["writeback-cache"] == ["/mnt/one"]
    tree.write("sys/kernel/debug/bdi/0:40/stats", "BdiDirtied:     4 kB\n")
    assert "writeback-cache" not in named(tree)


def test_a_read_only_mount_needs_no_writeback_cache(tree: Tree) -> None:
    tree.mount("/mnt/one", options="ro")
    tree.mount("/mnt/seen-from-a-sandbox", device="0:41", flags="ro")
    for bdi in ("0:40", "0:41"):
        tree.live(bdi, bdi[2:])
        tree.write(f"sys/kernel/debug/bdi/{bdi}/stats", "BdiDirtied:     0 kB\n")
    assert named(tree)["writeback-cache"] == ["/mnt/seen-from-a-sandbox"]


@pytest.mark.parametrize(("upper", "found"), [(129, True), (128, False), (64, False)])
def test_readahead_below(tree: Tree, mounted: Mount, upper: int, found: bool) -> None:
    tree.mount("/mnt/up", "0:49", source="/mnt/one/x", number=60)
    tree.live("0:49", "49", values={"read_ahead_kb": upper})
    assert named(tree).get("readahead-below") == (["/mnt/up"] if found else None)


def test_a_journal_kept_aside(tree: Tree) -> None:
    kept = tree.write("var/lib/undo/0:40.journal.damaged-1", "x")
    (finding,) = (f for f in diagnose(tree.host).findings if f.name == "damaged-journal")
    assert str(kept) in finding.what


def test_a_knob_that_cannot_be_read_does_not_stop_it(tree: Tree, mounted: Mount) -> None:
    """As max_background for a user who may not enter the connection's directory (0500)."""
    tree.write("sys/class/bdi/0:40/max_ratio", "garbage\n")
    features = {feature.knob.name: feature for feature in diagnose(tree.host).features}
    assert features["max_ratio"].value is None
    assert "garbage" in (features["max_ratio"].absent or "")


def test_a_wrong_configuration_is_told(tree: Tree) -> None:
    file = tree.write("etc/mounts.d/a.toml", "[[mount]]\nmax_ration = 1\n")
    diagnosis = diagnose(tree.host)
    (finding,) = (f for f in diagnosis.findings if f.name == "configuration")
    assert finding.what.startswith(f"{file}:2: unknown key 'max_ration'")
    assert diagnosis.max_dirty_percent is None
    file.unlink()
    assert "configuration" not in named(tree)


def test_what_is_saved_and_cannot_be_used(tree: Tree) -> None:
    assert "saved" not in named(tree)
    tree.write("var/lib/saved/1.json", "garbage")
    tree.write("var/lib/saved/2.json.set-aside-1", "garbage")
    said = [finding.what for finding in diagnose(tree.host).findings if finding.name == "saved"]
    assert len(said) == 2
    assert "1.json is damaged" in said[0]
    assert "2.json.set-aside-1" in said[1]


def test_the_sum_of_dirty_memory(tree: Tree, mounted: Mount) -> None:
    tree.mount("/mnt/two", device="0:41")
    tree.live(values={"max_ratio": 20})
    tree.live(bdi="0:41", connection="41", values={"strict_limit": 0})
    diagnosis = diagnose(tree.host)
    assert (diagnosis.dirty_percent, diagnosis.max_dirty_percent) == (120, 100)
    (finding,) = (f for f in diagnosis.findings if f.name == "dirty-memory")
    assert "120 %" in finding.what
    tree.write("etc/fusetune.toml", "[policy]\nmax_dirty_percent = 120\n")
    assert "dirty-memory" not in named(tree)


def test_a_user_allowed_who_does_not_exist(tree: Tree) -> None:
    tree.write("etc/fusetune.toml", "[policy]\nallow_users = ['root', 'no-such-user', 4242]\n")
    said = [f.what for f in diagnose(tree.host).findings if f.name == "allow-users"]
    assert said == ["allow_users names no-such-user, but there is no such user"]


def test_mounts_of_other_mount_namespaces_are_counted(tree: Tree, mounted: Mount) -> None:
    assert diagnose(tree.host).elsewhere == 0
    for connection in ("77", "78"):
        tree.live(bdi=None, connection=connection)
    assert diagnose(tree.host).elsewhere == 2
