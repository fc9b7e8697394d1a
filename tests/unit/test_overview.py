# SPDX-License-Identifier: GPL-2.0-or-later
"""fusetune without a command: counts of mounts by state, and the next command."""

import pytest

from fusetune.report.inventory import take_inventory
from fusetune.report.overview import overview
from tests.unit.conftest import Tree


@pytest.fixture
def host_tree(tree: Tree) -> Tree:
    """A host without mounts."""
    tree.write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n")
    tree.write("proc/sys/kernel/osrelease", "6.12.94+deb13-amd64\n")
    tree.system()
    return tree


def _said(tree: Tree) -> list[str]:
    return overview(take_inventory(tree.host))


def test_a_host_without_mounts(host_tree: Tree) -> None:
    assert _said(host_tree) == []


def test_mounts_of_each_state(host_tree: Tree) -> None:
    host_tree.mount("/mnt/two words")
    host_tree.live()
    first, kept, found, following = _said(host_tree)
    assert first == "1 FUSE mount: 0 tuned, 1 with the kernel's defaults, 0 left alone"
    assert kept == "all values are as kept"
    assert following == "next: fusetune auto '/mnt/two words'    (all commands: fusetune --help)"
    host_tree.mount("/mnt/tuned", device="0:41")
    host_tree.live("0:41", "41", values={"read_ahead_kb": 512, "max_ratio": 20})
    host_tree.mount("/var/lib/lxcfs", device="0:42", fstype="fuse.lxcfs")
    host_tree.live("0:42", "42", values={"read_ahead_kb": 512})
    host_tree.write("etc/fusetune.toml", '[[mount]]\npath = "/mnt/*"\nread_ahead_kb = 256\n')
    first, kept, found, _ = _said(host_tree)
    assert first == "3 FUSE mounts: 1 tuned, 1 with the kernel's defaults, 1 left alone"
    assert kept == "not as kept: 2 values; 'fusetune verify' lists them"
    findings = len(take_inventory(host_tree.host).diagnosis.findings)
    assert findings > 1
    assert found.startswith(f"what limits FUSE here: {findings} findings; 'fusetune doctor' ")


def test_where_all_are_tuned(host_tree: Tree) -> None:
    host_tree.mount("/mnt/tuned")
    host_tree.live(values={"read_ahead_kb": 512})
    assert _said(host_tree)[-1].startswith("next: fusetune report ")


def test_a_wrong_configuration_is_a_finding(host_tree: Tree) -> None:
    host_tree.mount("/mnt/one")
    host_tree.live()
    before = len(take_inventory(host_tree.host).diagnosis.findings)
    host_tree.write("etc/fusetune.toml", "[watch]\nidle_seconds = -1\n")
    after = take_inventory(host_tree.host)
    said = _said(host_tree)[2]
    assert f": {len(after.diagnosis.findings) + len(after.problems)} finding" in said
    assert len(after.diagnosis.findings) + len(after.problems) > before
