# SPDX-License-Identifier: GPL-2.0-or-later
"""A recipe names the workloads that an option slows down; rclone's were measured."""

import pytest

from fusetune.recipes.load import SHIPPED, read_recipe
from fusetune.recipes.plan import Circumstances, plan


@pytest.mark.parametrize(
    ("workloads", "slows"),
    [
        ((), {"write-back-cache": ("metadata",)}),
        (("small-write", "metadata"), {"write-back-cache": ("metadata",)}),
        (("metadata",), {}),
    ],
)
def test_what_an_option_slows_down(
    workloads: tuple[str, ...], slows: dict[str, tuple[str, ...]]
) -> None:
    recipe = read_recipe(SHIPPED / "rclone.toml")
    here = Circumstances("6.18.0", "1.60.1", "none", root=True, workloads=workloads)
    found = plan(recipe, {"vfs-cache-mode": "writes"}, here)
    assert {one.option: one.slows for one in found.changes if one.slows} == slows
