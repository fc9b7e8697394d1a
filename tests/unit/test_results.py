# SPDX-License-Identifier: GPL-2.0-or-later
"""Saved results are found again, and never lost by damage or by another version.

A file that this version cannot read is moved aside under another name.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetune.bench.intervals import Interval
from fusetune.desired.curve import Curve, CurvePoint
from fusetune.desired.results import (
    SCHEMA,
    Conditions,
    Run,
    Saved,
    Unusable,
    forget,
    forget_all,
    save,
    saved_at,
    saved_for,
    saved_path,
    saved_under,
    unusable,
)
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree

ODD_PATHS = ["/mnt/a b", "/mnt/new\nline", "/mnt/\udcff\udc80", "/mnt/größe 日本", '/mnt/"quoted\\']
#: What version 1 wrote for `mounted`.
VERSION_1 = {
    "path": "/mnt/one",
    "fstype": "fuse.mirrorfs",
    "source": "source",
    "values": {"max_ratio": 20},
    "gain": 1.5,
    "time": 1700000000.0,
}


def files(tree: Tree) -> list[Path]:
    return sorted((tree.host.state_dir / "saved").iterdir())


def replaced(tree: Tree, mount: Mount, text: str) -> Path:
    """Replace what is saved for ``mount`` with ``text``."""
    path = saved_path(tree.host, mount)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", ODD_PATHS)
def test_it_is_found_again(tree: Tree, mounted: Mount, path: str) -> None:
    mount = replace(mounted, path=path, source=path)
    assert saved_for(tree.host, mount) is None
    forget(tree.host, mount)
    save(tree.host, mount, {"max_ratio": 20}, "auto", 1.5, (1.2, 1.9))
    saved = saved_for(tree.host, mount)
    assert isinstance(saved, Saved)
    assert (saved.path, saved.fstype, saved.source) == (path, mount.fstype, path)
    assert (saved.values, saved.by) == ({"max_ratio": 20}, "auto")
    assert (saved.gain, saved.ci95) == (1.5, (1.2, 1.9))
    assert list(saved_at(tree.host, path)) == [(saved_path(tree.host, mount), saved)]
    assert list(saved_at(tree.host, path + "2")) == []
    save(tree.host, mount, {"max_ratio": 30}, "save")
    again = saved_for(tree.host, mount)
    assert again
    assert (again.values, again.by) == ({"max_ratio": 30}, "save")
    assert (again.gain, again.ci95) == (None, None)
    forget(tree.host, mount)
    assert saved_for(tree.host, mount) is None
    assert files(tree) == []


# What an earlier run measured


CONDITIONS = Conditions("/usr/bin/mirrorfs", "1.2", "6.12", 0, {"seq-read": "bytes_per_second"})
BLOCK = [({"max_ratio": 1}, {"seq-read": 1.5}), ({"max_ratio": 20}, {"seq-read": 3.0})]
RUN = Run(CONDITIONS, [BLOCK], {"max_ratio": 1}, {"max_ratio": 20}, {"seq-read": 1.0})


def test_a_run_is_found_again(tree: Tree, mounted: Mount) -> None:
    save(tree.host, mounted, {"max_ratio": 20}, "auto", 2.0, (1.5, 2.5), RUN)
    saved = saved_for(tree.host, mounted)
    assert saved
    assert saved.run == RUN
    assert saved_under(tree.host, mounted, CONDITIONS) == saved
    assert list(unusable(tree.host)) == []


CURVE = Curve(
    *("max_ratio", True, 1, 20),
    (CurvePoint(1, Interval(1.0, 1.0, 1.0), 3), CurvePoint(20, Interval(2.0, 1.5, 2.5), 4)),
)


def test_the_curves_of_a_run_are_found_again(tree: Tree, mounted: Mount) -> None:
    run = replace(RUN, curves=[CURVE])
    save(tree.host, mounted, {"max_ratio": 20}, "auto", 2.0, (1.5, 2.5), run)
    saved = saved_for(tree.host, mounted)
    assert saved
    assert saved.run == run


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"knob": "max_ratio"', '"knob": "no_such_knob"'),
        ('"chosen": 20', '"chosen": 700'),
        ('"ordered": true', '"ordered": 1'),
        ('"high": 2.5', '"high": NaN'),
        ('"low": 1.5', '"low": 0.0'),
        ('"samples": 3', '"samples": 0'),
        ('"value": 20,', '"value": "20",'),
        ('"value": 20,', ""),
    ],
)
def test_a_damaged_curve_is_noticed(tree: Tree, mounted: Mount, old: str, new: str) -> None:
    save(tree.host, mounted, {"max_background": 20}, "auto", run=replace(RUN, curves=[CURVE]))
    path = saved_path(tree.host, mounted)
    head, found, tail = path.read_text().partition('"curves"')
    assert old in tail
    path.write_text(head + found + tail.replace(old, new))
    with pytest.raises(Unusable, match="is damaged"):
        saved_for(tree.host, mounted)


def test_a_run_without_its_start_is_read(tree: Tree, mounted: Mount) -> None:
    fields = {"conditions": asdict(CONDITIONS), "blocks": [BLOCK]}
    run = json.dumps(VERSION_1 | {"schema": SCHEMA, "by": "auto", "run": fields})
    replaced(tree, mounted, run)
    saved = saved_for(tree.host, mounted)
    assert saved
    assert saved.run == Run(CONDITIONS, [BLOCK])


@pytest.mark.parametrize(
    "change",
    [
        {"server": "/usr/bin/other"},
        {"version": "1.3"},
        {"version": None},
        {"kernel": "7.2"},
        {"owner_uid": 1000},
        {"units": {"seq-read": "1/p99"}},
        {"units": {"seq-write": "bytes_per_second"}},
    ],
)
def test_other_conditions_are_another_run(
    tree: Tree, mounted: Mount, change: dict[str, Any]
) -> None:
    save(tree.host, mounted, {"max_ratio": 20}, "auto", run=RUN)
    assert saved_under(tree.host, mounted, replace(CONDITIONS, **change)) is None


def test_a_run_is_that_of_the_source_wherever_it_was_mounted(tree: Tree, mounted: Mount) -> None:
    """The mount's own result comes first, then the latest."""
    elsewhere = [replace(mounted, path=path) for path in ("/mnt/a", "/mnt/b", "/mnt/c")]
    for time, mount in zip((10.0, 30.0, 20.0), elsewhere, strict=True):
        with mock.patch("time.time", return_value=time):
            save(tree.host, mount, {"max_ratio": 20}, "auto", run=RUN)
    found = saved_under(tree.host, mounted, CONDITIONS)
    assert found
    assert found.path == "/mnt/b"
    with mock.patch("time.time", return_value=1.0):
        save(tree.host, mounted, {"max_ratio": 20}, "auto", run=RUN)
    found = saved_under(tree.host, mounted, CONDITIONS)
    assert found
    assert found.path == mounted.path
    for other in (replace(mounted, source="other"), replace(mounted, fstype="fuse.other")):
        assert saved_under(tree.host, other, CONDITIONS) is None


