# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount's volume is identified wherever it is mounted, and hostile files are not trusted.

The kubelet's vol_data.json is as pkg/volume/csi/csi_mounter.go of Kubernetes writes it.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fusetune.bench.workloads import WORKLOADS
from fusetune.desired.config import load
from fusetune.desired.reconcile import reconcile
from fusetune.desired.resolve import Resolver
from fusetune.desired.volume import Volume, plain_source, volume_of
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.disks import disk_names
from fusetune.mounts.kubelet import KubeletVolume, kubelet_volume
from fusetune.mounts.mount import Mount
from fusetune.report.doctor import diagnose
from fusetune.tuner.space import searched_on
from tests.unit.conftest import Tree, process

POD = "1b3c6b0e-8f4e-4f0b-9d0e-3a1c5b7d9e2f"
VOLUME = f"/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/models"
STAGED = "/var/lib/kubelet/plugins/kubernetes.io/csi/gcs.example/0123abcd"
DATA = {
    "attachmentID": "csi-1",
    "driverName": "gcs.example",
    "nodeName": "node-1",
    "specVolID": "models",
    "volumeHandle": "bucket-7",
    "volumeLifecycleMode": "Persistent",
}
ALIKE = Volume("fuse.gcsfuse", "gcsfuse", "2.5", "6.12", 0, ("ro",), "bucket-7")


def at(path: str, *others: str) -> Mount:
    return Mount(path, "fuse.gcsfuse", "bucket-7", "0:40", also_at=others)


def like(one: Volume, other: Volume) -> list[object]:
    """What the two have in common, the most specific first."""
    return [likeness[5] for likeness in one.likenesses() if likeness in other.likenesses()]


def volume_data(tree: Tree, directory: str, text: str) -> Path:
    file = tree.write(f"{directory[1:]}/vol_data.json", text)
    for one in (file, *file.parents):
        if one == tree.root:
            break
        one.chmod(0o600 if one == file else 0o750)
    return file


def test_the_kubelet_names_driver_volume_and_handle(tree: Tree) -> None:
    volume_data(tree, VOLUME, json.dumps(DATA))
    known = KubeletVolume("gcs.example", "models", "bucket-7")
    assert kubelet_volume(tree.host, at(f"{VOLUME}/mount")) == known
    (tree.root / f"var/log/pods/ml_trainer-0_{POD}").mkdir(parents=True)
    (tree.root / "var/log/pods/web_other-0_0").mkdir()
    assert kubelet_volume(tree.host, at(f"{VOLUME}/mount")) == replace(known, namespace="ml")


def test_a_staged_volume_is_known_and_the_pods_mount_point_tells_more(tree: Tree) -> None:
    staged = {key: DATA[key] for key in ("driverName", "volumeHandle")}
    volume_data(tree, STAGED, json.dumps(staged))
    found = kubelet_volume(tree.host, at(f"{STAGED}/globalmount"))
    assert found == KubeletVolume("gcs.example", None, "bucket-7")
    volume_data(tree, VOLUME, json.dumps(DATA))
    (tree.root / f"var/log/pods/ml_trainer-0_{POD}").mkdir(parents=True)
    both = at(f"{STAGED}/globalmount", f"{VOLUME}/mount")
    assert kubelet_volume(tree.host, both) == KubeletVolume(
        "gcs.example", "models", "bucket-7", "ml"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 5000,
        '{"driverName": 7, "volumeHandle": "x"}',
        '{"driverName": "a", "volumeHandle": ""}',
        json.dumps({**DATA, "volumeHandle": "x" * 5000}),
        json.dumps({**DATA, "more": "x" * (1 << 17)}),
        '{"driverName": "a"}',
    ],
)
def test_damaged_and_huge_data_is_no_data(tree: Tree, text: str) -> None:
    volume_data(tree, VOLUME, text)
    assert kubelet_volume(tree.host, at(f"{VOLUME}/mount")) is None


