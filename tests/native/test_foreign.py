# SPDX-License-Identifier: GPL-2.0-or-later
"""auto, set and reset on other projects' servers: every value returns to the original.

The servers are Debian's packages, with the distribution's libfuse.
"""

import json
from pathlib import Path

import pytest

from tests import schemas
from tests.native.conftest import sysfs_values, write_sysfs
from tests.native.program import Fusetune

NEW = {
    "read_ahead_kb": 2048,
    "max_background": 64,
    "congestion_threshold": 48,
    "max_ratio": 20,
    "strict_limit": 0,
}
WORDS = [f"{name}={value}" for name, value in NEW.items()]


def test_set_and_reset(fusetune: Fusetune, served: tuple[Path, str]) -> None:
    point, bdi = served
    found = sysfs_values(bdi)
    (listed,) = fusetune.json("list")["mounts"]
    assert (listed["path"], listed["bdi"], listed["knobs"]) == (str(point), bdi, found)
    changes = fusetune.json("set", point, *WORDS)["changes"]
    assert {c["knob"]: c["after"] for c in changes} == {
        name: value for name, value in NEW.items() if found[name] != value
    }
    assert sysfs_values(bdi) == NEW
    (point / "file").write_bytes(b"written while tuned")
    assert (point / "file").read_bytes() == b"written while tuned"
    assert {k["set_by"] for k in fusetune.json("show", point)["knobs"]} <= {"fusetune", "other"}
    fusetune.json("reset", point)
    assert sysfs_values(bdi) == found
    assert fusetune.json("reset", point)["changes"] == []


def test_values_found_need_not_be_stock(fusetune: Fusetune, served: tuple[Path, str]) -> None:
    _, bdi = served
    write_sysfs(bdi, read_ahead_kb=512, max_ratio=3, max_background=33, strict_limit=0)
    found = sysfs_values(bdi)
    for words in (WORDS, ["max_ratio=50"], ["read_ahead_kb=64", "strict_limit=1"]):
        fusetune.json("set", bdi, *words)
    fusetune.json("reset", bdi)
    assert sysfs_values(bdi) == found


@pytest.mark.parametrize(
    "served",
    # One for each libfuse; test_auto.py tests ours.
    ["sshfs", "bindfs", pytest.param("passthrough_ll", marks=pytest.mark.long)],
    indirect=True,
)
def test_auto_and_reset(fusetune: Fusetune, served: tuple[Path, str]) -> None:
    """Whatever auto finds, its files are removed at once, and its values by reset."""
    point, bdi = served
    found = sysfs_values(bdi)
    entries = sorted(point.iterdir())
    done = fusetune("auto", point, "-w", "seq-read", "--budget", "15", "--json", timeout=60)
    assert done.returncode in (0, 4), done.stderr
    document = schemas.validate(json.loads(done.stdout))
    assert document["after"] == sysfs_values(bdi)
    assert document["cost"]["evaluations"] > 0
    assert sorted(point.iterdir()) == entries
    fusetune.json("reset", point)
    assert sysfs_values(bdi) == found