def test_what_was_saved_without_a_run_is_none_to_begin_with(tree: Tree, mounted: Mount) -> None:
    """From an earlier version, from `save`, or of an unknown server."""
    replaced(tree, mounted, json.dumps(VERSION_1 | {"schema": 2, "by": "auto", "ci95": [1.2, 1.9]}))
    saved = saved_for(tree.host, mounted)
    assert saved
    assert (saved.values, saved.ci95, saved.run) == ({"max_ratio": 20}, (1.2, 1.9), None)
    assert saved_under(tree.host, mounted, CONDITIONS) is None
    replaced(tree, mounted, "{")  # a damaged one does not count either
    assert saved_under(tree.host, mounted, CONDITIONS) is None


@pytest.mark.parametrize(
    "run",
    [
        1,
        {},
        {"conditions": asdict(CONDITIONS)},
        {"conditions": {}, "blocks": []},
        {"conditions": asdict(CONDITIONS), "blocks": [[[{"max_ratio": 1}]]]},
        {"conditions": asdict(CONDITIONS), "blocks": [[[{"max_ratio": 101}, {"seq-read": 1.0}]]]},
        {"conditions": asdict(CONDITIONS), "blocks": [[[{"max_ratio": 1}, {"seq-read": 0.0}]]]},
        {"conditions": asdict(CONDITIONS), "blocks": [[[{"max_ratio": 1}, {"seq-read": "1"}]]]},
        {"conditions": asdict(CONDITIONS), "blocks": [[[{"max_ratio": 1}, 1.0]]]},
        {"conditions": asdict(CONDITIONS), "blocks": [[[{"max_ratio": 1}, {"mixed": 1.0}]]]},
        {"conditions": asdict(CONDITIONS), "blocks": [[[{"max_ratio": 1}, {}]]]},
        {"conditions": asdict(CONDITIONS) | {"units": {"seq-read": 1}}, "blocks": []},
        {"conditions": asdict(CONDITIONS) | {"owner_uid": -5}, "blocks": []},
        {"conditions": asdict(CONDITIONS), "blocks": [], "start": {"max_ratio": 1}},
        {"conditions": asdict(CONDITIONS), "blocks": [], "start": 1},
        {"conditions": asdict(CONDITIONS), "blocks": [], "start": {}, "chosen": 1},
        asdict(RUN) | {"chosen": {"max_ratio": 101}},
        {"conditions": asdict(CONDITIONS), "blocks": [], "weights": {"seq-read": 0.0}},
        asdict(RUN) | {"start": {"no_such_knob": 1}, "chosen": {"no_such_knob": 1}},
        asdict(RUN) | {"start": {"strict_limit": 1}, "chosen": {"strict_limit": 1}},
    ],
)
def test_a_damaged_run_is_told(tree: Tree, mounted: Mount, run: Any) -> None:
    text = json.dumps(VERSION_1 | {"schema": SCHEMA, "by": "auto", "run": run})
    replaced(tree, mounted, text)
    with pytest.raises(Unusable, match="is damaged"):
        saved_for(tree.host, mounted)