def _writable(file: Path) -> None:
    file.chmod(0o666)


def _writable_above(file: Path) -> None:
    file.parents[2].chmod(0o777)


def _a_writable_root(file: Path) -> None:
    file.parents[5].chmod(0o777)


def _a_link(file: Path) -> None:
    file.rename(file.with_name("other"))
    file.symlink_to("other")


def _a_link_above(file: Path) -> None:
    file.parent.rename(file.parent.with_name("other"))
    file.parent.symlink_to("other")


def _a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


@pytest.mark.parametrize(
    "make", [_writable, _writable_above, _a_writable_root, _a_link, _a_link_above, _a_fifo]
)
def test_what_others_could_have_written_is_not_believed(
    tree: Tree, make: Callable[[Path], None]
) -> None:
    file = volume_data(tree, VOLUME, json.dumps(DATA))
    assert kubelet_volume(tree.host, at(f"{VOLUME}/mount"))
    make(file)
    assert kubelet_volume(tree.host, at(f"{VOLUME}/mount")) is None


def test_elsewhere_there_is_no_kubelet(tree: Tree) -> None:
    elsewhere = VOLUME.replace("/var/lib/kubelet", "/home/mallory/kubelet")
    volume_data(tree, elsewhere, json.dumps(DATA))
    volume_data(tree, VOLUME, json.dumps(DATA))
    for path in (f"{elsewhere}/mount", f"{VOLUME}/mount/deeper", VOLUME):
        assert kubelet_volume(tree.host, at(path)) is None


def test_a_disk_is_known_by_udevs_links(tree: Tree) -> None:
    tree.write("dev/dm-0", "")
    for directory, name in (("by-uuid", "0A1B"), ("by-label", r"My\x20Disk\xc3\xa4"), ("x", "dm")):
        link = tree.root / "dev/disk" / directory / name
        link.parent.mkdir(parents=True)
        link.symlink_to("../../dm-0")
    (tree.root / "dev/mapper").mkdir()
    (tree.root / "dev/mapper/vg-data").symlink_to("../dm-0")
    found = disk_names(tree.host, "/dev/mapper/vg-data")
    assert (found.uuid, found.label) == ("0A1B", "My Diskä")
    (tree.root / "dev/mqueue").mkdir()
    (tree.root / "dev/mqueue/mallorys").symlink_to("../dm-0")
    for source in ("/dev/../dev/dm-0", "/home/x", "/dev/absent", "dm-0", "/dev/mqueue/mallorys"):
        assert disk_names(tree.host, source).uuid is None
    assert plain_source(tree.host, "/dev/dm-0", ()) == "UUID=0A1B"


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("alice@backup:/srv/", "backup:/srv"),
        ("backup:/srv", "backup:/srv"),
        ("https://alice:secret@dav.example/x/", "https://dav.example/x"),
        ("remote{Ab12c}:bucket/x", "remote:bucket/x"),
        ("JuiceFS:models", "JuiceFS:models"),
        ("/srv/a:/srv/b", "/srv/a:/srv/b"),
        ("/", "/"),
        ("gcsfuse", ""),
        ("fuse", ""),
        ("none", ""),
    ],
)
def test_a_source_is_freed_of_what_is_not_the_volume(tree: Tree, source: str, plain: str) -> None:
    assert plain_source(tree.host, source, {"gcsfuse"}) == plain


@pytest.mark.parametrize("field", ["fstype", "server", "kernel", "owner_uid", "options"])
def test_what_must_be_alike(field: str) -> None:
    changed = {"owner_uid": 1000, "options": ()}.get(field, "other")
    other = replace(ALIKE, **{field: changed})  # type: ignore[arg-type]
    assert like(ALIKE, ALIKE) == ["source"]
    assert like(ALIKE, other) == []


