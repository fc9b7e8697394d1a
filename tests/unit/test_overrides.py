# SPDX-License-Identifier: GPL-2.0-or-later
"""Notes about the administrator's values and scratch directories live as long as these."""

from dataclasses import replace

import pytest

from fusetune.bench.note import noted, scratch_note
from fusetune.changes.overrides import note_overrides, overrides
from fusetune.changes.stale import remove_stale
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree

# What is left alone


def test_what_is_left_alone_is_known_for_as_long_as_the_mount_lives(
    tree: Tree, mounted: Mount
) -> None:
    assert overrides(tree.host, mounted) == {}
    note_overrides(tree.host, mounted, {"max_ratio": 7})
    assert overrides(tree.host, mounted) == {"max_ratio": 7}
    assert mounted.instance
    assert overrides(tree.host, replace(mounted, instance=mounted.instance + 1)) == {}
    note_overrides(tree.host, mounted, {})
    note_overrides(tree.host, mounted, {})
    assert list(tree.host.run_dir.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        '{"instance": 1}',
        '{"instance": 1, "values": 7}',
        '{"instance": 1, "values": {}, "times": {"max_ratio": "x"}}',
        pytest.param(20_000 * "[", id="too deep"),
    ],
)
def test_a_note_that_a_crash_cut_short_says_nothing(tree: Tree, mounted: Mount, text: str) -> None:
    tree.write("run/0:40.left", text)
    assert overrides(tree.host, mounted) == {}
    remove_stale(tree.host)
    assert list(tree.host.run_dir.iterdir()) == []


def test_a_note_that_cannot_be_written_is_named(tree: Tree, mounted: Mount) -> None:
    tree.host.make_dir(tree.host.run_dir / "0:40.left")
    with pytest.raises(FusetuneError, match=r"cannot write .*/run/0:40.left: Is a directory"):
        note_overrides(tree.host, mounted, {"max_ratio": 7})
    with pytest.raises(FusetuneError, match=r"cannot remove .*/run/0:40.left: Is a directory"):
        note_overrides(tree.host, mounted, {})
    with (
        pytest.raises(FusetuneError, match=r"cannot write .*: Is a directory"),
        noted(tree.host.run_dir / "0:40.left", "/mnt"),
    ):
        pass


# The note of a scratch directory


def test_a_scratch_note_lasts_as_long_as_its_context(tree: Tree, mounted: Mount) -> None:
    note = scratch_note(tree.host, mounted)
    tree.host.make_dir(note.parent)
    with noted(note, "/mnt/\udcff"):
        assert note.read_bytes() == b"/mnt/\xff"
    assert not note.exists()
    with pytest.raises(ZeroDivisionError), noted(note, "/mnt"):
        raise ZeroDivisionError
    assert not note.exists()