@pytest.mark.parametrize(
    "fields",
    [
        {"time": -1e18},
        {"time": 1e18},
        {"gain": -5.0},
        {"gain": 0.0},
        {"ci95": [-6.0, -4.0]},
        {"ci95": [2.0, 1.0]},
        {"gain": 10**400},
        {"time": 10**400},
        {"ci95": [1.0, 10**400]},
        {"gain": True},
        {"time": True},
    ],
)
def test_an_impossible_number_is_damage(tree: Tree, mounted: Mount, fields: dict[str, Any]) -> None:
    """Results may come from other hosts."""
    text = json.dumps(VERSION_1 | {"schema": SCHEMA, "by": "auto"} | fields)
    replaced(tree, mounted, text)
    with pytest.raises(Unusable, match="is damaged"):
        saved_for(tree.host, mounted)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.text(), st.text(), st.text()), unique=True, min_size=2, max_size=2))
def test_another_path_type_or_source_is_another_result(
    tmp_path_factory: pytest.TempPathFactory, names: list[tuple[str, str, str]]
) -> None:
    # None of the three can hold a NUL byte in mountinfo.
    names = [tuple(text.replace("\0", "") for text in three) for three in names]  # type: ignore[misc]
    if names[0] == names[1]:
        return
    tree = Tree(tmp_path_factory.mktemp("tree"))
    one, two = (Mount(path, fstype, source, "0:40") for path, fstype, source in names)
    save(tree.host, one, {"max_ratio": 20}, "auto")
    assert saved_for(tree.host, two) is None


def test_what_version_1_wrote_is_read(tree: Tree, mounted: Mount) -> None:
    replaced(tree, mounted, json.dumps(VERSION_1))
    assert saved_for(tree.host, mounted) == Saved(**VERSION_1, by="auto")  # type: ignore[arg-type]
    assert list(unusable(tree.host)) == []


