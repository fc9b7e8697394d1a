# SPDX-License-Identifier: GPL-2.0-or-later
"""A thousand mounts whose servers never reply: list shows all and waits for none.

list only reads procfs, sysfs and fusectl, which the kernel itself serves.
"""

from pathlib import Path

import pytest

from tests.native.conftest import requires, sysfs_files, sysfs_values
from tests.native.program import Fusetune
from tests.native.raw import FSTYPE, RawMounts
from tests.native.servers import mounts_at

pytestmark = requires()

COUNT = 1000


def test_a_thousand_mounts(fusetune: Fusetune, tmp_path: Path) -> None:
    with RawMounts(COUNT, tmp_path) as raw:
        wanted = {}
        for number, point in enumerate(raw.points):
            (bdi,) = mounts_at(point)
            sysfs_files(bdi)["max_ratio"].write_text(str(number % 101))
            wanted[str(point)] = (bdi, sysfs_values(bdi))
        assert len({bdi for bdi, _ in wanted.values()}) == COUNT
        document = fusetune.json("list")
        listed = {entry["path"]: entry for entry in document["mounts"]}
        assert len(document["mounts"]) == len(listed) == COUNT
        for path, (bdi, values) in wanted.items():
            assert listed[path]["bdi"] == bdi
            assert listed[path]["connection"] == bdi.partition(":")[2]
            assert listed[path]["knobs"] == values
            assert listed[path]["fstype"] == FSTYPE
            assert listed[path]["tuned"] == (values["max_ratio"] != 1)
        assert [entry["path"] for entry in document["mounts"]] == list(wanted)
        shown = fusetune("list").stdout.splitlines()
        assert len(shown) == 1 + COUNT
        waiting = [f for f in fusetune.json("doctor")["findings"] if f["name"] == "waiting"]
        assert len(waiting) == COUNT
    assert not any(mounts_at(point) for point in raw.points)
    assert fusetune.json("list")["mounts"] == []


def test_set_and_reset_all_of_many(fusetune: Fusetune, tmp_path: Path) -> None:
    with RawMounts(20, tmp_path) as raw:
        bdis = [mounts_at(point)[0] for point in raw.points]
        before = [sysfs_values(bdi) for bdi in bdis]
        for point in raw.points:
            fusetune.json("set", point, "max_ratio=5", "read_ahead_kb=1M")
        assert [sysfs_values(bdi)["max_ratio"] for bdi in bdis] == [5] * 20
        assert len(fusetune.json("reset", "--all")["changes"]) == 40
        assert [sysfs_values(bdi) for bdi in bdis] == before


def test_the_mounts_go_with_who_made_them(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), RawMounts(3, tmp_path) as raw:
        raise ZeroDivisionError
    assert not any(mounts_at(point) for point in raw.points)