def test_the_handle_says_more_than_the_source_and_that_more_than_a_class() -> None:
    mine = replace(ALIKE, csi_driver="d", volume_handle="h", volume_class="models")
    assert like(mine, mine) == ["handle", "source", "class"]
    assert like(mine, replace(mine, csi_driver="other")) == ["source", "class"]
    assert like(mine, replace(mine, volume_handle="else", source="else")) == ["class"]
    assert like(mine, replace(mine, source="else", volume_class=None)) == ["handle"]
    unknown = replace(ALIKE, source="")
    assert like(unknown, unknown) == []


def described(tree: Tree) -> Volume | None:
    """The volume of the only mount."""
    mount, daemons = tree.only(), Daemons(tree.host)
    sections = [*load(tree.host).matching(tree.host, mount, daemons)]
    return volume_of(tree.host, mount, sections, daemons)


def test_a_mount_is_described(tree: Tree) -> None:
    tree.write("proc/sys/kernel/osrelease", "6.12.9-amd64\n")
    options = "ro,user_id=0,group_id=0,default_permissions,allow_other,max_read=131072"
    tree.mount(
        f"{VOLUME}/mount", source="alice@backup:/srv", options=options, flags="ro,nosuid,relatime"
    )
    tree.live()
    process(tree, 7, "mirrorfs", fds={3: "40"})
    volume_data(tree, VOLUME, json.dumps(DATA))
    tree.write("etc/fusetune.toml", '[[mount]]\ncsi_driver = "gcs.*"\nvolume_class = "models"\n')
    assert described(tree) == Volume(
        *("fuse.mirrorfs", "mirrorfs", None, "6.12", 0, ("max_read=131072", "ro")),
        *("backup:/srv", "gcs.example", "bucket-7", "models"),
    )


def test_a_sandbox_where_every_mount_is_read_only_changes_nothing(tree: Tree) -> None:
    """As systemd's ProtectSystem=strict does to the mounts that are there before a service."""
    tree.write("proc/sys/kernel/osrelease", "6.12.9-amd64\n")
    tree.write("etc/fusetune.toml", '[[mount]]\nmount_option = "ro"\nmax_ratio = 7\n')
    tree.mount("/mnt/one", flags="ro,nosuid,relatime")
    tree.live()
    process(tree, 7, "mirrorfs", fds={3: "40"})
    volume, mount = described(tree), tree.only()
    assert volume
    assert volume.options == ()
    assert mount.read_only
    resolver = Resolver(tree.host, load(tree.host))
    assert resolver.expected(mount) == {}
    assert resolver.expected(replace(mount, options=("ro",))).keys() == {"max_ratio"}


def test_without_its_server_a_mount_is_not_known(tree: Tree, mounted: Mount) -> None:
    assert described(tree) is None


def test_what_a_driver_sets_itself_is_left_to_it(tree: Tree) -> None:
    tree.mount(f"{VOLUME}/mount")
    tree.live(values={"read_ahead_kb": 1024})
    volume_data(tree, VOLUME, json.dumps({**DATA, "driverName": "gcsfuse.csi.storage.gke.io"}))
    tree.write("etc/fusetune.toml", "[[mount]]\nread_ahead_kb = 4096\nmax_ratio = 5\n")
    mount, resolver = tree.only(), Resolver(tree.host, load(tree.host))
    expected = resolver.expected(mount)
    assert expected["max_ratio"].refused is None
    assert "left to the CSI driver" in (expected["read_ahead_kb"].refused or "")
    now = tree.values()
    dimensions, reasons = searched_on(resolver, mount, now, [*WORKLOADS.values()], ())
    assert {one.name for one in dimensions} == {"max_ratio", "strict_limit"}
    assert sum("left to the CSI driver gcsfuse" in why for why in reasons) == 3
    reconcile(resolver, mount)
    assert tree.values() == {**now, "max_ratio": 5}
    (found,) = (one for one in diagnose(tree.host).findings if "read_ahead_kb is left" in one.what)
    assert found.name == "csi-driver"