def test_what_is_written_says_its_version(tree: Tree, mounted: Mount) -> None:
    save(tree.host, mounted, {"max_ratio": 20}, "save")
    assert json.loads(files(tree)[0].read_text())["schema"] == SCHEMA


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is damaged"),
        ("{", "is damaged"),
        pytest.param(20_000 * "[", "is damaged", id="too deep"),
        (json.dumps(VERSION_1 | {"path": 1.5}), "is damaged"),
        ("[]", "is damaged"),
        ("1", "is damaged"),
        ("{}", "is damaged"),
        ('{"path": "/"}', "is damaged"),
        ("\x00", "is damaged"),
        (json.dumps(VERSION_1 | {"values": {"no_such_knob": 1}}), "is damaged"),
        (json.dumps(VERSION_1 | {"values": {"max_ratio": 101}}), "is damaged"),
        (json.dumps(VERSION_1 | {"values": {"max_ratio": "20"}}), "is damaged"),
        (json.dumps(VERSION_1 | {"values": 20}), "is damaged"),
        (json.dumps(VERSION_1 | {"more": 1}), "is damaged"),
        (json.dumps(VERSION_1 | {"gain": "much"}), "is damaged"),
        (json.dumps(VERSION_1 | {"time": None}), "is damaged"),
        (json.dumps(VERSION_1 | {"ci95": [1.0]}), "is damaged"),
        (json.dumps(VERSION_1 | {"ci95": [1.0, "2"]}), "is damaged"),
        (json.dumps(VERSION_1 | {"schema": SCHEMA + 1}), f"has schema {SCHEMA + 1}"),
        (json.dumps({"schema": SCHEMA + 1}), f"has schema {SCHEMA + 1}"),
        (json.dumps(VERSION_1 | {"schema": None}), "has schema None"),
    ],
)
def test_what_cannot_be_used_is_told_and_set_aside(
    tree: Tree, mounted: Mount, text: str, what: str
) -> None:
    path = replaced(tree, mounted, text)
    with pytest.raises(Unusable, match=f"the saved result {path} {what}"):
        saved_for(tree.host, mounted)
    assert list(saved_at(tree.host, "/mnt/one")) == []
    (told,) = unusable(tree.host)
    assert what in told
    assert path.read_text() == text
    save(tree.host, mounted, {"max_ratio": 30}, "save")
    saved = saved_for(tree.host, mounted)
    assert saved
    assert saved.values == {"max_ratio": 30}
    (aside,) = path.parent.glob("*.set-aside-*")
    assert aside.read_text() == text
    (told,) = unusable(tree.host)
    assert str(aside) in told
    forget_all(tree.host)
    assert files(tree) == [aside]


def test_bytes_that_are_no_text(tree: Tree, mounted: Mount) -> None:
    path = replaced(tree, mounted, "")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(Unusable, match="cannot read the saved result"):
        saved_for(tree.host, mounted)


def test_a_failed_save_leaves_the_old_one(tree: Tree, mounted: Mount) -> None:
    save(tree.host, mounted, {"max_ratio": 20}, "auto", 1.5)
    with (
        mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")),
        pytest.raises(FusetuneError, match=r"cannot write .*: No space left on device"),
    ):
        save(tree.host, mounted, {"max_ratio": 30}, "auto", 1.5)
    saved = saved_for(tree.host, mounted)
    assert saved is not None
    assert saved.values == {"max_ratio": 20}
    assert len(files(tree)) == 1


def test_forget_all(tree: Tree, mounted: Mount) -> None:
    forget_all(tree.host)
    for path in ODD_PATHS:
        save(tree.host, replace(mounted, path=path), {"max_ratio": 20}, "auto", 1.5)
    assert len(files(tree)) == len(ODD_PATHS)
    forget_all(tree.host)
    assert files(tree) == []


def test_a_result_that_another_fusetune_forgets_meanwhile_is_no_error(
    tree: Tree, mounted: Mount
) -> None:
    path = saved_path(tree.host, mounted)
    with mock.patch("fusetune.desired.results.result_files", return_value=[path]):
        forget_all(tree.host)
