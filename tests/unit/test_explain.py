# SPDX-License-Identifier: GPL-2.0-or-later
"""explain's text about a knob, from history, configuration and current values."""

import time
from typing import Any

import pytest

from fusetune.cli.explain_ import command
from fusetune.desired.history import history_of, record
from fusetune.desired.inspect import inspect_one
from fusetune.desired.persist import save_now
from fusetune.desired.request import set_values
from fusetune.desired.reset import reset
from fusetune.errors import UsageError
from fusetune.mounts.mount import Mount
from fusetune.report.explain import explain
from tests.unit.conftest import Tree
from tests.unit.knob_values import knobs

pytestmark = pytest.mark.usefixtures("knob_files")
_NOW = 1_700_000_000.5
_DAY = time.strftime("%Y-%m-%d %H:%M", time.localtime(_NOW))
_NO_RUN = "no run on record has tried other values; 'fusetune auto' would"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: _NOW)


def _said(tree: Tree, mount: Mount | None, name: str = "read_ahead_kb") -> list[str]:
    found = explain(mount, inspect_one(tree.host, mount), history_of(tree.host, mount))
    (one,) = (one for one in found if one.state.knob.name == name)
    return list(one.sentences)


def _set(tree: Tree, mount: Mount, **values: int) -> None:
    set_values(tree.host, mount, knobs(**values), (), force=False, dry_run=False)


def test_a_value_that_nobody_changed(tree: Tree, mounted: Mount) -> None:
    assert _said(tree, mounted) == [
        "its value is 128 KiB, the kernel's default",
        "no change is on record",
        _NO_RUN,
    ]


def test_a_value_that_was_set_and_saved(tree: Tree, mounted: Mount) -> None:
    tree.write("proc/self/loginuid", "0\n")
    _set(tree, mounted, read_ahead_kb=512)
    assert _said(tree, mounted) == [
        "its value is 512 KiB; the kernel's default is 128",
        f"'fusetune set' by root on {_DAY} changed it from 128",
        "it is not kept for the next mount; 'fusetune save /mnt/one' keeps it",
        _NO_RUN,
    ]
    save_now(tree.host, mounted, admin=False, dry_run=False)
    assert _said(tree, mounted)[2] == (
        "it is saved for the next mount; 'fusetune forget /mnt/one' removes it"
    )
    reset(tree.host, mounted)
    assert _said(tree, mounted)[:2] == [
        "its value is 128 KiB, the kernel's default",
        f"'fusetune reset' by root on {_DAY} changed it from 512",
    ]


def test_a_value_that_auto_chose(tree: Tree, mounted: Mount) -> None:
    tree.live(values={"read_ahead_kb": 2048})
    facts: dict[str, Any] = {"workloads": ["seq-read", "mmap-read"], "gain": 1.42}
    why = ["began at 128", "read_ahead_kb: 128 -> 2048, 1.40 [1.3, 1.5] times the figure with 128"]
    facts |= {"ci95": (1.3, 1.55), "reasons": why}
    record(tree.host, mounted, "auto", {"read_ahead_kb": (128, 2048)}, **facts)
    record(tree.host, mounted, "save", reasons=["read_ahead_kb: which is no run"])
    assert _said(tree, mounted)[1:] == [
        f"'fusetune auto' on {_DAY} changed it from 128; all changes of that run together gave "
        "seq-read and mmap-read 1.42 [1.30, 1.55] times the speed before",
        "it is not kept for the next mount; 'fusetune save /mnt/one' keeps it",
        f"'fusetune auto' on {_DAY} measured seq-read and mmap-read: 128 -> 2048, 1.40 [1.3, 1.5] "
        "times the figure with 128",
    ]


def test_the_latest_run_counts(tree: Tree, mounted: Mount) -> None:
    for verdict in ("no effect found", "other values are worse"):
        reasons = [f"read_ahead_kb: kept at 128, {verdict}"]
        record(tree.host, mounted, "auto", workloads=["seq-read"], reasons=reasons)
    record(tree.host, mounted, "auto", workloads=["metadata"], reasons=["max_ratio: no effect"])
    assert _said(tree, mounted)[-1] == (
        f"'fusetune auto' on {_DAY} measured seq-read: kept at 128, other values are worse"
    )


def test_a_value_that_somebody_else_changed(tree: Tree, mounted: Mount) -> None:
    _set(tree, mounted, read_ahead_kb=512)
    tree.live(values={"read_ahead_kb": 300, "max_background": 99})
    assert _said(tree, mounted)[1] == (
        f"'fusetune set' on {_DAY} set it to 512; somebody else or a new mount has changed it since"
    )
    assert _said(tree, mounted, "max_background")[1] == (
        "fusetune did not set it; the server's reply to INIT or somebody else did"
    )


def test_a_change_that_is_no_longer_on_record(tree: Tree, mounted: Mount) -> None:
    tree.write("etc/fusetune.toml", "[history]\nkeep = 0\n")
    _set(tree, mounted, read_ahead_kb=512)
    assert _said(tree, mounted)[1] == "fusetune set it; the time and reason are no longer on record"


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("read_ahead_kb = 128", "{}:3 asks for it; to change it, edit that line"),
        ("read_ahead_kb = 512", "{}:3 asks for 512; 'fusetune apply /mnt/one' sets it again"),
        ("leave_alone = true", "nothing sets it on this mount: {}:3 sets leave_alone"),
    ],
)
def test_what_the_configuration_asks_for(
    tree: Tree, mounted: Mount, section: str, sentence: str
) -> None:
    file = tree.write("etc/fusetune.toml", f'[[mount]]\npath = "/mnt/one"\n{section}\n')
    assert _said(tree, mounted)[2] == sentence.format(file)


def test_what_policy_refuses(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.live(owner=1000)
    file = tree.write("etc/fusetune.toml", '[[mount]]\npath = "/mnt/one"\nmax_ratio = 50\n')
    said = _said(tree, tree.only(), "max_ratio")[2]
    assert said.startswith(f"{file}:3 asks for 50, but policy refuses it: ")


def test_knobs_that_auto_does_not_search(tree: Tree, mounted: Mount) -> None:
    follower = _said(tree, mounted, "congestion_threshold")[-1]
    assert follower == "'fusetune auto' sets it to 3/4 of max_background"
    tree.system()
    assert _said(tree, None, "fs.pipe-max-size")[1:] == ["no change is on record"]


def test_a_knob_that_is_not_there(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.live(connection=None)
    (said,) = _said(tree, tree.only(), "max_background")
    assert said.startswith("it has no value: no connection under ")


def test_only_the_knobs_that_are_asked_for(
    tree: Tree, mounted: Mount, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["/mnt/one", "max_ratio"], obj=tree.host, standalone_mode=False)
    assert capsys.readouterr().out.splitlines()[0] == "max_ratio"
    with pytest.raises(
        UsageError, match="max_ration: no such knob here; give one of read_ahead_kb"
    ):
        command.main(["/mnt/one", "max_ration"], obj=tree.host, standalone_mode=False)
