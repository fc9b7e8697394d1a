# SPDX-License-Identifier: GPL-2.0-or-later
"""Which workloads are measured if nothing can be written, or nothing may be."""

from typing import NoReturn

import pytest

from fusetune.bench.place import Unwritable
from fusetune.bench.reading import Reading
from fusetune.bench.subject import on_subject
from fusetune.bench.workloads import SETS, Workload, WorkloadSet
from fusetune.errors import UsageError
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree

PROFILE = WorkloadSet("profile", "its traffic", {"seq-read": 0.6, "metadata": 0.4})
SOLELY_WRITES = WorkloadSet("logs", "logs", {"log-append": 1.0})
KNOWN = {**SETS, "profile": PROFILE, "logs": SOLELY_WRITES}


@pytest.fixture
def read_only(tree: Tree) -> Mount:
    tree.mount("/mnt/one", options="ro")
    tree.live()
    return tree.only()


def weights(tree: Tree, mount: Mount, *names: str, tell: list[str]) -> dict[str, float]:
    def measure(workloads: list[Workload], reading: Reading | None) -> dict[str, float]:
        assert reading is not None
        return {workload.name: workload.weight for workload in workloads}

    return on_subject(tree.host, mount, names, (), measure, tell=tell.append, sets=KNOWN)


@pytest.mark.parametrize(
    ("names", "expected", "told"),
    [
        (["model-loading"], {"mmap-read": 0.5, "large-read": 0.3, "many-streams": 0.2}, []),
        (["media"], {"video": 0.625, "many-streams": 0.375}, ["media: seq-write"]),
        (["profile"], {"seq-read": 1.0}, ["profile: metadata"]),
        (["build"], {"open-storm": 0.8, "mmap-read": 0.2}, ["build: tree-copy, small-write"]),
        (
            ["media", "profile", "media"],
            {"video": 0.625, "many-streams": 0.375, "seq-read": 1.0},
            ["media: seq-write", "profile: metadata"],
        ),
        ([], {"seq-read": 1.0, "rand-read": 1.0}, []),
    ],
)
def test_sets_lose_what_needs_scratch_files(
    tree: Tree, read_only: Mount, names: list[str], expected: dict[str, float], told: list[str]
) -> None:
    lines: list[str] = []
    assert weights(tree, read_only, *names, tell=lines) == pytest.approx(expected)
    why = "nothing is written because /mnt/one is not writable"
    assert lines == [f"leaves out of {one}; {why}" for one in told]


@pytest.mark.parametrize("names", [["seq-write"], ["media", "seq-write"], ["logs"]])
def test_what_is_named_is_refused(tree: Tree, read_only: Mount, names: list[str]) -> None:
    with pytest.raises(UsageError, match=r"(seq-write|log-append) needs scratch files"):
        weights(tree, read_only, *names, tell=[])


def test_a_mount_that_turns_out_to_be_unwritable(tree: Tree, mounted: Mount) -> None:
    def measure(workloads: list[Workload], reading: Reading | None) -> dict[str, float]:
        if reading is None:
            raise Unwritable("cannot create files")
        return {workload.name: workload.weight for workload in workloads}

    lines: list[str] = []
    found = on_subject(tree.host, mounted, ["media"], (), measure, tell=lines.append)
    assert found == pytest.approx({"video": 0.625, "many-streams": 0.375})
    assert lines[0] == "cannot create files; reading existing files instead"
    assert lines[1].startswith("leaves out of media: seq-write; nothing is written because ")


def test_files_to_read_leave_out_what_writes(tree: Tree, mounted: Mount) -> None:
    lines: list[str] = []
    found = on_subject(
        tree.host, mounted, ["media"], ["/mnt/one/a"], lambda w, _: len(w), tell=lines.append
    )
    assert found == 2
    assert lines == ["leaves out of media: seq-write; nothing is written with --files"]


def test_scratch_files_serve_every_workload(tree: Tree, mounted: Mount) -> None:
    def never(line: str) -> NoReturn:
        raise AssertionError(line)

    found = on_subject(tree.host, mounted, ["media"], (), lambda w, _: len(w), tell=never)
    assert found == 3
